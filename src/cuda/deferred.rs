// SPDX-License-Identifier: Apache-2.0
//! Objects that the driver frees only when all work of their context has ended (see `quiet`). Dropped beside work that runs for
//! long, they are kept, and a thread frees them when the device has finished it. Until then they hold their memory and the
//! context.
#![forbid(unsafe_code)]

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Context;
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
        // After a failure the context is lost, or the question cannot be asked: then freeing reports it.
        if let Ok(work @ Work::Running(_)) = Work::new(&self.context) {
            keep(Waiting { work, _object: self.object.clone(), context: self.context.clone() });
        }
    }
}

struct Waiting {
    /// What it waits for.
    work: Work,
    _object: Arc<dyn Any + Send + Sync>,
    context: Arc<Context>,
}

impl Waiting {
    /// Whether it can be freed without waiting. Work that was submitted after its end counts, too.
    fn is_over(&mut self) -> bool {
        if let Work::Running(event) = &self.work
            && matches!(event.is_done(), Ok(false))
        {
            return false;
        }
        self.work = Work::new(&self.context).unwrap_or(Work::Finished);
        matches!(self.work, Work::Finished)
    }
}

#[derive(Default)]
struct List {
    waiting: Vec<Waiting>,
    has_thread: bool,
}

/// Per process, because a forked child must not free them.
fn list() -> MutexGuard<'static, List> {
    static LIST: PerProcess<Mutex<List>> = PerProcess::new();
    LIST.get(Mutex::default).lock()
}

fn keep(object: Waiting) {
    let mut list = list();
    list.waiting.push(object);
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

/// Frees those whose work has ended. Returns whether there were any.
fn sweep() -> bool {
    // Asked and freed without the lock, which every thread that frees memory needs.
    let all = std::mem::take(&mut list().waiting);
    let (over, left): (Vec<_>, Vec<_>) =
        all.into_iter().map(|mut each| (each.is_over(), each)).partition(|(is_over, _)| *is_over);
    left.into_iter().for_each(|(_, each)| keep(each));
    !over.is_empty()
}

/// Allocates. If there is no memory, frees what waits for work of a device, and tries again.
pub fn allocate<T>(allocate: impl Fn() -> Result<T>) -> Result<T> {
    let failed = match allocate() {
        Err(error) if error.status() == Status::OutOfMemory => error,
        other => return other,
    };
    let until = Instant::now() + PATIENCE;
    let mut has_freed = sweep();
    while !list().waiting.is_empty() && Instant::now() < until {
        std::thread::sleep(POLL);
        has_freed |= sweep();
    }
    if has_freed { allocate() } else { Err(failed) }
}
