// SPDX-License-Identifier: Apache-2.0
//! An io_uring of this process. While there is work, one thread of the pool serves it, and sleeps in the kernel. Requests to a file
//! system that does not respond stay in the kernel, with the slots and the kernel's threads that they have, so each file system has
//! a ring.
//!
//! Threads of the caller never submit to the ring: when a thread ends, the kernel cancels the requests that it submitted.

mod ring;
mod ring_thread;

use std::sync::Arc;

use self::ring::Ring;
use self::ring_thread::UringSession;
use super::work::FileJob;
use crate::base::file_limit::FileSizeSignal;
use crate::base::file_systems::FileSystems;
use crate::base::intake::Intake;
use crate::base::{Error, PerProcess, Pool, Shared, SharedObjects, Status, guarded, log};

/// The ring, and new work for it. Transfers, and layouts that transfers were created for, hold it.
pub struct Uring {
    ring: Arc<Ring>,
    new: Intake<Arc<FileJob>>,
}

impl Uring {
    /// Returns the ring of this process for files on these file systems. Fails with the reason if there is none.
    pub fn get(on: &FileSystems) -> Result<Arc<Self>, String> {
        static RINGS: PerProcess<SharedObjects<FileSystems, Uring>> = PerProcess::new();
        let make = || {
            let ring = Ring::create().map_err(|reason| Error::new(Status::Unsupported, reason))?;
            Ok(Self { ring: Arc::new(ring), new: Intake::new() })
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
        let start = || Pool::services().run_alone(self.clone());
        if let Err((unserved, error)) = self.new.add(job, || self.ring.event.signal(), start) {
            FileJob::end_all(unserved, &error);
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
            while self.new.pass(session.is_idle(), |new| session.receive(new)) {
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
}

#[cfg(test)]
mod tests;
