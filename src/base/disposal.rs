// SPDX-License-Identifier: Apache-2.0
//! Drops objects on a separate thread: freeing device memory or unlocking pages can block until all work that is queued on
//! the device has completed.

use crate::base::file_systems::FileSystems;
use crate::base::thread_pool::Pool;

/// Drops objects on another thread.
pub fn dispose_of<T: Send + 'static>(objects: Vec<T>) {
    if !objects.is_empty() {
        dispose_of_then(objects, || ());
    }
}

/// Drops an object on another thread, and then calls `then` there.
pub fn dispose_of_then<T: Send + 'static>(object: T, then: impl FnOnce() + Send + 'static) {
    dispose_of_files_then(&FileSystems::default(), object, then);
}

/// The same for an object that holds files of these file systems.
pub fn dispose_of_files_then<T: Send + 'static>(
    on: &FileSystems,
    object: T,
    then: impl FnOnce() + Send + 'static,
) {
    Pool::releases(on).run_once(move |_| {
        drop(object);
        then();
    });
}
