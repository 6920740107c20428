// SPDX-License-Identifier: Apache-2.0
//! Errors as C sees them.

use std::ffi::{CString, c_char};

use crate::base::error::{Cause, Error, errno_name};
use crate::ffi::common::handle::{Handle, destroy, opaque, peek};
use crate::ffi::common::status::{KVMEM_STATUS_INVALID_ARGUMENT, KVMEM_STATUS_OK, kvmem_status};

/// Describes a failure: status, message and native cause. An error never changes, so any threads may read it
/// at the same time. The caller destroys it.
pub struct kvmem_error {
    handle: Handle<Failure>,
}
opaque!(kvmem_error, Failure, "error");

/// An error as C types.
pub struct Failure {
    status: kvmem_status,
    message: CString,
    cause: kvmem_error_cause,
    _name: CString,
}

/// There is no native cause.
pub const KVMEM_DOMAIN_NONE: u32 = 0;
/// The code is an errno value.
pub const KVMEM_DOMAIN_ERRNO: u32 = 1;
/// The code is a status of NIXL's C API.
pub const KVMEM_DOMAIN_NIXL: u32 = 2;
/// The code is a CUresult.
pub const KVMEM_DOMAIN_CUDA: u32 = 3;

/// Native cause of an error: the error of the library or system that kvmem called.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_error_cause {
    /// KVMEM_DOMAIN_* value.
    pub domain: u32,
    /// Code in that domain; 0 without a cause.
    pub code: i32,
    /// Name of the code, such as "ENOSPC"; "" without one. Valid as long as the error.
    pub name: *const c_char,
}

impl Failure {
    pub(in crate::ffi) fn from_error(error: &Error) -> Self {
        let (domain, code, name) = match error.cause() {
            None => (KVMEM_DOMAIN_NONE, 0, String::new()),
            Some(Cause::Errno(code)) => (KVMEM_DOMAIN_ERRNO, *code, errno_name(*code).to_string()),
            Some(Cause::Nixl(code)) => {
                (KVMEM_DOMAIN_NIXL, *code, crate::nixl::status_name(*code).to_string())
            }
            Some(Cause::Cuda(code, name)) => (KVMEM_DOMAIN_CUDA, *code, name.clone()),
        };
        let name = without_nul(&name);
        let cause = kvmem_error_cause { domain, code, name: name.as_ptr() };
        Self { status: error.status() as i32, message: without_nul(error.message()), cause, _name: name }
    }
}

fn without_nul(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

/// Returns the status of an error.
///
/// @param error an error; NULL returns KVMEM_STATUS_OK
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_error_status(error: *const kvmem_error) -> kvmem_status {
    // SAFETY: NULL or an error of ours, by contract.
    unsafe { peek(error) }.map_or(KVMEM_STATUS_OK, |error| error.status)
}

/// Returns the message of an error: the request, the reason, and often a remedy, in UTF-8. It is one line,
/// as those of the log. The string is valid as long as the error.
///
/// @param error an error; NULL returns ""
/// @param length receives the length in bytes, without the terminating NUL; may be NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_error_message(error: *const kvmem_error, length: *mut usize) -> *const c_char {
    // SAFETY: NULL or an error of ours, by contract.
    let message = unsafe { peek(error) }.map_or(c"", |error| error.message.as_c_str());
    // SAFETY: NULL or writable, by contract.
    if let Some(length) = unsafe { length.as_mut() } {
        *length = message.count_bytes();
    }
    message.as_ptr()
}

/// Returns the native cause of an error.
///
/// @param cause receives the cause; its domain is KVMEM_DOMAIN_NONE if kvmem itself found the error
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_error_get_cause(
    error: *const kvmem_error,
    cause: *mut kvmem_error_cause,
) -> kvmem_status {
    // SAFETY: NULL, or an error of ours and a writable cause, by contract.
    match unsafe { (peek(error), cause.as_mut()) } {
        (Some(error), Some(cause)) => {
            *cause = error.cause;
            KVMEM_STATUS_OK
        }
        _ => KVMEM_STATUS_INVALID_ARGUMENT,
    }
}

/// Destroys an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_error_destroy(error: *mut kvmem_error) {
    // SAFETY: by contract.
    unsafe { destroy(error) };
}
