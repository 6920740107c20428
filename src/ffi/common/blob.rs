// SPDX-License-Identifier: Apache-2.0
//! Blobs: bytes that kvmem made.

use std::ffi::c_void;

use crate::ffi::common::handle::{Handle, destroy, opaque, peek};

/// Bytes or text that kvmem created. A NUL follows the last byte, so that text can be used as a C string.
pub struct kvmem_blob {
    handle: Handle<Vec<u8>>,
}
opaque!(kvmem_blob, Vec<u8>, "blob");

/// The value of a blob with these bytes.
pub(in crate::ffi) fn value(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.push(0);
    bytes
}

/// Returns the first byte of a blob. The pointer is valid as long as the blob.
///
/// @param blob a blob; NULL returns NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_blob_data(blob: *const kvmem_blob) -> *const c_void {
    // SAFETY: NULL or a live blob, by contract.
    unsafe { peek(blob) }.map_or(std::ptr::null(), |bytes| bytes.as_ptr().cast())
}

/// Returns the size of a blob in bytes, without the terminating NUL.
///
/// @param blob a blob; NULL returns 0
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_blob_size(blob: *const kvmem_blob) -> usize {
    // SAFETY: NULL or a live blob, by contract.
    unsafe { peek(blob) }.map_or(0, |bytes| bytes.len() - 1)
}

/// Destroys a blob.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_blob_destroy(blob: *mut kvmem_blob) {
    // SAFETY: by contract.
    unsafe { destroy(blob) };
}
