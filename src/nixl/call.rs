// SPDX-License-Identifier: Apache-2.0
//! Helpers for calls of NIXL: statuses as results, and strings in both directions.

use std::ffi::{CStr, CString, c_char};

use super::{library, sys};
use crate::base::error::{Cause, Error, Result, Status};

/// Converts a status of NIXL. `action` is called only for an error.
pub(super) fn check(status: sys::nixl_capi_status_t, action: impl FnOnce() -> String) -> Result<()> {
    if status >= 0 {
        return Ok(());
    }
    let kind = if status == sys::NIXL_CAPI_ERROR_NOT_FOUND { Status::NotFound } else { Status::Nixl };
    Err(Error::new(kind, format!("{}: NIXL returned {}", action(), sys::status_name(status)))
        .with_cause(Cause::Nixl(status)))
}

/// The error for an optional function that the loaded library does not have.
#[cold]
pub(super) fn too_old(function: &str) -> Error {
    let path = library::loaded().map(|library| library.path().display().to_string()).unwrap_or_default();
    let message = format!("the loaded NIXL, {path}, has no function {function}; NIXL 1.5.1 has it");
    Error::new(Status::Unsupported, message)
}

/// Returns a NUL-terminated copy. Fails if the text contains a NUL.
pub(super) fn c_string(what: &str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(Status::InvalidArgument, format!("{what} holds a NUL byte")))
}

/// A copy of a C string; empty for NULL.
///
/// # Safety
/// `text` must be NULL or a NUL-terminated string.
pub(super) unsafe fn copied(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
