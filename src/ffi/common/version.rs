// SPDX-License-Identifier: Apache-2.0
//! Versions. Cargo.toml is the source; a test compares the other places with it.

use std::ffi::c_char;

/// Major version of the headers.
pub const KVMEM_VERSION_MAJOR: u32 = 0;
/// Minor version of the headers. Before 1.0 a new one may break programs.
pub const KVMEM_VERSION_MINOR: u32 = 1;
/// Patch version of the headers.
pub const KVMEM_VERSION_PATCH: u32 = 0;
/// Number of the binary interface, and of the SONAME: libkvmem.so.2. It is raised by each change that a
/// compiled program would notice: a removed function, other parameters, other fields of a struct. New
/// functions and constants do not raise it.
pub const KVMEM_ABI_VERSION: u32 = 2;

/// Returns the version of the library, such as "0.1.0". The string is static.
#[unsafe(no_mangle)]
pub extern "C" fn kvmem_version_string() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns the number of the library's binary interface. A program that was compiled with another
/// KVMEM_ABI_VERSION must not use the library: the loader does not find it under another number, and the
/// bindings for C++, Go, Python and Zig compare both when they are loaded.
#[unsafe(no_mangle)]
pub extern "C" fn kvmem_abi_version() -> u32 {
    KVMEM_ABI_VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_version_of_the_package() {
        let header = format!("{KVMEM_VERSION_MAJOR}.{KVMEM_VERSION_MINOR}.{KVMEM_VERSION_PATCH}");
        assert_eq!(header, env!("CARGO_PKG_VERSION"));
    }
}
