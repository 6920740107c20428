// SPDX-License-Identifier: Apache-2.0
//! Threads that copy, read and write files, or look after what is under way. They start when there is work for them and
//! end when there was none for a while, so that a process that moves nothing has none.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::guarded::guarded;
use crate::log::log;
use crate::process::PerProcess;

/// Work that several threads can do together.
pub trait Shared: Send + Sync {
    /// Does a share of it, or returns at once when nothing is left to begin. A panic is logged and ends the share, not
    /// the thread: whoever waits for the work must hear of it from the work itself.
    fn run(&self);
}

/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(5);
/// More threads than this gain nothing: memory is the limit.
const MOST_THREADS: usize = 16;

/// Some threads of this process.
pub struct Pool {
    name: &'static str,
    most: usize,
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
    /// The threads of this process that copy.
    pub fn get() -> &'static Self {
        static COPIES: PerProcess<Pool> = PerProcess::new();
        COPIES.get(|| Self::new("kvmem-copy", MOST_THREADS))
    }

    /// Those that read and write files. They are others: a slow disk must not keep a copy waiting.
    pub fn files() -> &'static Self {
        static FILES: PerProcess<Pool> = PerProcess::new();
        FILES.get(|| Self::new("kvmem-file", MOST_THREADS))
    }

    /// Those that compare what was moved. They wait for copies and files, which never wait for them.
    pub fn checks() -> &'static Self {
        static CHECKS: PerProcess<Pool> = PerProcess::new();
        CHECKS.get(|| Self::new("kvmem-check", MOST_THREADS))
    }

    /// Those that hand a driver what it takes a while to accept.
    pub fn starts() -> &'static Self {
        static STARTS: PerProcess<Pool> = PerProcess::new();
        STARTS.get(|| Self::new("kvmem-start", MOST_THREADS))
    }

    /// Those that look after what is under way at a driver or the kernel, as long as anything is. Each has a thread of
    /// its own, so that no end is told late because copies, files or other ends take their time.
    pub fn services() -> &'static Self {
        static SERVICES: PerProcess<Pool> = PerProcess::new();
        SERVICES.get(|| Self::new("kvmem-serve", usize::MAX))
    }

    /// Those that free what may take long to free.
    pub fn releases() -> &'static Self {
        static RELEASES: PerProcess<Pool> = PerProcess::new();
        RELEASES.get(|| Self::new("kvmem-free", MOST_THREADS))
    }

    fn new(name: &'static str, most: usize) -> Self {
        Self { name, most, state: Mutex::default(), work: Condvar::new() }
    }

    /// How many threads are worth having, the caller's included.
    pub fn parallelism() -> usize {
        std::thread::available_parallelism().map_or(1, |count| count.get().min(MOST_THREADS))
    }

    /// Has up to `threads` threads run `shared`.
    pub fn run(&'static self, shared: &Arc<dyn Shared>, threads: usize) {
        let mut state = self.lock();
        for _ in 0..threads {
            state.queue.push_back(shared.clone());
        }
        let wanted =
            state.queue.len().saturating_sub(state.idle).min(self.most.saturating_sub(state.threads));
        let start = |_| std::thread::Builder::new().name(self.name.to_string()).spawn(|| self.serve());
        let (started, failed): (Vec<_>, Vec<_>) = (0..wanted).map(start).partition(|thread| thread.is_ok());
        state.threads += started.len();
        let nobody = state.threads == 0;
        drop(state);
        self.work.notify_all();
        for error in failed.into_iter().filter_map(|thread| thread.err()) {
            log!(Warn, "start a thread to move blocks: {error}");
        }
        if nobody {
            // Without a thread the caller does all of it.
            self.lock().queue.retain(|queued| !Arc::ptr_eq(queued, shared));
            shared.run();
        }
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            while let Some(shared) = state.queue.pop_front() {
                drop(state);
                if let Err(error) = guarded(move || shared.run()) {
                    log!(Error, "on a thread of the library's: {error}");
                }
                state = self.lock();
            }
            state.idle += 1;
            let (next, wait) =
                self.work.wait_timeout(state, IDLE).unwrap_or_else(|poisoned| poisoned.into_inner());
            state = next;
            state.idle -= 1;
            if wait.timed_out() && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn pool(most: usize) -> &'static Pool {
        Box::leak(Box::new(Pool::new("kvmem-test", most)))
    }

    /// Work that does as it is told.
    struct Does<F>(F);

    impl<F: Fn() + Send + Sync> Shared for Does<F> {
        fn run(&self) {
            (self.0)();
        }
    }

    fn does(work: impl Fn() + Send + Sync + 'static) -> Arc<dyn Shared> {
        Arc::new(Does(work))
    }

    /// Work that tells of its beginning and waits to be let go, as often as it is run.
    fn gated() -> (Arc<dyn Shared>, Receiver<()>, Sender<()>) {
        let (begun, seen) = channel();
        let (go, gone) = channel::<()>();
        let (begun, gone) = (Mutex::new(begun), Mutex::new(gone));
        let work = does(move || {
            begun.lock().unwrap().send(()).unwrap();
            let _ = gone.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv();
        });
        (work, seen, go)
    }

    #[test]
    fn what_is_looked_after_waits_for_no_copies() {
        let (copy, _seen, go) = gated();
        Pool::get().run(&copy, 4 * MOST_THREADS);
        Pool::files().run(&copy, 4 * MOST_THREADS);
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        Pool::services().run(&does(move || tell.lock().unwrap().send(()).unwrap()), 1);
        told.recv_timeout(PATIENCE).unwrap();
        drop(go);
    }

    #[test]
    fn services_have_a_thread_each() {
        const MANY: usize = 3 * MOST_THREADS;
        let together = Arc::new(Barrier::new(MANY + 1));
        for _ in 0..MANY {
            let together = together.clone();
            Pool::services().run(
                &does(move || {
                    together.wait();
                }),
                1,
            );
        }
        // Not before all of them are at work at a time.
        together.wait();
    }

    #[test]
    fn a_panic_ends_a_share_and_not_its_thread() {
        let pool = pool(1);
        pool.run(&does(|| panic!("deliberate")), 1);
        let (work, seen, go) = gated();
        pool.run(&work, 1);
        seen.recv_timeout(PATIENCE).unwrap();
        drop(go);
        assert_eq!(pool.lock().threads, 1);
    }
}
