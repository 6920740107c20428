// SPDX-License-Identifier: Apache-2.0
//! Properties of cuFile, the library that NIXL's GDS plugins call.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::NonNull;

use crate::base::OpenLibrary;

/// CUfileError_t.
#[repr(C)]
struct CufileError {
    code: c_int,
    _driver: c_int,
}

/// CUfileDrvProps_t up to the field that is read here, and space for the fields that newer versions add.
#[repr(C)]
struct DriverProperties {
    _version: [c_uint; 2],
    _sizes: [usize; 2],
    _status: c_uint,
    control: c_uint,
    _more: [u64; 64],
}

/// In `control`: without GDS, bytes are silently copied through host memory.
const ALLOWS_COMPATIBILITY: c_uint = 1 << 1;

/// Whether cuFile may copy bytes through host memory. The library must have been loaded and opened by a plugin.
pub fn may_bounce() -> Result<bool, String> {
    let Ok(library) = OpenLibrary::loaded(c"libcufile.so.0") else {
        return Err("libcufile.so.0 is not loaded".to_string());
    };
    let Some(found) = library.address_of(c"cuFileDriverGetProperties") else {
        return Err("libcufile.so.0 has no cuFileDriverGetProperties".to_string());
    };
    type GetProperties = unsafe extern "C" fn(*mut DriverProperties) -> CufileError;
    // SAFETY: the function of this name has this signature in all versions of libcufile.so.0.
    let get = unsafe { std::mem::transmute::<NonNull<c_void>, GetProperties>(found) };
    let mut properties =
        DriverProperties { _version: [0; 2], _sizes: [0; 2], _status: 0, control: 0, _more: [0; 64] };
    // SAFETY: the struct is at least as large as cuFile's.
    let status = unsafe { get(&mut properties) };
    match status.code {
        0 => Ok(properties.control & ALLOWS_COMPATIBILITY != 0),
        code => Err(format!("cuFileDriverGetProperties returned {code}")),
    }
}
