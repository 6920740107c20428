// SPDX-License-Identifier: Apache-2.0
//! A place for the memory of a run that has ended, until the next one begins.

use std::any::Any;

use crate::base::Mutex;

/// At most one object, of any type, which holds no objects of the caller.
#[derive(Default)]
pub(super) struct Spare(Mutex<Option<Box<dyn Any + Send>>>);

impl Spare {
    /// Keeps an object.
    pub fn put<T: Any + Send>(&self, object: Box<T>) {
        *self.0.lock() = Some(object);
    }

    /// Takes the object, if there is one.
    pub fn take<T: Any>(&self) -> Option<Box<T>> {
        self.0.lock().take()?.downcast().ok()
    }
}
