// SPDX-License-Identifier: Apache-2.0
//! Errors as C sees them.

use std::ffi::{CString, c_char};

use crate::error::{Cause, Error, errno_name};
use crate::ffi::common::handle::Handle;
use crate::ffi::common::handle::destroy;
use crate::ffi::common::handle::opaque;
use crate::ffi::common::handle::peek;
use crate::ffi::common::status::KVMEM_STATUS_INVALID_ARGUMENT;
use crate::ffi::common::status::KVMEM_STATUS_OK;
use crate::ffi::common::status::kvmem_status;

/// A failure: status, message and native cause.
///
/// Every fallible function has a `kvmem_error **error` as its last parameter. It may be NULL. On failure
/// `*error` gets a new error, which the caller destroys; on success it is not touched. Nothing is kept in
/// thread-local storage. An error is never changed after it was made, so any threads may read it at once.
pub struct kvmem_error {
    handle: Handle<Failure>,
}
opaque!(kvmem_error, Failure, "error");

/// An error in the types of C.
pub struct Failure {
    status: kvmem_status,
    message: CString,
    cause: kvmem_error_cause,
    _name: CString,
}

/// There is no native cause.
pub const KVMEM_DOMAIN_NONE: u32 = 0;
/// The code is an errno.
pub const KVMEM_DOMAIN_ERRNO: u32 = 1;
/// The code is a status of NIXL's C API.
pub const KVMEM_DOMAIN_NIXL: u32 = 2;
/// The code is a CUresult.
pub const KVMEM_DOMAIN_CUDA: u32 = 3;

/// What the system under kvmem said.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_error_cause {
    /// Which system, a KVMEM_DOMAIN_* value.
    pub domain: u32,
    /// Its code; 0 without a cause.
    pub code: i32,
    /// The code's name, such as "ENOSPC"; "" without a cause. Lives as long as the error.
    pub name: *const c_char,
}

impl Failure {
    pub(in crate::ffi) fn of(error: &Error) -> Self {
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

/// The status of an error.
///
/// @param error an error; NULL answers KVMEM_STATUS_OK
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_error_status(error: *const kvmem_error) -> kvmem_status {
    // SAFETY: NULL or an error of ours, by contract.
    unsafe { peek(error) }.map_or(KVMEM_STATUS_OK, |error| error.status)
}

/// What was asked, what was found and what to do, as one UTF-8 sentence.
///
/// @param error an error; NULL answers ""
/// @param length gets the bytes without the NUL; may be NULL
/// @return a NUL-terminated string that lives as long as the error
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

/// What the system under kvmem said.
///
/// @param error an error
/// @param cause gets the cause; its domain is KVMEM_DOMAIN_NONE where kvmem itself found the error
/// @return KVMEM_STATUS_OK, or KVMEM_STATUS_INVALID_ARGUMENT when either pointer is NULL
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

/// Frees an error.
///
/// @param error an error that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_error_destroy(error: *mut kvmem_error) {
    // SAFETY: by contract.
    unsafe { destroy(error) };
}
