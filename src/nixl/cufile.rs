// SPDX-License-Identifier: Apache-2.0
//! What cuFile, which NIXL's GDS plugins call, says of itself.

use std::ffi::{c_int, c_uint};

/// CUfileError_t.
#[repr(C)]
struct CufileError {
    code: c_int,
    _driver: c_int,
}

/// CUfileDrvProps_t up to what is read here, and room for what newer versions have behind it.
#[repr(C)]
struct DriverProperties {
    _version: [c_uint; 2],
    _sizes: [usize; 2],
    _status: c_uint,
    control: c_uint,
    _more: [u64; 64],
}

/// In `control`: where GDS can't be, bytes go through host memory, and nobody is told.
const ALLOWS_COMPATIBILITY: c_uint = 1 << 1;

/// Whether cuFile may pass bytes through host memory where it can't do without. Asked of a library that a plugin has
/// loaded, and opened.
pub fn may_bounce() -> Result<bool, String> {
    // SAFETY: RTLD_NOLOAD only asks. A library that is found stays: the count is not given back, so that the function
    // looked up below can't go.
    let library = unsafe { libc::dlopen(c"libcufile.so.0".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return Err("libcufile.so.0 is not loaded".to_string());
    }
    // SAFETY: an open library and a NUL-terminated name.
    let found = unsafe { libc::dlsym(library, c"cuFileDriverGetProperties".as_ptr()) };
    if found.is_null() {
        return Err("libcufile.so.0 has no cuFileDriverGetProperties".to_string());
    }
    type GetProperties = unsafe extern "C" fn(*mut DriverProperties) -> CufileError;
    // SAFETY: the function of this name has this signature in all versions of libcufile.so.0.
    let get = unsafe { std::mem::transmute::<*mut libc::c_void, GetProperties>(found) };
    let mut properties =
        DriverProperties { _version: [0; 2], _sizes: [0; 2], _status: 0, control: 0, _more: [0; 64] };
    // SAFETY: the struct is at least as large as cuFile's.
    let answer = unsafe { get(&mut properties) };
    match answer.code {
        0 => Ok(properties.control & ALLOWS_COMPATIBILITY != 0),
        code => Err(format!("cuFileDriverGetProperties answers {code}")),
    }
}
