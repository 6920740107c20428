// SPDX-License-Identifier: Apache-2.0
//! Objects that the driver frees only when all work of their context has ended (see `quiet`). They are freed at once if it has, or
//! does within [`PATIENCE`] while no other object waits for it. Otherwise a thread frees them when the device has finished the work:
//! one thread for each device that has such objects. Before that they hold their memory and the context. If the driver does not
//! report whether it has, the thread frees them at once, and may wait in the driver, for which no caller waits longer than [`PATIENCE`].

use std::any::Any;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Context;
use super::ending::{means_exit, means_lost};
use super::exit::Unattended;
use super::quiet::{ContextWork, PATIENCE, Waited, Work};
use crate::base::leak::Leaked;
use crate::base::{
    Condvar, Error, Keyed, Mutex, MutexGuard, PerProcess, Result, Status, WorkThread, guarded, leak, log,
    thread,
};

/// Between two looks of a thread: as long as the work has run, within these limits.
const MIN_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(100);
/// How long an engine may submit work without a pause, each part of which ends soon, before an object is freed nevertheless: the
/// driver then waits for the work of the last milliseconds.
const FED: Duration = Duration::from_secs(1);
/// How long an allocation waits for a thread that looks, or that frees an object. It takes longer only for large memory.
const ALLOCATION: Duration = Duration::from_secs(1);

/// An object of a context whose end may wait for the work of the context.
pub struct Deferred<T: Send + Sync + 'static> {
    object: Arc<T>,
    context: Arc<Context>,
    bytes: u64,
    /// Dropped after the object.
    freed_by: FreedBy,
}

/// The thread that frees an object without knowing whether it waits: dropping this gives it a short time.
struct FreedBy(Option<Arc<Queue>>);

impl Drop for FreedBy {
    fn drop(&mut self) {
        self.0.iter().for_each(|queue| queue.await_empty(PATIENCE));
    }
}

impl<T: Send + Sync> Deferred<T> {
    /// An object that has `bytes` of memory of the device, or page-locked.
    pub fn new(context: &Arc<Context>, object: T, bytes: u64) -> Self {
        Self { object: Arc::new(object), context: context.clone(), bytes, freed_by: FreedBy(None) }
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
        let work = ContextWork::shared(&self.context);
        let queue = queues().get(self.context.device().ordinal());
        // Of many objects beside work, the first waits for the end of the work.
        let patience = if queue.is_empty() { PATIENCE } else { Duration::ZERO };
        let wait = || wait(&work, &self.context, patience);
        // Tried twice, because what is kept is freed later.
        let waited = match wait().or_else(|_| wait()) {
            Ok(Waited::Idle) => return,
            Err(error) if means_lost(&error) => return,
            waited => waited,
        };
        Queue::keep(
            &queue,
            Waiting { object: self.object.clone(), context: self.context.clone(), work, bytes: self.bytes },
        );
        if matches!(waited, Ok(Waited::Unknown)) && !patience.is_zero() {
            self.freed_by = FreedBy(Some(queue));
        }
    }
}

/// Waits for the end of all work of the context, up to `patience`.
fn wait(work: &ContextWork, context: &Arc<Context>, patience: Duration) -> Result<Waited> {
    if work.is_known_to_be_long() {
        return Ok(Waited::Busy);
    }
    let until = Instant::now() + patience;
    work.wait(context, || until)
}

struct Waiting {
    object: Arc<dyn Any + Send + Sync>,
    context: Arc<Context>,
    work: Arc<ContextWork>,
    bytes: u64,
}

impl Waiting {
    /// Waits until the thread that destroys the object holds it no more: it must not be the one that frees it.
    fn await_last_holder(&self) {
        while Arc::strong_count(&self.object) > 1 {
            std::thread::sleep(Duration::from_micros(10));
        }
    }
}

/// Objects that were destroyed, and are kept until their device has finished its work, and those that runs have left whose end can't
/// be detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub objects: u64,
    pub bytes: u64,
}

impl Kept {
    /// Those of a device now.
    pub fn of_device(ordinal: i32) -> Self {
        let queue = queues().get(ordinal);
        let state = queue.state();
        let waiting = state.waiting.iter().map(|waiting| waiting.bytes);
        let leaked = leak::of_device(ordinal);
        let mut kept = Self {
            objects: state.waiting.len() as u64 + leaked.objects,
            bytes: waiting.sum::<u64>() + leaked.bytes,
        };
        if let Some(bytes) = state.freeing {
            kept.objects += 1;
            kept.bytes += bytes;
        }
        kept
    }
}

/// The objects of one device that wait.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    thread: WorkThread,
    /// The bytes of the object that the thread frees.
    freeing: Option<u64>,
    freed: u64,
    /// When the thread last looked for the end of work.
    looked: Option<Instant>,
    /// How many allocations wait for memory.
    allocations: usize,
    /// Why the driver does not report whether the work has ended.
    failure: Option<Error>,
}

impl State {
    /// How long an allocation still waits that began at a time. The thread looks first, and then work may end.
    fn left(&self, begun: Instant) -> Option<Duration> {
        if self.waiting.is_empty() && self.freeing.is_none() {
            return None;
        }
        let has_looked = self.looked.is_some_and(|looked| looked > begun);
        let patience = if has_looked && self.freeing.is_none() { PATIENCE } else { ALLOCATION };
        patience.checked_sub(begun.elapsed())
    }
}

/// Per process, because a forked child must not free them.
fn queues() -> &'static Keyed<i32, Queue> {
    static QUEUES: PerProcess<Keyed<i32, Queue>> = PerProcess::new();
    QUEUES.get(Keyed::default)
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn is_empty(&self) -> bool {
        self.state().waiting.is_empty()
    }

    fn keep(this: &Arc<Self>, object: Waiting) {
        log!(
            Debug,
            "an object of device {} is freed when its work has ended",
            object.context.device().ordinal()
        );
        this.state().waiting.push_back(object);
        Self::ensure_thread(this);
    }

    /// Starts the thread if objects wait without one.
    fn ensure_thread(this: &Arc<Self>) {
        let mut state = this.state();
        if state.waiting.is_empty() {
            return;
        }
        let queue = this.clone();
        let started = state.thread.ensure(|| thread::spawn("kvmem-free", move || queue.free_all()));
        drop(state);
        if let Err(error) = started {
            log!(
                Warn,
                "{error}; memory is freed after the next call that frees or needs memory of a busy GPU"
            );
        }
    }

    /// Frees all of them, each when the work of its context has ended.
    fn free_all(&self) {
        while let Some((context, work)) = self.first() {
            if !self.wait(&context, &work) {
                return;
            }
            drop((context, work));
            let Ok(_ends_before_the_driver) = Unattended::begin() else { return };
            // Freed without the lock, which every thread that frees memory needs.
            let mut state = self.state();
            let object = state.waiting.pop_front();
            state.freeing = object.as_ref().map(|object| object.bytes);
            drop(state);
            object.iter().for_each(Waiting::await_last_holder);
            if let Err(panic) = guarded(|| drop(object)) {
                log!(Error, "free memory of a GPU: {panic}");
            }
            let mut state = self.state();
            state.freeing = None;
            state.freed += 1;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// The context of the first object, which stays first. Without one, the thread ends.
    fn first(&self) -> Option<(Arc<Context>, Arc<ContextWork>)> {
        let mut state = self.state();
        let first = state.waiting.front().map(|first| (first.context.clone(), first.work.clone()));
        state.thread.goes_on(first.is_some());
        first
    }

    /// Waits until the device has finished the work of the context. Work that was submitted after the end of the object counts,
    /// too: the driver would wait for it. Returns false if the process exits, which frees everything by itself.
    fn wait(&self, context: &Arc<Context>, work: &ContextWork) -> bool {
        let mut fed = None;
        loop {
            let begun = Instant::now();
            let Ok(unattended) = Unattended::begin() else { return false };
            let looked = guarded(|| work.look(context)).and_then(|looked| looked);
            drop(unattended);
            let pause = match looked {
                Ok(Work::Finished | Work::Unknown) => return true,
                Ok(Work::Running(since)) if since.elapsed() <= PATIENCE => {
                    if fed.get_or_insert(begun).elapsed() > FED && since >= begun {
                        return true;
                    }
                    since.elapsed()
                }
                Ok(Work::Running(since)) => {
                    fed = None;
                    since.elapsed()
                }
                Ok(Work::Captured) => MAX_PAUSE,
                Err(error) if means_exit(&error) => return false,
                // A lost context has no work. After another failure, such as one for lack of memory, it is looked up again.
                Err(error) if means_lost(&error) => return true,
                Err(error) => {
                    self.note_failure(error);
                    self.pause(begun, MAX_PAUSE);
                    continue;
                }
            };
            self.state().failure = None;
            self.pause(begun, pause.clamp(MIN_PAUSE, MAX_PAUSE));
        }
    }

    /// Notes that the driver does not report whether work has ended. Freeing could wait for any time, so the objects are kept.
    fn note_failure(&self, error: Error) {
        let mut state = self.state();
        let waiting = state.waiting.len();
        let is_new = state.failure.replace(error.clone()).is_none();
        drop(state);
        if is_new {
            log!(
                Warn,
                "{error}; {waiting} objects that were destroyed keep their memory until the driver reports that their device has \
                 finished its work"
            );
        }
    }

    /// What its objects mean for an allocation that has failed.
    fn explained(&self, error: Error) -> Error {
        let state = self.state();
        match (state.waiting.len(), &state.failure) {
            (0, _) => error,
            (number, None) => error.followed_by(format_args!(
                "{number} objects that were destroyed keep their memory until their device has finished its work"
            )),
            (number, Some(failure)) => error.followed_by(format_args!(
                "{number} objects that were destroyed keep their memory, because the driver does not report whether their device has \
                 finished its work: {failure}"
            )),
        }
    }

    /// Lets a time pass after a look, or less if an allocation waits for memory.
    fn pause(&self, looked: Instant, pause: Duration) {
        let mut state = self.state();
        state.looked = Some(looked);
        self.changed.notify_all();
        loop {
            let pause = if state.allocations > 0 { MIN_PAUSE } else { pause };
            let Some(left) = (looked + pause).checked_duration_since(Instant::now()) else { return };
            state = self.changed.wait_timeout(state, left).0;
        }
    }

    /// Waits until its thread has freed all objects, for a limited time.
    fn await_empty(&self, patience: Duration) {
        let end = Instant::now() + patience;
        let has_objects = |state: &mut State| {
            state.thread.is_running() && (state.freeing.is_some() || !state.waiting.is_empty())
        };
        drop(self.changed.wait_while_until(self.state(), Some(end), has_objects));
    }

    /// Waits until its objects have been freed, or work prevents that. Returns whether any was freed.
    fn hurry(this: &Arc<Self>) -> bool {
        let begun = Instant::now();
        Self::ensure_thread(this);
        let mut state = this.state();
        let freed = state.freed;
        state.allocations += 1;
        this.changed.notify_all();
        while state.thread.is_running()
            && let Some(left) = state.left(begun)
        {
            state = this.changed.wait_timeout(state, left).0;
        }
        state.allocations -= 1;
        state.freed != freed
    }
}

/// Allocates memory of a device, or of the host. If there is none, waits for what is about to be freed, and tries again.
pub fn allocate<T>(ordinal: Option<i32>, allocate: impl Fn() -> Result<T>) -> Result<T> {
    let failed = match allocate() {
        Err(error) if error.status() == Status::OutOfMemory => error,
        other => return other,
    };
    let queues = ordinal.map_or_else(|| queues().all(), |ordinal| vec![queues().get(ordinal)]);
    // Each of them, so that all look.
    let freed = queues.iter().filter(|queue| Queue::hurry(queue)).count();
    let outcome = if freed > 0 { allocate() } else { Err(failed) };
    outcome.map_err(|error| {
        let explained = queues.iter().fold(error, |error, queue| queue.explained(error));
        match ordinal.map(leak::of_device).unwrap_or_default() {
            Leaked { objects: 0, .. } => explained,
            Leaked { objects, bytes } => explained.followed_by(format_args!(
                "{objects} objects with {bytes} bytes are kept until the process ends, because runs that use them have no end that can \
                 be detected"
            )),
        }
    })
}
