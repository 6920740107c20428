// SPDX-License-Identifier: Apache-2.0
//! Libraries that are opened at run time.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// An open library. Dropping it closes it.
pub struct OpenLibrary(NonNull<c_void>);

impl OpenLibrary {
    /// Opens a file, or what the loader finds by a name. Constructors of the library run, as for any program that uses it. An error is the
    /// reason that the loader reports.
    pub fn open(path: &Path) -> Result<Self, String> {
        let name =
            CString::new(path.as_os_str().as_bytes()).map_err(|_| "its path holds a NUL byte".to_string())?;
        Self::opened(&name, libc::RTLD_NOW | libc::RTLD_LOCAL)
    }

    /// Opens a library that is loaded already.
    pub fn loaded(name: &CStr) -> Result<Self, String> {
        Self::opened(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
    }

    fn opened(name: &CStr, flags: c_int) -> Result<Self, String> {
        // SAFETY: a NUL-terminated path.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        NonNull::new(handle).map(Self).ok_or_else(loader_error)
    }

    /// The address of a symbol, if the library or one that it needs has it.
    pub fn address_of(&self, symbol: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: an open handle and a NUL-terminated name.
        NonNull::new(unsafe { libc::dlsym(self.raw(), symbol.as_ptr()) })
    }

    pub fn raw(&self) -> *mut c_void {
        self.0.as_ptr()
    }

    /// Never closes it.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for OpenLibrary {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's alone.
        unsafe { libc::dlclose(self.raw()) };
    }
}

pub fn file_of(address: *const c_void) -> Option<PathBuf> {
    // SAFETY: dladdr fills `info` with strings that live as long as the library, which is loaded now.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(PathBuf::from(OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes())))
    }
}

fn loader_error() -> String {
    // SAFETY: dlerror returns NULL or a NUL-terminated string of this thread.
    unsafe {
        match libc::dlerror() {
            text if text.is_null() => "the loader reports no reason".to_string(),
            text => CStr::from_ptr(text).to_string_lossy().into_owned(),
        }
    }
}
