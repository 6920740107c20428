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
        let mut is_rung = self.is_rung.lock();
        while !*is_rung {
            let Ok(woken) = self.changed.wait_until(is_rung, Some(until)) else { return };
            is_rung = woken;
        }
    }
}
