// SPDX-License-Identifier: Apache-2.0
//! The caches that have values for a layout.

use crate::base::{LogId, Mutex};

/// A cache, for the layouts that have values in it.
pub(super) trait Forget: Sync {
    fn forget(&self, layout: LogId);
}

#[derive(Default)]
pub(super) struct Caches(Mutex<Vec<&'static dyn Forget>>);

impl Caches {
    /// Has a cache drop its value when the layout is dropped.
    pub fn add(&self, cache: &'static dyn Forget) {
        let mut caches = self.0.lock();
        if !caches.iter().any(|known| std::ptr::addr_eq(*known, cache)) {
            caches.push(cache);
        }
    }

    pub fn forget(&mut self, layout: LogId) {
        self.0.get_mut().drain(..).for_each(|cache| cache.forget(layout));
    }
}
