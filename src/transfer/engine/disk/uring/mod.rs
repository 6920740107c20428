// SPDX-License-Identifier: Apache-2.0
//! The io_uring of this process. While there is work, one thread of the pool serves it, and sleeps in the kernel.
//!
//! Threads of the caller never submit to the ring: when a thread ends, the kernel cancels the requests that it submitted.

mod ring;
mod session;

use std::sync::{Arc, Weak};

use self::ring::Ring;
use self::session::UringSession;
use super::work::Work;
use crate::error::{Error, Status};
use crate::file_limit::FileSizeSignal;
use crate::guarded::guarded;
use crate::log::log;
use crate::process::PerProcess;
use crate::sync::{Mutex, MutexGuard};
use crate::transfer::run::threads::{Pool, Shared};

/// The ring, and new work for it. Transfers, and layouts that transfers were created for, hold it.
pub struct Uring {
    ring: Ring,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    new: Vec<Work>,
    is_served: bool,
}

impl Uring {
    /// Returns the ring of this process. Fails with the reason if there is none.
    pub fn get() -> Result<Arc<Self>, String> {
        static CURRENT: PerProcess<Mutex<Weak<Uring>>> = PerProcess::new();
        let current = CURRENT.get(Mutex::default);
        let mut current = current.lock();
        if let Some(uring) = current.upgrade().filter(|uring| !uring.ring.is_broken()) {
            return Ok(uring);
        }
        let uring = Arc::new(Self { ring: Ring::create()?, state: Mutex::default() });
        *current = Arc::downgrade(&uring);
        Ok(uring)
    }

    /// Passes work to the thread of the ring.
    pub fn start(self: &Arc<Self>, work: Work) {
        if self.ring.is_broken() {
            return reject(work);
        }
        let mut state = self.state();
        if !state.is_served {
            // Under the lock: other work must not rely on a thread that could not be started.
            if let Err(error) = Pool::services().run_alone(self.clone()) {
                drop(state);
                return (work.ending)(Err(error));
            }
            state.is_served = true;
            state.new.push(work);
            return;
        }
        state.new.push(work);
        drop(state);
        self.ring.wake();
    }

    /// Takes new work. Returns `None` if the thread may end.
    fn take_new(&self, is_idle: bool) -> Option<Vec<Work>> {
        let mut state = self.state();
        if is_idle && state.new.is_empty() {
            state.is_served = false;
            return None;
        }
        Some(std::mem::take(&mut state.new))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Fails work that was submitted after the ring has failed.
fn reject(work: Work) {
    let message = "io_uring has failed before; create the transfer again to use another path";
    (work.ending)(Err(Error::new(Status::Io, message)));
}

impl Shared for Uring {
    fn run(&self) {
        // The kernel writes on this thread, and sends it the signal of the file size limit.
        let _limit_reports_itself = FileSizeSignal::block();
        while let Err(panic) = self.serve() {
            log!(Error, "panic on the thread of io_uring: {panic}; all its runs fail");
        }
    }
}

impl Uring {
    /// Serves work until none is left. After a panic, ends all runs and returns the panic.
    fn serve(&self) -> Result<(), Error> {
        let mut session = UringSession::new(&self.ring);
        let served = guarded(|| {
            while let Some(new) = self.take_new(session.is_idle()) {
                if self.ring.is_broken() {
                    new.into_iter().for_each(reject);
                } else {
                    session.begin(new);
                    session.step();
                }
            }
        });
        served.inspect_err(|panic| session.abandon(panic))
    }
}

#[cfg(test)]
mod tests;
