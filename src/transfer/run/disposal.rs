// SPDX-License-Identifier: Apache-2.0
//! Drops objects on a thread that nobody waits for: freeing device memory or unlocking pages can wait for all work that
//! the device has queued.
#![forbid(unsafe_code)]

use super::threads::Pool;

/// Drops objects on another thread.
pub fn dispose_of<T: Send + 'static>(things: Vec<T>) {
    if !things.is_empty() {
        dispose_of_then(things, || ());
    }
}

/// Drops an object on another thread, and then calls `then` there.
pub fn dispose_of_then<T: Send + 'static>(thing: T, then: impl FnOnce() + Send + 'static) {
    Pool::releases().hand_over(move |_| {
        drop(thing);
        then();
    });
}
