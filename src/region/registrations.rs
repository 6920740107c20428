// SPDX-License-Identifier: Apache-2.0
//! The registrations that a region has, down to those that nobody holds any more and whose agents have not let go yet.

#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};

use super::Registration;
use crate::error::{Error, Result, Status};
use crate::nixl::Agent;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Registrations from when their agents know of the memory until they know no more of it.
#[derive(Default)]
pub(super) struct Registrations {
    list: Mutex<Vec<Entry>>,
    removal: Condvar,
}

struct Entry {
    /// The agent's address. Only compared: the registration may be gone, and the agent with it.
    agent: usize,
    registration: Weak<Registration>,
}

impl Registrations {
    /// One more.
    pub fn add(&self, registration: &Arc<Registration>) {
        let agent = Arc::as_ptr(registration.agent()).addr();
        self.list().push(Entry { agent, registration: Arc::downgrade(registration) });
    }

    /// Of this one the agent knows no more.
    pub fn remove(&self, over: *const Registration) {
        self.list().retain(|entry| entry.registration.as_ptr() != over);
        self.removal.notify_all();
    }

    /// Waits until an agent has deregistered what nobody holds any more. The agent refuses a new registration before
    /// that, and its thread removes the old one without any lock that the caller may have.
    pub fn wait_for_removal(&self, agent: &Arc<Agent>) {
        let is_going = |list: &mut Vec<Entry>| {
            let mut own = list.iter().filter(|entry| entry.agent == Arc::as_ptr(agent).addr());
            own.any(|entry| entry.registration.strong_count() == 0)
        };
        drop(self.removal.wait_while(self.list(), is_going));
    }

    /// Those that somebody holds.
    pub fn held(&self) -> Vec<Arc<Registration>> {
        self.upgraded().into_iter().flatten().collect()
    }

    /// All of them. Refused while one is going: its agent still uses memory that it can't be asked to let go of.
    pub fn all(&self) -> Result<Vec<Arc<Registration>>> {
        let all: Option<Vec<_>> = self.upgraded().into_iter().collect();
        all.ok_or_else(|| {
            let message = "an agent is deregistering the region, because the last holder of a registration was destroyed; \
                           try again when its transfers have ended";
            Error::new(Status::Busy, message)
        })
    }

    /// None of these is dropped with the lock held: the last one waits for its agent's thread, which takes the lock.
    fn upgraded(&self) -> Vec<Option<Arc<Registration>>> {
        self.list().iter().map(|entry| entry.registration.upgrade()).collect()
    }

    fn list(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.list.lock()
    }
}
