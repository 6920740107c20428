// SPDX-License-Identifier: Apache-2.0
//! The log: messages for the one callback that the caller may install.
//!
//! Messages are queued and delivered on a thread of their own. So a message may be logged with any lock held, and the
//! callback may call any function of the library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::base::callback_thread::{CallbackHandle, CallbackThread};
use crate::base::error::Result;
use crate::base::one_line::one_line;
use crate::base::process::PerProcess;
use crate::base::sync::{Mutex, MutexGuard};

/// The importance of a message. A callback gets messages of its own level and of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    /// A failure that no return value could report.
    Error = 1,
    /// Something works, but not as well as asked.
    Warn = 2,
    /// A milestone: a library loaded, a backend created.
    Info = 3,
    /// One line per operation.
    Debug = 4,
    Trace = 5,
}

/// A duration as all messages have it: in microseconds.
pub struct Microseconds(pub Duration);

impl std::fmt::Display for Microseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} us", self.0.as_secs_f64() * 1e6)
    }
}

/// A limit of time as errors have it. One that is too small for milliseconds was probably meant in another unit.
pub struct Milliseconds(pub Duration);

impl std::fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 < Duration::from_micros(1) {
            true => write!(f, "{} ns", self.0.as_nanos()),
            false => write!(f, "{} ms", (self.0.as_secs_f64() * 1e6).round() / 1e3),
        }
    }
}

/// A number of things, whose name gets an "s" unless the number is one.
pub struct Count(pub u64, pub &'static str);

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}{}", self.0, self.1, if self.0 == 1 { "" } else { "s" })
    }
}

/// The callback: level, target, message. Only the log's thread calls it, with no lock of the library held.
pub type Sink = Box<dyn Fn(Level, &str, &str) + Send + Sync>;

/// Bytes of messages that may be queued. Further messages are dropped and counted.
const MAX_QUEUED_BYTES: usize = 4 << 20;

/// The level of the current listener, or 0. A forked child inherits the value but not the listener; it then formats
/// messages for nothing until it installs its own, which is harmless.
static LEVEL: AtomicU32 = AtomicU32::new(0);

/// Installs the sink for messages up to `level`, or removes it, and waits until the sink before it is no longer in use.
///
/// Messages logged before this call are delivered to the sink before, and then that sink is not called again. A sink that
/// calls this can't wait for itself: the messages still queued are discarded instead, and the sink is not called again after
/// its running call returns.
pub fn set_sink(level: u32, sink: Option<Sink>) -> Result<()> {
    Log::get().set_sink(level, sink)
}

/// Whether a message of this level would be delivered.
pub fn enabled(level: Level) -> bool {
    level as u32 <= LEVEL.load(Ordering::Relaxed)
}

/// Queues a message for the sink. Never blocks. Formats it here, so that each place that logs contains little code for it.
#[cold]
#[inline(never)]
pub fn write(level: Level, target: &'static str, message: std::fmt::Arguments<'_>) {
    Log::get().write(level, target, one_line(message.to_string()));
}

/// The log of one process. A forked child starts without a sink: its parent's thread does not exist there.
struct Log {
    thread: CallbackThread,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listener: Option<Arc<Listener>>,
    queued_bytes: usize,
    /// Messages dropped since the last note about it.
    dropped: u64,
    next: u64,
    /// Messages with a smaller number are discarded.
    discard_before: u64,
}

struct Listener {
    level: u32,
    sink: Sink,
    thread: CallbackHandle,
}

/// A message on its way to the listener that was installed when it was logged.
struct Message {
    listener: Arc<Listener>,
    number: u64,
    level: Level,
    target: &'static str,
    text: String,
}

impl Message {
    /// Its approximate size while it is queued.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.capacity()
    }
}

impl Log {
    fn get() -> &'static Self {
        static LOG: PerProcess<Log> = PerProcess::new();
        // A panic in the log callback can't be logged: only that callback would get the message.
        LOG.get(|| Self { thread: CallbackThread::new("kvmem-log", |_| ()), state: Mutex::default() })
    }

    fn set_sink(&'static self, level: u32, sink: Option<Sink>) -> Result<()> {
        let listener = sink
            .filter(|_| level > 0)
            .map(|sink| Ok(Arc::new(Listener { level, sink, thread: self.thread.acquire()? })))
            .transpose()?;
        let mut state = self.lock();
        self.note_dropped(&mut state);
        LEVEL.store(listener.as_ref().map_or(0, |listener| listener.level), Ordering::Relaxed);
        let before = std::mem::replace(&mut state.listener, listener);
        if self.thread.is_current() {
            state.discard_before = state.next;
        } else {
            // Placed with the change, so that it is not behind messages for the new listener.
            let fence = self.thread.fence();
            drop(state);
            fence.wait();
        }
        drop(before);
        Ok(())
    }

    fn write(&'static self, level: Level, target: &'static str, text: String) {
        // A message from within the sink would cause another call of the sink, without end.
        if self.thread.is_current() {
            return;
        }
        let mut state = self.lock();
        let Some(listener) = state.listener.clone().filter(|listener| level as u32 <= listener.level) else {
            return;
        };
        let message = Message { listener, number: state.next, level, target, text };
        // Once messages were dropped, no further ones are queued before the note about it.
        if state.dropped > 0 || state.queued_bytes + message.bytes() > MAX_QUEUED_BYTES {
            state.dropped += 1;
            return;
        }
        self.queue(&mut state, message);
    }

    fn queue(&'static self, state: &mut State, message: Message) {
        state.next += 1;
        state.queued_bytes += message.bytes();
        let listener = message.listener.clone();
        listener.thread.post(move || self.deliver(message));
    }

    fn deliver(&'static self, message: Message) {
        let mut state = self.lock();
        state.queued_bytes -= message.bytes();
        // Not at the first free byte, because then every other message would be such a note.
        if state.queued_bytes <= MAX_QUEUED_BYTES / 2 {
            self.note_dropped(&mut state);
        }
        let is_discarded = message.number < state.discard_before;
        drop(state);
        if !is_discarded {
            (message.listener.sink)(message.level, message.target, &message.text);
        }
    }

    /// Queues a message with the number of those dropped. It is an error, so that every listener gets it.
    fn note_dropped(&'static self, state: &mut State) {
        let dropped = std::mem::take(&mut state.dropped);
        let Some(listener) = state.listener.clone().filter(|_| dropped > 0) else { return };
        let text = format!(
            "{dropped} log messages were dropped, because {} MiB of messages waited for the log callback; return from it \
             sooner, or set a lower level",
            MAX_QUEUED_BYTES >> 20
        );
        let note =
            Message { listener, number: state.next, level: Level::Error, target: module_path!(), text };
        self.queue(state, note);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Logs a formatted message. It is formatted only if a listener wants its level.
macro_rules! log {
    ($level:ident, $($message:tt)+) => {
        if $crate::base::log::enabled($crate::base::log::Level::$level) {
            $crate::base::log::write($crate::base::log::Level::$level, module_path!(), format_args!($($message)+));
        }
    };
}
pub(crate) use log;

/// The number of an object, which is unique among all objects of the process. Later objects have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(u64);

impl LogId {
    /// A new number. It is always assigned, because the log may be enabled while objects exist.
    pub fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub fn number(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for LogId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiting::until;
    use std::sync::mpsc::{Receiver, Sender, channel};

    #[test]
    fn a_limit_is_in_the_unit_in_which_it_can_be_read() {
        let text = |limit| Milliseconds(limit).to_string();
        assert_eq!(text(Duration::from_secs(30)), "30000 ms");
        assert_eq!(text(Duration::from_nanos(1_500_000)), "1.5 ms");
        assert_eq!(text(Duration::from_micros(1)), "0.001 ms");
        assert_eq!(text(Duration::from_nanos(30)), "30 ns");
    }

    /// The log is one per process, and other tests log to it: these run one after the other, and count only messages of
    /// their own target.
    struct Own(MutexGuard<'static, ()>);
    const TARGET: &str = module_path!();

    impl Own {
        fn begin() -> Self {
            static TURN: Mutex<()> = Mutex::new(());
            Self(TURN.lock())
        }
    }

    impl Drop for Own {
        fn drop(&mut self) {
            let _ = (set_sink(0, None), &self.0);
        }
    }

    fn listen(sink: impl Fn(Level, &str, &str) + Send + Sync + 'static) {
        set_sink(Level::Trace as u32, Some(Box::new(sink))).unwrap();
    }

    /// A sink that passes on messages of these tests and those about dropped ones.
    fn to(seen: Sender<String>) -> impl Fn(Level, &str, &str) + Send + Sync {
        let seen = Mutex::new(seen);
        move |_, target, text| {
            if target == TARGET || TARGET.strip_suffix("::tests") == Some(target) {
                seen.lock().send(text.to_string()).unwrap();
            }
        }
    }

    /// A sink that blocks in its first message of these tests until the sender is dropped.
    fn blocked(then: impl Fn(Level, &str, &str) + Send + Sync + 'static) -> (Receiver<()>, Sender<()>) {
        let ((entered, is_in), (go, gate)) = (channel(), channel::<()>());
        let (entered, gate) = (Mutex::new(Some(entered)), Mutex::new(gate));
        listen(move |level, target, text| {
            if target == TARGET && entered.lock().take().is_some() {
                let _ = gate.lock().recv();
            }
            then(level, target, text);
        });
        (is_in, go)
    }

    #[test]
    fn messages_are_delivered_in_order_before_the_sink_is_removed() {
        let _own = Own::begin();
        let (seen, messages) = channel();
        listen(to(seen));
        (0..1000).for_each(|number| log!(Debug, "{number}"));
        set_sink(0, None).unwrap();
        log!(Debug, "late");
        assert!(messages.iter().eq((0..1000).map(|number| number.to_string())));
    }

    #[test]
    fn a_message_is_one_line_whatever_names_it_has() {
        let _own = Own::begin();
        let (seen, messages) = channel();
        listen(to(seen));
        log!(Debug, "agent {} is gone", "ü\nERROR\r\x1b[2J\u{85}\u{2028}");
        set_sink(0, None).unwrap();
        assert!(messages.iter().eq(["agent ü\\nERROR\\r\\u{1b}[2J\\u{85}\\u{2028} is gone"]));
    }

    #[test]
    fn a_removed_sink_is_freed() {
        let _own = Own::begin();
        let held = Arc::new(());
        for _ in 0..3 {
            let captured = held.clone();
            listen(move |_, _, _| drop(captured.clone()));
            assert_eq!(Arc::strong_count(&held), 2, "a replaced sink exists no longer");
        }
        set_sink(0, None).unwrap();
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn the_change_waits_for_a_running_call() {
        let _own = Own::begin();
        let (seen, messages) = channel();
        let (is_in, go) = blocked(to(seen));
        log!(Debug, "slow");
        is_in.recv().unwrap_err();
        let changed = std::thread::spawn(|| set_sink(0, None).unwrap());
        until("the level does not change", || LEVEL.load(Ordering::Relaxed) == 0);
        assert!(!changed.is_finished());
        drop(go);
        changed.join().unwrap();
        assert_eq!(messages.recv().unwrap(), "slow");
        assert!(messages.recv().is_err(), "the sink is gone");
    }

    #[test]
    fn a_sink_that_removes_itself_receives_no_further_message() {
        let _own = Own::begin();
        let (seen, messages) = channel();
        let (is_in, go) = blocked(move |_, target, text| {
            if target == TARGET {
                set_sink(0, None).unwrap();
                seen.send(text.to_string()).unwrap();
            }
        });
        (0..10).for_each(|number| log!(Debug, "{number}"));
        is_in.recv().unwrap_err();
        drop(go);
        assert!(messages.iter().eq(["0"]));
    }

    #[test]
    fn messages_logged_by_a_sink_are_not_delivered() {
        let _own = Own::begin();
        let (seen, messages) = channel();
        listen(move |_, target, text| {
            if target == TARGET {
                log!(Debug, "from within");
                seen.send(text.to_string()).unwrap();
            }
        });
        log!(Debug, "first");
        set_sink(0, None).unwrap();
        assert!(messages.iter().eq(["first"]));
    }

    #[test]
    fn a_blocked_sink_blocks_no_caller_and_dropped_messages_are_counted() {
        const MANY: usize = 3 * (MAX_QUEUED_BYTES >> 10);
        let _own = Own::begin();
        let (seen, messages) = channel();
        let (is_in, go) = blocked(to(seen));
        log!(Debug, "first");
        is_in.recv().unwrap_err();
        (0..MANY).for_each(|_| log!(Debug, "{:1024}", "long"));
        drop(go);
        // The note follows once half of the queue was delivered, and messages are queued again.
        let note = messages.iter().find(|text| text.contains("dropped")).unwrap();
        log!(Debug, "last");
        set_sink(0, None).unwrap();
        let rest: Vec<_> = messages.iter().collect();
        assert_eq!(rest, ["last"]);
        let dropped: usize = note.split(' ').next().unwrap().parse().unwrap();
        // At least two thirds of them; other tests may have logged, and lost, some more.
        assert!(dropped >= MANY - (MAX_QUEUED_BYTES >> 10), "{note}");
    }

    #[test]
    fn no_number_is_used_twice() {
        let (first, second) = (LogId::next(), LogId::next());
        assert_ne!(first, second);
        assert!(first.to_string().starts_with('#'));
    }
}
