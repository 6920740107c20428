// SPDX-License-Identifier: Apache-2.0
//! A lock that threads get in turn, so that work in many short steps delays no other thread for longer than a step.

use crate::base::{Mutex, MutexGuard};

/// A thread that unlocks a plain lock may lock it again before the thread that waits for it has woken. Here it waits for that thread.
pub struct InTurns<T> {
    /// Locked by the thread that is the next to have the value.
    next: Mutex<()>,
    value: Mutex<T>,
}

impl<T> InTurns<T> {
    pub fn new(value: T) -> Self {
        Self { next: Mutex::default(), value: Mutex::new(value) }
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        let _until_it_is_locked = self.next.lock();
        self.value.lock()
    }

    /// Whether another thread waits for it.
    #[cfg(test)]
    pub fn is_awaited(&self) -> bool {
        self.next.try_lock().is_none()
    }
}
