// SPDX-License-Identifier: Apache-2.0
//! Intentionally leaked objects: those that hardware or another library may still use, for an unknown time. They are kept
//! reachable so that leak checkers stay quiet.

use std::any::Any;

use crate::base::sync::Mutex;

static LEAKED: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());

/// Keeps a value until the process ends.
pub fn intentionally(value: impl Any + Send) {
    LEAKED.lock().push(Box::new(value));
}
