// SPDX-License-Identifier: Apache-2.0
//! The NIXL library.

use std::ffi::c_char;
use std::os::unix::ffi::OsStrExt;

use crate::base::error;
use crate::ffi::common::{blob, call, call_new, kvmem_blob, kvmem_error, kvmem_status, text};
use crate::nixl::library;

/// Loads NIXL (libnixl_capi.so, version 1.5 or later). kvmem_agent_create does this, with path NULL, if it is
/// not loaded. The library stays loaded until the process ends. After a failure, another path can be tried.
///
/// @param path path of the file, or of its directory; NULL for the path in the environment variable
///        KVMEM_NIXL_LIBRARY, or, if that is not set, for the library in the loader's search path
/// @return KVMEM_STATUS_OK: NIXL is loaded from there, by this call or before
///         KVMEM_STATUS_UNAVAILABLE_NIXL: the library is missing, too old or broken; the message says which
///         KVMEM_STATUS_ALREADY_EXISTS: NIXL is loaded from another path
///         KVMEM_STATUS_INVALID_STATE: NIXL was loaded, or being loaded, before this process was forked
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_nixl_load(path: *const c_char, error: *mut *mut kvmem_error) -> kvmem_status {
    call(error, |_| library::load(text::path(path)).map(|_| ()))
}

/// Returns the path of the file that NIXL was loaded from.
///
/// @return KVMEM_STATUS_INVALID_STATE: NIXL is not loaded
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_nixl_get_path(
    path: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (path, "path"), |_| {
        let not_loaded =
            || error!(InvalidState, "NIXL is not loaded; call kvmem_nixl_load or create an agent");
        let library = library::loaded().ok_or_else(not_loaded)?;
        Ok(blob::value(library.path().as_os_str().as_bytes().to_vec()))
    })
}
