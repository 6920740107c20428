// SPDX-License-Identifier: Apache-2.0
//! The NIXL library.

use std::ffi::c_char;
use std::os::unix::ffi::OsStrExt;

use crate::error::{Error, Status};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::text;
use crate::nixl::library;

/// Loads NIXL (libnixl_capi.so, version 1.5 or later). Creating an agent does so by itself, with `path` NULL.
///
/// The library stays loaded as long as the process. After a failure another path may be tried. Threads: any.
///
/// @param path the file, or the folder that holds it; NULL for the path in the environment variable
///        KVMEM_NIXL_LIBRARY, else for what the loader finds
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK, also when it is loaded from there already;
///         KVMEM_STATUS_UNAVAILABLE_NIXL when it is missing, too old or broken (the message says which);
///         KVMEM_STATUS_ALREADY_EXISTS when it is loaded from elsewhere;
///         KVMEM_STATUS_INVALID_STATE when it was loaded, or being loaded, before this process was forked
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_nixl_load(path: *const c_char, error: *mut *mut kvmem_error) -> kvmem_status {
    // SAFETY: NULL or NUL-terminated; NULL or writable, by contract.
    unsafe { call(error, |_| library::load(text::path(path)).map(|_| ())) }
}

/// The file NIXL was loaded from.
///
/// @param buffer gets the path and its NUL; may be NULL with capacity 0, to ask the size alone
/// @param capacity bytes of the buffer
/// @param size gets the bytes the path needs with its NUL, also when the buffer is too small
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_STATE before NIXL is loaded; KVMEM_STATUS_OUT_OF_RANGE when
///         the buffer is too small
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_nixl_get_path(
    buffer: *mut c_char,
    capacity: usize,
    size: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let answer = unsafe { text::Answer::new(buffer, capacity, size) }?;
        let not_loaded = || Error::new(Status::InvalidState, "NIXL is not loaded");
        let library = library::loaded().ok_or_else(not_loaded)?;
        answer.set(library.path().as_os_str().as_bytes())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}
