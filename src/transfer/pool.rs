// SPDX-License-Identifier: Apache-2.0
//! Threads that copy, or read and write files. They start when there is work for them and end when there was none for
//! a while, so that a process that moves nothing has none.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::log::log;
use crate::process::PerProcess;

/// Work that several threads can do together.
pub trait Shared: Send + Sync {
    /// Does a share of it, or returns at once when nothing is left to begin.
    fn run(&self);
}

/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(5);
/// More threads than this gain nothing: memory is the limit.
const MOST_THREADS: usize = 16;

/// Some threads of this process.
pub struct Pool {
    name: &'static str,
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
        COPIES.get(|| Self::new("kvmem-copy"))
    }

    /// Those that read and write files. They are others: a slow disk must not keep a copy waiting.
    pub fn files() -> &'static Self {
        static FILES: PerProcess<Pool> = PerProcess::new();
        FILES.get(|| Self::new("kvmem-file"))
    }

    /// Those that compare what was moved. They wait for copies and files, which never wait for them.
    pub fn checks() -> &'static Self {
        static CHECKS: PerProcess<Pool> = PerProcess::new();
        CHECKS.get(|| Self::new("kvmem-check"))
    }

    fn new(name: &'static str) -> Self {
        Self { name, state: Mutex::default(), work: Condvar::new() }
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
            state.queue.len().saturating_sub(state.idle).min(MOST_THREADS.saturating_sub(state.threads));
        for _ in 0..wanted {
            match std::thread::Builder::new().name(self.name.to_string()).spawn(|| self.serve()) {
                Ok(_) => state.threads += 1,
                Err(error) => log!(Warn, "start a thread to move blocks: {error}"),
            }
        }
        let nobody = state.threads == 0;
        drop(state);
        self.work.notify_all();
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
                shared.run();
                drop(shared);
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
