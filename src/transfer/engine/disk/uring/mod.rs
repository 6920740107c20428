// SPDX-License-Identifier: Apache-2.0
//! One io_uring of this process: a thread of the pool has it while there is work, and sleeps in the kernel.
//!
//! Callers never submit to the ring themselves: the kernel cancels what a thread has submitted when that ends.

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

/// The ring, and what is to go through it. It is there while a transfer, or a layout that one was made for, is.
pub struct Uring {
    ring: IoUring,
    /// Wakes the thread that sleeps in the kernel.
    wake: OwnedFd,
    /// The ring looks at `wake`.
    is_watching: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    new: Vec<Work>,
    is_served: bool,
    /// The kernel takes nothing from this ring any more.
    is_broken: bool,
}

impl Uring {
    /// The ring of this process, or why there is none.
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
            ring: ring::make()?,
            wake,
            is_watching: AtomicBool::new(false),
            state: Mutex::default(),
        });
        *current = Arc::downgrade(&uring);
        Ok(uring)
    }

    /// Has some work done.
    pub fn start(self: &Arc<Self>, work: Work) {
        let mut state = self.state();
        if state.is_broken {
            drop(state);
            return (work.ending)(Err(broken()));
        }
        if !state.is_served {
            // Within the lock: other work must not count on a thread that could not be started.
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
            // The counter is full: the thread has been woken often enough.
            log!(Debug, "wake the thread of the ring: {errno}");
        }
    }

    /// What is new, or `None` when the thread may go.
    fn take_new(&self, is_idle: bool) -> Option<Vec<Work>> {
        let mut state = self.state();
        if is_idle && state.new.is_empty() {
            state.is_served = false;
            return None;
        }
        Some(std::mem::take(&mut state.new))
    }

    /// Nothing goes through this ring any more: entries are left in it.
    fn give_up(&self) {
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
        // The kernel writes on this thread, and sends it the signal.
        let _limit_reports_itself = FileSizeSignal::block();
        while let Err(panic) = self.serve() {
            log!(Error, "panic on the thread of io_uring: {panic}; all its runs fail");
        }
    }
}

impl Uring {
    /// Until nothing is left to do, or a panic, with which all runs end.
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
