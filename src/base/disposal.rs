// SPDX-License-Identifier: Apache-2.0
//! Drops objects on a separate thread: freeing device memory or unlocking pages can block until all work that is queued on
//! the device has completed.

use crate::base::file_systems::Blockers;
use crate::base::thread_pool::Pool;

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
