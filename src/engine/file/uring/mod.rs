// SPDX-License-Identifier: Apache-2.0
//! An io_uring of this process. While there is work, one thread of the pool serves it, and sleeps in the kernel. Requests to a file
//! system that does not respond stay in the kernel, with the slots and the kernel's threads that they have, so each file system has
//! a ring.
//!
//! Threads of the caller never submit to the ring: when a thread ends, the kernel cancels the requests that it submitted.

mod ring;
mod ring_thread;

use std::collections::VecDeque;
use std::sync::Arc;

use self::ring::Ring;
use self::ring_thread::UringSession;
use super::work::FileJob;
use crate::base::file_limit::FileSizeSignal;
use crate::base::file_systems::FileSystems;
use crate::base::{Error, Mutex, PerProcess, Pool, Shared, SharedObjects, Status, WorkThread, guarded, log};

/// The ring, and new work for it. Transfers, and layouts that transfers were created for, hold it.
pub struct Uring {
    ring: Arc<Ring>,
    new: Mutex<(VecDeque<Arc<FileJob>>, WorkThread)>,
}

impl Uring {
    /// Returns the ring of this process for files on these file systems. Fails with the reason if there is none.
    pub fn get(on: &FileSystems) -> Result<Arc<Self>, String> {
        static RINGS: PerProcess<SharedObjects<FileSystems, Uring>> = PerProcess::new();
        let make = || {
            let ring = Ring::create().map_err(|reason| Error::new(Status::Unsupported, reason))?;
            Ok(Self { ring: Arc::new(ring), new: Mutex::default() })
        };
        let uring =
            RINGS.get(SharedObjects::default).get(on.clone(), |uring| !uring.ring.is_broken(), None, make);
        uring.map_err(|error| error.message().to_string())
    }

    /// Passes work to the thread of the ring.
    pub fn start(self: &Arc<Self>, job: Arc<FileJob>) {
        if self.ring.is_broken() {
            return job.end_with(broken());
        }
        let mut new = self.new.lock();
        let started = new.1.ensure(|| Pool::services().run_alone(self.clone()));
        if started.is_ok() {
            new.0.push_back(job.clone());
        }
        drop(new);
        match started {
            Ok(Some(_woken)) => (),
            Ok(None) => self.ring.event.signal(),
            Err(error) => job.end_with(error),
        }
    }
}

/// The error of work that was submitted after the ring has failed.
fn broken() -> Error {
    Error::new(Status::Io, "io_uring has failed before; create the transfer again to use another method")
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
        let mut session = UringSession::new(self.ring.clone());
        let served = guarded(|| {
            while self.pass_new(&mut session) {
                if self.ring.is_broken() {
                    session.reject_new(&broken());
                } else {
                    session.begin();
                    session.step();
                }
            }
        });
        served.inspect_err(|panic| session.abandon(panic))
    }

    /// Passes new work to the session. Returns false if there is no work: then the thread must end.
    fn pass_new(&self, session: &mut UringSession) -> bool {
        let (new, thread) = &mut *self.new.lock();
        let has_work = !(new.is_empty() && session.is_idle());
        session.receive(new);
        thread.goes_on(has_work)
    }
}

#[cfg(test)]
mod tests;
