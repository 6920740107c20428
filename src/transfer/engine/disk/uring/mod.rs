// SPDX-License-Identifier: Apache-2.0
//! The io_uring of this process. While there is work, one thread of the pool serves it, and sleeps in the kernel.
//!
//! Threads of the caller never submit to the ring: when a thread ends, the kernel cancels the requests that it submitted.

mod ring;
mod session;

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use io_uring::IoUring;
use rustix::event::{EventfdFlags, eventfd};

use super::work::Work;
use crate::error::{Error, Status};
use crate::file_limit::FileSizeSignal;
use crate::guarded::guarded;
use crate::log::log;
use crate::process::PerProcess;
use crate::sync::{Mutex, MutexGuard};
use crate::transfer::run::threads::{Pool, Shared};
use session::UringSession;

/// The ring, and new work for it. Transfers, and layouts that transfers were created for, hold it.
pub struct Uring {
    ring: IoUring,
    /// Wakes the thread that sleeps in the kernel.
    wake: OwnedFd,
    /// The ring polls `wake`.
    is_watching: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    new: Vec<Work>,
    is_served: bool,
    /// The kernel accepts no more entries of this ring.
    is_broken: bool,
}

impl Uring {
    /// Returns the ring of this process. Fails with the reason if there is none.
    pub fn get() -> Result<Arc<Self>, String> {
        static CURRENT: PerProcess<Mutex<Weak<Uring>>> = PerProcess::new();
        let current = CURRENT.get(Mutex::default);
        let mut current = current.lock();
        if let Some(uring) = current.upgrade().filter(|uring| !uring.state().is_broken) {
            return Ok(uring);
        }
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::errno("create an event fd for io_uring", errno).to_string())?;
        let uring = Arc::new(Self {
            ring: ring::create()?,
            wake,
            is_watching: AtomicBool::new(false),
            state: Mutex::default(),
        });
        *current = Arc::downgrade(&uring);
        Ok(uring)
    }

    /// Passes work to the thread of the ring.
    pub fn start(self: &Arc<Self>, work: Work) {
        let mut state = self.state();
        if state.is_broken {
            drop(state);
            return (work.ending)(Err(broken()));
        }
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
        if let Err(errno) = rustix::io::write(&self.wake, &1u64.to_ne_bytes()) {
            // The counter is full, so the thread is woken anyway.
            log!(Debug, "wake the thread of the ring: {errno}");
        }
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

    /// Rejects all further work, because the ring contains entries that the kernel does not accept.
    fn close(&self) {
        let mut state = self.state();
        state.is_broken = true;
        let left = std::mem::take(&mut state.new);
        drop(state);
        left.into_iter().for_each(|work| (work.ending)(Err(broken())));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn broken() -> Error {
    Error::new(Status::Io, "io_uring has failed before; create the transfer again to use another path")
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
        let mut session = UringSession::new(self);
        let served = guarded(|| {
            while let Some(new) = self.take_new(session.is_idle()) {
                session.begin(new);
                session.step();
            }
        });
        served.inspect_err(|panic| session.abandon(panic))
    }
}

#[cfg(test)]
mod tests;
