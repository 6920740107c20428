// SPDX-License-Identifier: Apache-2.0
//! Strings and byte spans across the boundary.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{Error, Result, Status, ensure};
use crate::ffi::common::pointer::{null, out};

/// # Safety
/// `text` must be NULL or NUL-terminated, and live through the call.
pub unsafe fn required<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::new(Status::InvalidArgument, format!("{name} is not UTF-8")))
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

/// Where a string is answered, by the two-call way: `size` always gets the bytes it needs, its NUL included;
/// the buffer is filled if it is large enough. Without a buffer only the size is asked.
pub struct Answer<'a> {
    buffer: *mut c_char,
    capacity: usize,
    size: &'a mut MaybeUninit<usize>,
}

impl Answer<'_> {
    /// # Safety
    /// `buffer` must be NULL or writable for `capacity` bytes, `size` NULL or writable, through the call.
    pub unsafe fn new(buffer: *mut c_char, capacity: usize, size: *mut usize) -> Result<Self> {
        ensure!(
            !buffer.is_null() || capacity == 0,
            InvalidArgument,
            "buffer is NULL and has {capacity} bytes"
        );
        // SAFETY: the caller's promise.
        let size = unsafe { out(size, "size") }?;
        Ok(Self { buffer, capacity, size })
    }

    /// Answers.
    pub fn set(self, text: &[u8]) -> Result<()> {
        let needed = text.len() + 1;
        self.size.write(needed);
        if self.buffer.is_null() {
            return Ok(());
        }
        ensure!(
            self.capacity >= needed,
            OutOfRange,
            "the buffer has {} bytes, the string needs {needed}",
            self.capacity
        );
        // SAFETY: room was checked, the rest is the promise that made `self`.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), self.buffer.cast(), text.len());
            self.buffer.add(text.len()).write(0);
        }
        Ok(())
    }
}
