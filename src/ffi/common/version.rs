// SPDX-License-Identifier: Apache-2.0
//! Versions. Cargo.toml is the source; a test compares the other places with it.

use std::ffi::c_char;

/// Major version of the headers.
pub const KVMEM_VERSION_MAJOR: u32 = 0;
/// Minor version of the headers. Before 1.0 a new minor version may break programs.
pub const KVMEM_VERSION_MINOR: u32 = 1;
/// Patch version of the headers.
pub const KVMEM_VERSION_PATCH: u32 = 0;
/// Version of the binary interface: 100 × major version, plus the minor version before 1.0. It changes with
/// the SONAME: libkvmem.so.0.MINOR before 1.0, libkvmem.so.MAJOR after.
pub const KVMEM_ABI_VERSION: u32 = 1;

/// Returns the version of the library, such as "0.1.0". The string is static.
#[unsafe(no_mangle)]
pub extern "C" fn kvmem_version_string() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns the version of the library as a number: 10000 × major + 100 × minor + patch.
#[unsafe(no_mangle)]
pub extern "C" fn kvmem_version_number() -> u32 {
    KVMEM_VERSION_MAJOR * 10_000 + KVMEM_VERSION_MINOR * 100 + KVMEM_VERSION_PATCH
}

/// Returns the version of the library's binary interface. A program that was compiled with another
/// KVMEM_ABI_VERSION must not use the library.
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
        let minor_breaks = if KVMEM_VERSION_MAJOR == 0 { KVMEM_VERSION_MINOR } else { 0 };
        assert_eq!(KVMEM_ABI_VERSION, 100 * KVMEM_VERSION_MAJOR + minor_breaks);
    }
}
