// SPDX-License-Identifier: Apache-2.0
//! Helpers for calls of NIXL: statuses as results, objects that are destroyed, and strings in both directions.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use super::{library, sys};
use crate::base::{Cause, Error, Result, Status, ensure, error};

/// Converts a status of NIXL. `action` is called only for an error.
pub(super) fn check(status: sys::nixl_capi_status_t, action: impl FnOnce() -> String) -> Result<()> {
    if status >= 0 { Ok(()) } else { Err(failed(status, &action())) }
}

#[cold]
#[inline(never)]
fn failed(status: sys::nixl_capi_status_t, action: &str) -> Error {
    let kind = if status == sys::NIXL_CAPI_ERROR_NOT_FOUND { Status::NotFound } else { Status::Nixl };
    Error::new(kind, format!("{action}: NIXL returned {}", sys::status_name(status)))
        .with_cause(Cause::Nixl(status))
}

/// An object of NIXL's, which is destroyed with this value.
pub(super) struct Owned {
    raw: *mut c_void,
    destroy: Destroy,
}

type Destroy = unsafe fn(*mut c_void) -> sys::nixl_capi_status_t;

impl Owned {
    /// Creates one. `what` it is, for messages.
    ///
    /// # Safety
    /// On success `create` must store an object that `destroy` frees, and that nothing else does.
    pub unsafe fn create(
        what: &str,
        destroy: Destroy,
        create: impl FnOnce(*mut *mut c_void) -> sys::nixl_capi_status_t,
    ) -> Result<Self> {
        let mut raw = ptr::null_mut();
        check(create(&mut raw), || format!("create {what}"))?;
        ensure!(!raw.is_null(), OutOfMemory, "NIXL did not create {what}; free memory of this process");
        Ok(Self { raw, destroy })
    }

    /// Takes over an object that NIXL has returned.
    ///
    /// # Safety
    /// `destroy` must free it, and nothing else does.
    pub unsafe fn around(raw: *mut c_void, destroy: Destroy) -> Self {
        Self { raw, destroy }
    }

    pub fn raw(&self) -> *mut c_void {
        self.raw
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the promise of the constructors.
        unsafe { (self.destroy)(self.raw) };
    }
}

/// The error for an optional function that the loaded library does not have.
#[cold]
pub(super) fn too_old(function: &str) -> Error {
    let path = library::loaded().map(|library| library.path().display().to_string()).unwrap_or_default();
    error!(Unsupported, "the loaded NIXL, {path}, has no function {function}; NIXL 1.5.1 has it")
}

/// Returns a NUL-terminated copy. Fails if the text contains a NUL.
pub(super) fn c_string(what: &str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| error!(InvalidArgument, "{what} holds a NUL byte"))
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
