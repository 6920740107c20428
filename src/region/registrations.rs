// SPDX-License-Identifier: Apache-2.0
//! The registrations that a region has, down to those that nobody holds any more and whose agents have not let go yet.

use std::sync::{Arc, Weak};

use super::Registration;
use crate::error::{Error, Result, Status};
use crate::sync::{Mutex, MutexGuard};

/// Registrations from when their agents know of the memory until they know no more of it.
#[derive(Default)]
pub(super) struct Registrations(Mutex<Vec<Weak<Registration>>>);

impl Registrations {
    /// One more.
    pub fn add(&self, registration: &Arc<Registration>) {
        self.list().push(Arc::downgrade(registration));
    }

    /// Of this one the agent knows no more.
    pub fn remove(&self, over: *const Registration) {
        self.list().retain(|registration| registration.as_ptr() != over);
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
        self.list().iter().map(Weak::upgrade).collect()
    }

    fn list(&self) -> MutexGuard<'_, Vec<Weak<Registration>>> {
        self.0.lock()
    }
}
