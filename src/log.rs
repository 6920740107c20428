// SPDX-License-Identifier: Apache-2.0
//! The one way the library says something unasked: a callback the caller installs.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard};

use crate::process::{Current, PerProcess};

/// How much a message matters; a callback gets its own level and those below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    /// Something failed that no return value could tell.
    Error = 1,
    /// Something works, but not as well as asked.
    Warn = 2,
    /// A milestone: a library loaded, a backend made.
    Info = 3,
    /// One line an operation.
    Debug = 4,
    /// Everything.
    Trace = 5,
}

/// What a caller installs. It may be called from any thread, never with a lock of ours held.
pub type Sink = Box<dyn Fn(Level, &str, &str) + Send + Sync>;

/// Who gets messages, and up to which level.
struct Listener {
    level: u32,
    sink: Sink,
}

/// Read and set without a lock: a child that was forked meanwhile would wait for that for ever.
static LISTENER: Current<Option<Listener>> = Current::new();

/// Installs the sink for messages up to `level`, or removes it.
pub fn set_sink(level: u32, sink: Option<Sink>) {
    LISTENER.set(sink.map(|sink| Listener { level, sink }));
}

fn listener(level: Level) -> Option<&'static Listener> {
    LISTENER.get()?.as_ref().filter(|listener| level as u32 <= listener.level)
}

/// Whether a message of this level would go anywhere.
pub fn enabled(level: Level) -> bool {
    listener(level).is_some()
}

/// Hands a message to the sink, now or when this thread holds messages back no longer.
pub fn write(level: Level, target: &'static str, message: String) {
    let is_late = HOLDS.try_with(|holds| holds.get() > 0).unwrap_or(false);
    match is_late {
        true => {
            // A thread that is ending may have no such list any more.
            let _ = LATE.try_with(|late| late.borrow_mut().push((level, target, message)));
        }
        false => deliver(level, target, &message),
    }
}

fn deliver(level: Level, target: &str, message: &str) {
    if let Some(listener) = listener(level) {
        (listener.sink)(level, target, message);
    }
}

type Message = (Level, &'static str, String);

thread_local! {
    /// How many of this thread's locks hold messages back.
    static HOLDS: Cell<u32> = const { Cell::new(0) };
    /// What was held back.
    static LATE: RefCell<Vec<Message>> = const { RefCell::new(Vec::new()) };
}

fn take_late() -> Vec<Message> {
    LATE.try_with(RefCell::take).unwrap_or_default()
}

/// Holds back this thread's messages while it lives: made before a lock is taken under which somebody may log, it lets
/// them go after the lock. A sink may call the library, and would wait for a lock that its own thread holds.
#[must_use]
pub struct HoldBack(PhantomData<*const ()>);

impl HoldBack {
    /// From now on.
    pub fn begin() -> Self {
        HOLDS.set(HOLDS.get() + 1);
        Self(PhantomData)
    }

    /// Ends here, and hands what was held back to another thread: one that waits for this one may hold locks.
    pub fn hand_over(self) -> Late {
        self.take()
    }

    /// The same without an end.
    pub fn take(&self) -> Late {
        Late(take_late())
    }
}

/// Messages for another thread to write.
#[must_use]
pub struct Late(Vec<Message>);

impl Late {
    /// Writes them.
    pub fn write(self) {
        self.0.into_iter().for_each(|(level, target, message)| write(level, target, message));
    }

    /// Has them written by a thread that nobody waits for, in the order in which they come here.
    pub fn write_elsewhere(self) {
        if !self.0.is_empty() {
            Elsewhere::get().add(self.0);
        }
    }
}

/// What a thread of its own writes, which is there while there is any.
#[derive(Default)]
struct Elsewhere(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    messages: VecDeque<Message>,
    has_thread: bool,
}

impl Elsewhere {
    fn get() -> &'static Self {
        static ELSEWHERE: PerProcess<Elsewhere> = PerProcess::new();
        ELSEWHERE.get(Self::default)
    }

    fn add(&'static self, messages: Vec<Message>) {
        let mut waiting = self.lock();
        waiting.messages.extend(messages);
        if !std::mem::replace(&mut waiting.has_thread, true) {
            drop(waiting);
            let thread = std::thread::Builder::new().name("kvmem-log".to_string());
            // Without a thread they wait for the next that is started.
            if thread.spawn(|| self.write_all()).is_err() {
                self.lock().has_thread = false;
            }
        }
    }

    fn write_all(&self) {
        while let Some((level, target, message)) = self.next() {
            write(level, target, message);
        }
    }

    fn next(&self) -> Option<Message> {
        let mut waiting = self.lock();
        let next = waiting.messages.pop_front();
        waiting.has_thread = next.is_some();
        next
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for HoldBack {
    fn drop(&mut self) {
        HOLDS.set(HOLDS.get() - 1);
        if HOLDS.get() == 0 {
            for (level, target, message) in take_late() {
                deliver(level, target, &message);
            }
        }
    }
}

/// A lock's guard with the messages that it holds back.
pub struct Quiet<G> {
    // Let go in this order.
    guard: G,
    _late: HoldBack,
}

impl<G> Quiet<G> {
    /// Takes a lock.
    pub fn lock(lock: impl FnOnce() -> G) -> Self {
        let _late = HoldBack::begin();
        Self { guard: lock(), _late }
    }
}

impl<G: Deref> Deref for Quiet<G> {
    type Target = G::Target;

    fn deref(&self) -> &Self::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Quiet<G> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.guard
    }
}

/// Logs a formatted message; nothing is formatted when nobody listens.
macro_rules! log {
    ($level:ident, $($message:tt)+) => {
        if $crate::log::enabled($crate::log::Level::$level) {
            $crate::log::write($crate::log::Level::$level, module_path!(), format!($($message)+));
        }
    };
}
pub(crate) use log;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Messages of this test, which the sink takes only while the lock is free.
    #[test]
    fn messages_come_when_the_last_lock_is_free() {
        static LOCK: Mutex<()> = Mutex::new(());
        static OTHER: Mutex<()> = Mutex::new(());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let here = std::thread::current().id();
        let sink = {
            let seen = seen.clone();
            move |_: Level, _: &str, message: &str| {
                if std::thread::current().id() == here {
                    assert!(LOCK.try_lock().is_ok() && OTHER.try_lock().is_ok());
                    seen.lock().unwrap().push(message.to_string());
                }
            }
        };
        set_sink(Level::Error as u32, Some(Box::new(sink)));
        let locked = Quiet::lock(|| LOCK.lock().unwrap());
        log!(Error, "first");
        {
            let _late = HoldBack::begin();
            let _other = OTHER.lock().unwrap();
            log!(Error, "second");
        }
        assert!(seen.lock().unwrap().is_empty());
        drop(locked);
        assert_eq!(*seen.lock().unwrap(), ["first", "second"]);
        log!(Error, "third");
        assert_eq!(seen.lock().unwrap().len(), 3);
        set_sink(0, None);
    }
}
