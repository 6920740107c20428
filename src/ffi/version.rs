// SPDX-License-Identifier: Apache-2.0
//! Versions: Cargo.toml is the source, a test holds the rest to it.

use std::ffi::c_char;

/// Major version of the header.
pub const KVMEM_VERSION_MAJOR: u32 = 0;
/// Minor version of the header. Before 1.0 a new minor version may break programs.
pub const KVMEM_VERSION_MINOR: u32 = 1;
/// Patch version of the header.
pub const KVMEM_VERSION_PATCH: u32 = 0;
/// Version of the binary interface: the number in libkvmem.so.N.
pub const KVMEM_ABI_VERSION: u32 = 0;

/// The library's version, such as "0.1.0".
///
/// @return a static string
#[unsafe(no_mangle)]
pub extern "C" fn kvmem_version_string() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The library's version as a number: 10000 × major + 100 × minor + patch.
#[unsafe(no_mangle)]
pub extern "C" fn kvmem_version_number() -> u32 {
    KVMEM_VERSION_MAJOR * 10_000 + KVMEM_VERSION_MINOR * 100 + KVMEM_VERSION_PATCH
}

/// The library's binary interface, to compare with KVMEM_ABI_VERSION of the header a program was built with.
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
        assert_eq!(KVMEM_ABI_VERSION, KVMEM_VERSION_MAJOR);
    }
}
