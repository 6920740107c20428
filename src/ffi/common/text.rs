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
    ensure!(!data.is_null(), InvalidArgument, "{name} is NULL, and its size is {size}");
    ensure!(size <= isize::MAX as usize, InvalidArgument, "{name} can't have {size} bytes");
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), size) })
}

/// The characters of a text that fit an array of a struct, and NULs.
pub fn fixed<const SIZE: usize>(text: &str) -> [c_char; SIZE] {
    let fits = (0..SIZE).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let mut array = [0; SIZE];
    for (to, from) in array.iter_mut().zip(text[..fits].bytes()) {
        *to = from as c_char;
    }
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let length = |text: &str| fixed::<488>(text).iter().position(|byte| *byte == 0);
        assert_eq!(length(""), Some(0));
        assert_eq!(length("no memory"), Some(9));
        assert_eq!(length(&"a".repeat(600)), Some(487));
        assert_eq!(length(&"€".repeat(200)), Some(486));
    }
}
