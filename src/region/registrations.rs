// SPDX-License-Identifier: Apache-2.0
//! The registrations of a region, including those without holders that their agents have not deregistered yet.

#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};

use super::Registration;
use crate::error::{Error, Result, Status};
use crate::nixl::Agent;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Registrations from the time that their agents have registered the memory until they have deregistered it.
#[derive(Default)]
pub(super) struct Registrations {
    list: Mutex<Vec<Entry>>,
    removal: Condvar,
}

struct Entry {
    /// The agent's address. It is only compared: the registration and the agent may have been destroyed.
    agent: usize,
    registration: Weak<Registration>,
}

impl Registrations {
    /// Adds a registration.
    pub fn add(&self, registration: &Arc<Registration>) {
        let agent = Arc::as_ptr(registration.agent()).addr();
        self.list().push(Entry { agent, registration: Arc::downgrade(registration) });
    }

    /// Removes a registration after its agent has deregistered it.
    pub fn remove(&self, over: *const Registration) {
        self.list().retain(|entry| entry.registration.as_ptr() != over);
        self.removal.notify_all();
    }

    /// Waits until an agent has deregistered the registrations without holders. A new registration would fail before that.
    /// The agent's thread removes the old one without any lock that the caller may have.
    pub fn wait_for_removal(&self, agent: &Arc<Agent>) {
        let is_going = |list: &mut Vec<Entry>| {
            let mut own = list.iter().filter(|entry| entry.agent == Arc::as_ptr(agent).addr());
            own.any(|entry| entry.registration.strong_count() == 0)
        };
        drop(self.removal.wait_while(self.list(), is_going));
    }

    /// The registrations with holders.
    pub fn held(&self) -> Vec<Arc<Registration>> {
        self.upgraded().into_iter().flatten().collect()
    }

    /// All registrations. Fails while one is being deregistered, because its agent still uses the memory.
    pub fn all(&self) -> Result<Vec<Arc<Registration>>> {
        let all: Option<Vec<_>> = self.upgraded().into_iter().collect();
        all.ok_or_else(|| {
            let message = "an agent is still deregistering the region, because the last holder of a registration was \
                           destroyed; try again when the agent's transfers are complete";
            Error::new(Status::Busy, message)
        })
    }

    /// None of these may be dropped with the lock held: the last one waits for its agent's thread, which locks it too.
    fn upgraded(&self) -> Vec<Option<Arc<Registration>>> {
        self.list().iter().map(|entry| entry.registration.upgrade()).collect()
    }

    fn list(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.list.lock()
    }
}
