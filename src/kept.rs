// SPDX-License-Identifier: Apache-2.0
//! What is never let go, since nobody can tell when it is no longer used. It stays reachable, so that no tool takes it for
//! lost.

use std::any::Any;
use std::sync::{Mutex, PoisonError};

static KEPT: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());

/// Keeps a value until the process ends.
pub fn for_good(value: impl Any + Send) {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(value));
}
