// SPDX-License-Identifier: Apache-2.0
//! Objects that the driver frees only when all work of their context has ended (see `quiet`). Dropped beside work that runs for
//! long, they are kept, and a thread frees them when the device has finished it. Until then they hold their memory and the
//! context.
#![forbid(unsafe_code)]

use std::any::Any;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Context;
use super::ending::means_lost;
use super::event::Event;
use super::quiet::{PATIENCE, Work, runs_long_work};
use crate::base::error::{Result, Status};
use crate::base::guarded::guarded;
use crate::base::log::log;
use crate::base::process::PerProcess;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::thread;

/// Between two polls of the thread; doubled each time.
const POLL: Duration = Duration::from_millis(1);
const LONGEST_POLL: Duration = Duration::from_millis(100);

/// An object of a context whose end may wait for the work of the context.
pub struct Deferred<T: Send + Sync + 'static> {
    object: Arc<T>,
    context: Arc<Context>,
}

impl<T: Send + Sync> Deferred<T> {
    /// An object of this context.
    pub fn new(context: &Arc<Context>, object: T) -> Self {
        Self { object: Arc::new(object), context: context.clone() }
    }
}

impl<T: Send + Sync> Deref for Deferred<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T: Send + Sync> Drop for Deferred<T> {
    fn drop(&mut self) {
        if !runs_long_work(&self.context) {
            return;
        }
        let mut object = Waiting { work: None, _object: self.object.clone(), context: self.context.clone() };
        if !object.is_over() {
            keep(object);
        }
    }
}

struct Waiting {
    /// What it waits for, if that could be found.
    work: Option<Event>,
    _object: Arc<dyn Any + Send + Sync>,
    context: Arc<Context>,
}

impl Waiting {
    /// Whether it can be freed without waiting. Work that was submitted after its end counts, too.
    fn is_over(&mut self) -> bool {
        if let Some(event) = &self.work
            && matches!(event.is_done(), Ok(false))
        {
            return false;
        }
        self.work = None;
        match Work::new(&self.context) {
            Ok(Work::Finished) => true,
            Ok(Work::Running(event)) => {
                self.work = Some(event);
                false
            }
            // A lost context has no work. After another failure, such as one for lack of memory, it is asked again.
            Err(error) => means_lost(&error),
        }
    }
}

#[derive(Default)]
struct List {
    waiting: VecDeque<Waiting>,
    /// How many objects a thread has taken to ask for their work and to free them.
    taken: usize,
    /// How many objects were freed.
    freed: u64,
    has_thread: bool,
}

impl List {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.taken == 0
    }
}

/// An object that was taken from the list, until it is freed or kept again.
struct Taken;

impl Drop for Taken {
    fn drop(&mut self) {
        list().taken -= 1;
    }
}

/// Per process, because a forked child must not free them.
fn list() -> MutexGuard<'static, List> {
    static LIST: PerProcess<Mutex<List>> = PerProcess::new();
    LIST.get(Mutex::default).lock()
}

fn keep(object: Waiting) {
    let mut list = list();
    list.waiting.push_back(object);
    if list.has_thread {
        return;
    }
    list.has_thread = true;
    drop(list);
    if let Err(error) = thread::spawn("kvmem-free", free_all) {
        log!(
            Warn,
            "start a thread: {error}; memory is freed at the next call that frees or needs memory of a busy GPU"
        );
        self::list().has_thread = false;
    }
}

/// Frees all of them, each when its work has ended.
fn free_all() {
    let mut pause = POLL;
    loop {
        std::thread::sleep(pause);
        pause = (2 * pause).min(LONGEST_POLL);
        if let Err(panic) = guarded(sweep) {
            log!(Error, "free memory of a GPU: {panic}");
        }
        let mut list = list();
        if list.waiting.is_empty() {
            list.has_thread = false;
            return;
        }
    }
}

/// Frees those whose work has ended. Each is freed before the next is asked: work that begins meanwhile would be waited for.
fn sweep() {
    let count = list().waiting.len();
    for _ in 0..count {
        // Asked and freed without the lock, which every thread that frees memory needs.
        let Some(mut object) = take() else { return };
        let _taken = Taken;
        if object.is_over() {
            drop(object);
            list().freed += 1;
        } else {
            keep(object);
        }
    }
}

fn take() -> Option<Waiting> {
    let mut list = list();
    let object = list.waiting.pop_front()?;
    list.taken += 1;
    Some(object)
}

/// Allocates. If there is no memory, frees what waits for work of a device, and tries again.
pub fn allocate<T>(allocate: impl Fn() -> Result<T>) -> Result<T> {
    let freed = list().freed;
    let failed = match allocate() {
        Err(error) if error.status() == Status::OutOfMemory => error,
        other => return other,
    };
    let until = Instant::now() + PATIENCE;
    sweep();
    // Another thread may be freeing an object now.
    while !list().is_idle() && Instant::now() < until {
        std::thread::sleep(POLL);
        sweep();
    }
    if list().freed != freed { allocate() } else { Err(failed) }
}
