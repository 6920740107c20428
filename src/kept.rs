// SPDX-License-Identifier: Apache-2.0
//! What is never let go, since nobody can tell when it is no longer used. It stays reachable, so that no tool takes it for
//! lost.

use std::any::Any;

use crate::sync::Mutex;

static KEPT: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());

/// Keeps a value until the process ends.
pub fn for_good(value: impl Any + Send) {
    KEPT.lock().push(Box::new(value));
}
