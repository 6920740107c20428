// SPDX-License-Identifier: Apache-2.0
//! Dropping what may take long to free, on a thread that nobody waits for: freeing memory of a device, or unlocking pages,
//! can wait for all that the device is at.

use std::sync::Arc;

use super::threads::{Pool, Shared};
use crate::sync::Mutex;

/// Has another thread drop some things.
pub fn dispose_of<T: Send + 'static>(things: Vec<T>) {
    if !things.is_empty() {
        dispose_of_then(things, || ());
    }
}

/// Has another thread drop something, and do something else when that is done.
pub fn dispose_of_then<T: Send + 'static>(thing: T, then: impl FnOnce() + Send + 'static) {
    let work: Box<dyn FnOnce() + Send> = Box::new(move || {
        drop(thing);
        then();
    });
    Pool::releases().run(&(Arc::new(Disposal(Mutex::new(Some(work)))) as Arc<dyn Shared>), 1);
}

struct Disposal(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Shared for Disposal {
    fn run(&self) {
        let work = self.0.lock().take();
        if let Some(work) = work {
            work();
        }
    }
}
