// SPDX-License-Identifier: Apache-2.0
//! Drops objects on a separate thread: freeing device memory or unlocking pages can block until all work that is queued on
//! the device has completed.

use crate::base::file_systems::Blockers;
use crate::base::thread_pool::Pool;

/// Drops objects on another thread. What they may wait for is asked only if there are objects.
pub fn dispose_of<T: Send + 'static>(blockers: impl FnOnce() -> Blockers, objects: Vec<T>) {
    if !objects.is_empty() {
        dispose_of_then(&blockers(), objects, || ());
    }
}

/// Drops an object on another thread, and then calls `then` there. Only objects with the same blockers wait for one that blocks.
pub fn dispose_of_then<T: Send + 'static>(
    blockers: &Blockers,
    object: T,
    then: impl FnOnce() + Send + 'static,
) {
    Pool::releases(blockers).run_once(move |_| {
        drop(object);
        then();
    });
}
