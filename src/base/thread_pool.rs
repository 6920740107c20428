// SPDX-License-Identifier: Apache-2.0
//! Threads that copy, that read and write files, or that watch work in flight. They start when there is work, and end after
//! some seconds without work, so an idle process has none.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use once_cell::sync::OnceCell;

use crate::base::error::{Error, Result, Status};
use crate::base::file_systems::FileSystems;
use crate::base::guarded::guarded;
use crate::base::keyed::Keyed;
use crate::base::log::log;
use crate::base::process::PerProcess;
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

/// Starts a thread with a name.
type StartThread = fn(&'static str, Box<dyn FnOnce() + Send>) -> std::io::Result<()>;

/// A pool for each set of file systems.
type PoolsOfFiles = PerProcess<Keyed<FileSystems, OnceCell<&'static Pool>>>;

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
    /// The threads that copy.
    pub fn get() -> &'static Self {
        static COPIES: PerProcess<Pool> = PerProcess::new();
        COPIES.get(|| Self::new("kvmem-copy", MAX_THREADS))
    }

    /// The threads that read and write files on these file systems. They are separate, because a slow disk must not delay copies,
    /// and a file system that does not respond no others.
    pub fn files(on: &FileSystems) -> &'static Self {
        static FILES: PoolsOfFiles = PerProcess::new();
        Self::of_files(&FILES, "kvmem-file", on)
    }

    /// The threads that compare moved blocks. They are separate, because they wait for copies and files.
    pub fn checks(on: &FileSystems) -> &'static Self {
        static CHECKS: PoolsOfFiles = PerProcess::new();
        Self::of_files(&CHECKS, "kvmem-check", on)
    }

    /// The threads that make driver calls which may block.
    pub fn starts() -> &'static Self {
        static STARTS: PerProcess<Pool> = PerProcess::new();
        STARTS.get(|| Self::new("kvmem-start", MAX_THREADS))
    }

    /// The threads that watch work of the driver or the kernel. Each service has its own thread ([`Self::run_alone`]), so
    /// that copies, files and other services do not delay the report of an end.
    pub fn services() -> &'static Self {
        static SERVICES: PerProcess<Pool> = PerProcess::new();
        SERVICES.get(|| Self::new("kvmem-serve", usize::MAX))
    }

    /// The threads that free objects, which may block: files of these file systems among them.
    pub fn releases(on: &FileSystems) -> &'static Self {
        static RELEASES: PoolsOfFiles = PerProcess::new();
        Self::of_files(&RELEASES, "kvmem-free", on)
    }

    fn of_files(pools: &'static PoolsOfFiles, name: &'static str, on: &FileSystems) -> &'static Self {
        // Never freed: its threads may outlive all work.
        let make = || &*Box::leak(Box::new(Self::new(name, MAX_THREADS)));
        pools.get(Keyed::default).get(on.clone()).get_or_init(make)
    }

    fn new(name: &'static str, most: usize) -> Self {
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
    pub fn run(&'static self, shared: &Arc<dyn Shared>, threads: usize) {
        if !self.enqueue(shared, threads) {
            run_guarded(shared.as_ref());
        }
    }

    /// Passes `shared` to a thread of the pool, unless there is none and none can be started. Returns whether there is
    /// one.
    pub fn pass(&'static self, shared: &Arc<dyn Shared>) -> bool {
        self.enqueue(shared, 1)
    }

    /// Passes `shared` to threads of the pool. Returns whether there is one.
    fn enqueue(&'static self, shared: &Arc<dyn Shared>, threads: usize) -> bool {
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
        if let Some(error) = failure {
            log!(Warn, "{error}; fewer threads do the work");
        }
        !is_callers
    }

    /// Runs `work` once, on a thread of the pool, and passes it true. If there is none and none can be started, runs it on
    /// the calling thread before this returns, and passes it false. The caller may be a thread of the pool: then it may run
    /// the work itself, after what it runs now.
    pub fn run_once(&'static self, work: impl FnOnce(bool) + Send + 'static) {
        let once = Arc::new(Once(Mutex::new(Some(Box::new(work)))));
        if !self.enqueue(&(once.clone() as Arc<dyn Shared>), 1)
            && let Err(error) = guarded(|| once.run_with(false))
        {
            log!(Error, "panic in work of kvmem: {error}");
        }
    }

    /// Runs `shared` on a thread that runs nothing else until it returns. Fails if no thread is idle and none can be
    /// started: waiting for another thread could take for ever, because services run while they have work.
    pub fn run_alone(&'static self, shared: Arc<dyn Shared>) -> Result<()> {
        let mut state = self.lock();
        // Each idle thread takes one entry of the queue.
        if state.queue.len() >= state.idle {
            self.add_thread(&mut state)?;
        }
        state.queue.push_back(shared);
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// Runs `work` once, as [`Self::run_alone`].
    pub fn run_once_alone(&'static self, work: impl FnOnce() + Send + 'static) -> Result<()> {
        self.run_alone(Arc::new(Once(Mutex::new(Some(Box::new(|_| work()))))))
    }

    fn add_thread(&'static self, state: &mut State) -> Result<()> {
        (self.start_thread)(self.name, Box::new(|| self.serve())).map_err(|error| {
            Error::new(Status::OutOfMemory, format!("start a thread of kvmem ({}): {error}", self.name))
        })?;
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
                run_guarded(shared.as_ref());
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

type OnceWork = Box<dyn FnOnce(bool) + Send>;

/// Work that is run once.
struct Once(Mutex<Option<OnceWork>>);

impl Once {
    fn run_with(&self, is_on_own_thread: bool) {
        let work = self.0.lock().take();
        if let Some(work) = work {
            work(is_on_own_thread);
        }
    }
}

impl Shared for Once {
    fn run(&self) {
        self.run_with(true);
    }
}

fn start_thread(name: &'static str, body: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
    thread::spawn(name, body).map(drop)
}

fn run_guarded(shared: &dyn Shared) {
    if let Err(error) = guarded(|| shared.run()) {
        log!(Error, "panic on a thread of kvmem: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn pool(most: usize) -> &'static Pool {
        Box::leak(Box::new(Pool::new("kvmem-test", most)))
    }

    /// Work that calls a closure.
    struct Does<F>(F);

    impl<F: Fn() + Send + Sync> Shared for Does<F> {
        fn run(&self) {
            (self.0)();
        }
    }

    fn does(work: impl Fn() + Send + Sync + 'static) -> Arc<dyn Shared> {
        Arc::new(Does(work))
    }

    /// Work that reports that it has begun, and then waits for the sender to be dropped.
    fn gated() -> (Arc<dyn Shared>, Receiver<()>, Sender<()>) {
        let (begun, seen) = channel();
        let (go, gone) = channel::<()>();
        let (begun, gone) = (Mutex::new(begun), Mutex::new(gone));
        let work = does(move || {
            begun.lock().send(()).unwrap();
            let _ = gone.lock().recv();
        });
        (work, seen, go)
    }

    #[test]
    fn a_service_does_not_wait_for_copies_and_files() {
        let (copy, _seen, go) = gated();
        Pool::get().run(&copy, 4 * MAX_THREADS);
        Pool::files(&Arc::default()).run(&copy, 4 * MAX_THREADS);
        let (sender, receiver) = channel();
        let sender = Mutex::new(sender);
        Pool::services().run_alone(does(move || sender.lock().send(()).unwrap())).unwrap();
        receiver.recv_timeout(PATIENCE).unwrap();
        drop(go);
    }

    #[test]
    fn a_file_system_that_does_not_respond_takes_no_threads_of_others() {
        let [hung, both, other]: [FileSystems; 3] =
            [&[(250, 1)][..], &[(250, 1), (250, 2)], &[(250, 2)]].map(Arc::from);
        let (call, _seen, go) = gated();
        let pools = [Pool::files, Pool::checks, Pool::releases];
        for pool in pools {
            for on in [&hung, &both] {
                pool(on).run(&call, 4 * MAX_THREADS);
            }
            let (sender, receiver) = channel();
            pool(&other).run_once(move |_| sender.send(()).unwrap());
            receiver.recv_timeout(PATIENCE).unwrap();
        }
        assert!(std::ptr::eq(Pool::files(&hung), Pool::files(&Arc::from([(250, 1)]))), "one for each");
        drop(go);
    }

    #[test]
    fn each_service_has_its_own_thread() {
        const MANY: usize = 3 * MAX_THREADS;
        let together = Arc::new(Barrier::new(MANY + 1));
        for _ in 0..MANY {
            let together = together.clone();
            let work = does(move || {
                together.wait();
            });
            Pool::services().run_alone(work).unwrap();
        }
        // Returns only when all of them run at the same time.
        together.wait();
    }

    #[test]
    fn a_panic_ends_the_work_and_not_the_thread() {
        let pool = pool(1);
        pool.run(&does(|| panic!("deliberate")), 1);
        let (work, seen, go) = gated();
        pool.run(&work, 1);
        seen.recv_timeout(PATIENCE).unwrap();
        drop(go);
        assert_eq!(pool.lock().threads, 1);
    }

    /// A pool that starts threads by `start_thread`.
    fn pool_that_fails(start_thread: StartThread) -> &'static Pool {
        Box::leak(Box::new(Pool { start_thread, ..Pool::new("kvmem-test", MAX_THREADS) }))
    }

    fn start_none(_: &'static str, _: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
        Err(std::io::ErrorKind::WouldBlock.into())
    }

    #[test]
    fn without_threads_the_caller_does_the_work_once() {
        let pool = pool_that_fails(start_none);
        let (sender, receiver) = channel();
        let sender = Mutex::new(sender);
        pool.run(&does(move || sender.lock().send(std::thread::current().id()).unwrap()), 3);
        assert!(receiver.iter().eq([std::thread::current().id()]));
        assert!(pool.lock().queue.is_empty());
    }

    /// The only thread passes work to its own pool, and runs it later.
    #[test]
    fn work_that_a_thread_of_the_pool_passes_on_runs_on_a_thread_of_the_pool() {
        let pool = pool(1);
        let (sender, receiver) = channel();
        let sender = Mutex::new(sender);
        let work = does(move || {
            let sender = sender.lock().clone();
            pool.run_once(move |is_on_own_thread| sender.send(is_on_own_thread).unwrap());
        });
        pool.run(&work, 1);
        assert!(receiver.recv_timeout(PATIENCE).unwrap());
    }

    #[test]
    fn without_threads_the_caller_runs_work_once_and_it_is_reported() {
        let (sender, receiver) = channel();
        pool_that_fails(start_none).run_once(move |is_on_own_thread| sender.send(is_on_own_thread).unwrap());
        assert!(receiver.iter().eq([false]));
    }

    /// Every second start of a thread fails, so the pool often has no thread.
    #[test]
    fn work_for_one_thread_is_done_once_while_others_start_threads() {
        fn start_some(name: &'static str, body: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
            static STARTS: AtomicUsize = AtomicUsize::new(0);
            match STARTS.fetch_add(1, Ordering::Relaxed) % 2 {
                0 => {
                    // Meanwhile the other callers block on the lock.
                    (0..20).for_each(|_| std::thread::yield_now());
                    start_none(name, body)
                }
                _ => start_thread(name, body),
            }
        }
        const ROUNDS: usize = 300;
        for _ in 0..ROUNDS {
            let pool = pool_that_fails(start_some);
            let done: Arc<Vec<_>> = Arc::new((0..8).map(|_| AtomicUsize::new(0)).collect());
            std::thread::scope(|scope| {
                for caller in 0..done.len() {
                    let done = done.clone();
                    scope.spawn(move || {
                        let work = does(move || {
                            done[caller].fetch_add(1, Ordering::Relaxed);
                        });
                        pool.run(&work, 1);
                    });
                }
            });
            while done.iter().any(|times| times.load(Ordering::Relaxed) == 0) {
                std::thread::yield_now();
            }
            assert!(done.iter().all(|times| times.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn a_service_fails_if_no_thread_can_be_started() {
        fn start_one(name: &'static str, body: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
            static STARTS: AtomicUsize = AtomicUsize::new(0);
            match STARTS.fetch_add(1, Ordering::Relaxed) {
                0 => start_thread(name, body),
                _ => start_none(name, body),
            }
        }
        let pool = pool_that_fails(start_one);
        let (endless, begun, go) = gated();
        pool.run_alone(endless).unwrap();
        begun.recv_timeout(PATIENCE).unwrap();
        let (other, other_begun, _other_go) = gated();
        let error = pool.run_alone(other).unwrap_err();
        assert_eq!(error.status(), Status::OutOfMemory);
        drop(go);
        assert!(other_begun.recv_timeout(PATIENCE).is_err(), "it failed, and must not run later");
    }
}
