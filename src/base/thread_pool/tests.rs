// SPDX-License-Identifier: Apache-2.0
//! Pools whose threads wait, panic, or cannot be started.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::base::error::{Error, Status};
use crate::waiting::until;

const PATIENCE: Duration = Duration::from_secs(20);

fn pool(most: usize) -> Arc<Pool> {
    Pool::new("kvmem-test", most)
}

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

/// Occupies all threads of a pool until the sender is dropped, so that later work stays in its queue.
pub fn occupy(pool: &Arc<Pool>) -> Sender<()> {
    let (go, gate) = channel::<()>();
    let gate = Mutex::new(gate);
    let wait = move || {
        let _ = gate.lock().recv();
    };
    pool.run(&does(wait), 4 * MAX_THREADS);
    go
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
    let releases =
        |on: &FileSystems| Pool::releases(&Blockers { file_systems: on.clone(), ..Blockers::default() });
    type PoolOf<'a> = &'a dyn Fn(&FileSystems) -> Arc<Pool>;
    for pool in [&Pool::files as PoolOf, &Pool::checks, &releases] {
        for on in [&hung, &both] {
            pool(on).run(&call, 4 * MAX_THREADS);
        }
        let (sender, receiver) = channel();
        pool(&other).run_once(move |_| sender.send(()).unwrap());
        receiver.recv_timeout(PATIENCE).unwrap();
    }
    assert!(Arc::ptr_eq(&Pool::files(&hung), &Pool::files(&Arc::from([(250, 1)]))), "one for each");
    drop(go);
}

#[test]
fn frees_that_block_on_a_device_take_no_threads_of_others() {
    let (free, begun, go) = gated();
    for busy in [Blockers::device(250), Blockers { devices: [250, 251].into(), ..Blockers::default() }] {
        Pool::releases(&busy).run(&free, 4 * MAX_THREADS);
        (0..MAX_THREADS).for_each(|_| begun.recv_timeout(PATIENCE).unwrap());
    }
    for idle in [Blockers::device(251), Blockers::default()] {
        let (sender, receiver) = channel();
        Pool::releases(&idle).run_once(move |_| sender.send(()).unwrap());
        receiver.recv_timeout(PATIENCE).unwrap();
    }
    drop(go);
}

#[test]
fn a_pool_of_file_systems_is_freed_with_its_last_thread() {
    let gone: FileSystems = Arc::from([(250, 9)]);
    let (work, begun, go) = gated();
    let pool = Pool::files(&gone);
    pool.run(&work, 1);
    begun.recv_timeout(PATIENCE).unwrap();
    let freed = Arc::downgrade(&pool);
    drop(pool);
    assert!(freed.upgrade().is_some_and(|pool| Arc::ptr_eq(&pool, &Pool::files(&gone))), "a thread has work");
    drop(go);
    until("it is not freed", || freed.strong_count() == 0);
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
fn pool_that_fails(start_thread: StartThread) -> Arc<Pool> {
    Arc::new(Pool { start_thread, ..Pool::unshared("kvmem-test", MAX_THREADS) })
}

fn start_none(_: &'static str, _: Box<dyn FnOnce() + Send>) -> Result<()> {
    Err(Error::new(Status::OutOfMemory, "no thread for a test"))
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
    let own = pool.clone();
    let work = does(move || {
        let sender = sender.lock().clone();
        own.run_once(move |thread| sender.send(thread.is_ok()).unwrap());
    });
    pool.run(&work, 1);
    assert!(receiver.recv_timeout(PATIENCE).unwrap());
}

#[test]
fn without_threads_the_caller_runs_work_once_and_it_is_reported() {
    let (sender, receiver) = channel();
    pool_that_fails(start_none).run_once(move |thread| sender.send(thread.is_ok()).unwrap());
    assert!(receiver.iter().eq([false]));
}

/// Every second start of a thread fails, so the pool often has no thread.
#[test]
fn work_for_one_thread_is_done_once_while_others_start_threads() {
    fn start_some(name: &'static str, body: Box<dyn FnOnce() + Send>) -> Result<()> {
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
                let (done, pool) = (done.clone(), pool.clone());
                scope.spawn(move || {
                    let work = does(move || {
                        done[caller].fetch_add(1, Ordering::Relaxed);
                    });
                    pool.run(&work, 1);
                });
            }
        });
        let is_done = |times: &AtomicUsize| times.load(Ordering::Relaxed) > 0;
        until("some work is not done", || done.iter().all(is_done));
        assert!(done.iter().all(|times| times.load(Ordering::Relaxed) == 1));
    }
}

#[test]
fn a_service_fails_if_no_thread_can_be_started() {
    fn start_one(name: &'static str, body: Box<dyn FnOnce() + Send>) -> Result<()> {
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
    pool.run_alone(other).unwrap_err().assert_is(Status::OutOfMemory, "");
    drop(go);
    assert!(other_begun.recv_timeout(PATIENCE).is_err(), "it failed, and must not run later");
}
