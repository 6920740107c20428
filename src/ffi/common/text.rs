// SPDX-License-Identifier: Apache-2.0
//! Strings and byte arrays of callers.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::base::{Result, ensure, error};
use crate::ffi::common::pointer::null;

/// # Safety
/// `text` must be NULL or NUL-terminated, and live through the call.
pub unsafe fn required<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| error!(InvalidArgument, "{name} is not UTF-8"))
}

/// # Safety
/// `path` must be NULL or NUL-terminated, and live through the call.
pub unsafe fn path<'a>(path: *const c_char) -> Option<&'a Path> {
    // SAFETY: the caller's promise.
    (!path.is_null()).then(|| Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())))
}

/// # Safety
/// `data` must be NULL or readable for `size` bytes through the call.
pub unsafe fn bytes<'a>(data: *const c_void, size: usize, name: &str) -> Result<&'a [u8]> {
    if size == 0 {
        return Ok(&[]);
    }
    ensure!(!data.is_null(), InvalidArgument, "{name} is NULL and has {size} bytes");
    ensure!(size <= isize::MAX as usize, InvalidArgument, "{name} can't have {size} bytes");
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), size) })
}
