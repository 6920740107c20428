// SPDX-License-Identifier: Apache-2.0
//! Threads that copy, that read and write files, or that watch work in flight. They start when there is work, and end after
//! some seconds without work, so an idle process has none.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::base::error::Result;
use crate::base::file_systems::{Blockers, FileSystems};
use crate::base::guarded::guarded;
use crate::base::keyed::Keyed;
use crate::base::log::log;
use crate::base::process::PerProcess;
use crate::base::shared_objects::SharedObjects;
use crate::base::sync::{Condvar, Mutex, MutexGuard};
use crate::base::thread;

/// Work that several threads share.
pub trait Shared: Send + Sync {
    /// Does a part of the work, or returns at once if none is left. A panic is logged and ends this call, not the thread.
    /// The implementation must report it to threads that wait for the work.
    fn run(&self);
}

/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(5);
/// The maximum number of threads that copy: memory bandwidth limits them.
const MAX_THREADS: usize = 16;

type StartThread = fn(&'static str, Box<dyn FnOnce() + Send>) -> Result<()>;

/// A pool for each set of what its work may wait for, while it is in use. Its threads hold it.
type Pools<K> = PerProcess<SharedObjects<K, Pool>>;

/// A pool of threads of this process.
pub struct Pool {
    name: &'static str,
    most: usize,
    start_thread: StartThread,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arc<dyn Shared>>,
    threads: usize,
    idle: usize,
}

impl Pool {
    pub fn get() -> &'static Arc<Self> {
        static COPIES: PerProcess<Arc<Pool>> = PerProcess::new();
        COPIES.get(|| Self::new("kvmem-copy", MAX_THREADS))
    }

    /// The threads that read and write files on these file systems. They are separate, because a slow disk must not delay copies,
    /// and a file system that does not respond no others.
    pub fn files(on: &FileSystems) -> Arc<Self> {
        static FILES: Pools<FileSystems> = PerProcess::new();
        Self::keyed(&FILES, "kvmem-file", on)
    }

    /// The threads that compare moved blocks. They are separate, because they wait for copies and files.
    pub fn checks(on: &FileSystems) -> Arc<Self> {
        static CHECKS: Pools<FileSystems> = PerProcess::new();
        Self::keyed(&CHECKS, "kvmem-check", on)
    }

    /// The threads that make driver calls for a device, which may block.
    pub fn starts(device: i32) -> Arc<Self> {
        static STARTS: PerProcess<Keyed<i32, Pool>> = PerProcess::new();
        STARTS.get(Keyed::default).get_or(device, usize::MAX, || Self::unshared("kvmem-start", MAX_THREADS))
    }

    /// The threads that watch work of the driver or the kernel. Each service has its own thread ([`Self::run_alone`]), so
    /// that copies, files and other services do not delay the report of an end.
    pub fn services() -> &'static Arc<Self> {
        static SERVICES: PerProcess<Arc<Pool>> = PerProcess::new();
        SERVICES.get(|| Self::new("kvmem-serve", usize::MAX))
    }

    /// The threads that free objects which may wait for these devices and file systems.
    pub fn releases(blockers: &Blockers) -> Arc<Self> {
        static RELEASES: Pools<Blockers> = PerProcess::new();
        Self::keyed(&RELEASES, "kvmem-free", blockers)
    }

    fn keyed<K: Clone + Ord + Send + Sync>(pools: &Pools<K>, name: &'static str, key: &K) -> Arc<Self> {
        let make = || Ok(Self::unshared(name, MAX_THREADS));
        let pool = pools.get(SharedObjects::default).get(key.clone(), |_| true, None, make);
        pool.unwrap_or_else(|_| Self::new(name, MAX_THREADS))
    }

    fn new(name: &'static str, most: usize) -> Arc<Self> {
        Arc::new(Self::unshared(name, most))
    }

    fn unshared(name: &'static str, most: usize) -> Self {
        Self { name, most, start_thread, state: Mutex::default(), work: Condvar::new() }
    }

    /// The useful number of threads, including the calling thread.
    pub fn parallelism() -> usize {
        // Queried once: std reads the files of control groups each time, which takes longer than waking a thread.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        match COUNT.load(Ordering::Relaxed) {
            0 => {
                let count =
                    std::thread::available_parallelism().map_or(1, |count| count.get().min(MAX_THREADS));
                COUNT.store(count, Ordering::Relaxed);
                count
            }
            known => known,
        }
    }

    /// Runs `shared` on up to `threads` threads. If there is no thread and none can be started, the calling thread runs it.
    pub fn run(self: &Arc<Self>, shared: &Arc<dyn Shared>, threads: usize) {
        if let Err(error) = self.pass(shared, threads) {
            log!(Warn, "{error}; the calling thread does the work");
            run_guarded(|| shared.run());
        }
    }

    /// Passes `shared` to up to so many threads of the pool. Fails if there is none and none can be started.
    pub fn pass(self: &Arc<Self>, shared: &Arc<dyn Shared>, threads: usize) -> Result<()> {
        let mut state = self.lock();
        state.queue.extend(std::iter::repeat_n(shared.clone(), threads));
        let wanted =
            state.queue.len().saturating_sub(state.idle).min(self.most.saturating_sub(state.threads));
        let failure = (0..wanted).try_for_each(|_| self.add_thread(&mut state)).err();
        let is_callers = state.threads == 0;
        if is_callers {
            // Under the lock: otherwise a thread that another caller starts could run this work concurrently.
            state.queue.retain(|queued| !Arc::ptr_eq(queued, shared));
        }
        drop(state);
        // Each thread that takes work wakes the next. Waking a thread takes some microseconds, so waking all of them here
        // would delay the caller.
        self.work.notify_one();
        match failure {
            Some(error) if is_callers => return Err(error),
            Some(error) => log!(Warn, "{error}; fewer threads do the work"),
            None => {}
        }
        Ok(())
    }

    /// Runs `work` once, on a thread of the pool. If there is none and none can be started, runs it on the calling thread before
    /// this returns, and passes it the error. The caller may be a thread of the pool: then it may run the work itself, after what
    /// it runs now.
    pub fn run_once(self: &Arc<Self>, work: impl FnOnce(Result<()>) + Send + 'static) {
        let once = Once::new(work);
        if let Err(none) = self.pass(&(once.clone() as Arc<dyn Shared>), 1) {
            log!(Warn, "{none}; the calling thread does the work");
            run_guarded(|| once.run_with(Err(none)));
        }
    }

    /// Runs `shared` on a thread that runs nothing else until it returns. Fails if no thread is idle and none can be
    /// started: waiting for another thread could take for ever, because services run while they have work. An idle thread is woken
    /// when the result is dropped.
    pub fn run_alone(self: &Arc<Self>, shared: Arc<dyn Shared>) -> Result<WakeUp<'_>> {
        let mut state = self.lock();
        // Each idle thread takes one entry of the queue.
        if state.queue.len() >= state.idle {
            self.add_thread(&mut state)?;
        }
        state.queue.push_back(shared);
        Ok(WakeUp(&self.work))
    }

    /// Runs `work` once, as [`Self::run_alone`].
    pub fn run_once_alone(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) -> Result<()> {
        self.run_alone(Once::new(|_| work())).map(drop)
    }

    fn add_thread(self: &Arc<Self>, state: &mut State) -> Result<()> {
        let pool = self.clone();
        (self.start_thread)(self.name, Box::new(move || pool.serve()))?;
        state.threads += 1;
        Ok(())
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            while let Some(shared) = state.queue.pop_front() {
                if !state.queue.is_empty() && state.idle > 0 {
                    self.work.notify_one();
                }
                drop(state);
                run_guarded(|| shared.run());
                drop(shared);
                state = self.lock();
            }
            state.idle += 1;
            let (next, timed_out) = self.work.wait_timeout(state, IDLE);
            state = next;
            state.idle -= 1;
            if timed_out && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Wakes an idle thread of a pool when it is dropped.
#[derive(Debug)]
pub struct WakeUp<'a>(&'a Condvar);

impl Drop for WakeUp<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

type OnceWork = Box<dyn FnOnce(Result<()>) + Send>;

/// Work that is run once, by a thread of a pool, or with the error that there is none.
pub struct Once(Mutex<Option<OnceWork>>);

impl Once {
    pub fn new(work: impl FnOnce(Result<()>) + Send + 'static) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Box::new(work)))))
    }

    pub fn run_with(&self, thread: Result<()>) {
        let work = self.0.lock().take();
        if let Some(work) = work {
            work(thread);
        }
    }
}

impl Shared for Once {
    fn run(&self) {
        self.run_with(Ok(()));
    }
}

fn start_thread(name: &'static str, body: Box<dyn FnOnce() + Send>) -> Result<()> {
    thread::spawn(name, body).map(drop)
}

fn run_guarded(work: impl FnOnce()) {
    if let Err(error) = guarded(work) {
        log!(Error, "panic on a thread of kvmem: {error}");
    }
}

#[cfg(test)]
pub mod tests;
