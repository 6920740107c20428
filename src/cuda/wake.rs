// SPDX-License-Identifier: Apache-2.0
//! A thread that waits for work of a device without polling: the driver wakes it by a host function behind the work.

use std::time::Instant;

use crate::base::{Condvar, Mutex};

/// Rung once, by the thread of the driver.
#[derive(Default)]
pub struct Wake {
    is_rung: Mutex<bool>,
    changed: Condvar,
}

impl Wake {
    pub(super) fn ring(&self) {
        *self.is_rung.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until it is rung, or until a time.
    pub fn wait(&self, until: Instant) {
        drop(self.changed.wait_while_until(self.is_rung.lock(), Some(until), |is_rung| !*is_rung));
    }
}
