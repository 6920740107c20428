//! Link flags of the shared library. Generates nothing.

const VERSIONS: &str = "src/ffi/common/version.rs";

fn main() {
    println!("cargo:rerun-if-changed=src/build.rs");
    println!("cargo:rerun-if-changed={VERSIONS}");
    // The loader must not take a library for one of another binary interface.
    let source = std::fs::read_to_string(VERSIONS).unwrap_or_default();
    let after = |text: &str| {
        source.split_once(text).map(|(_, rest)| rest.split(';').next().unwrap_or("").to_string())
    };
    let Some(number) = after("KVMEM_ABI_VERSION: u32 = ") else {
        println!("cargo:error={VERSIONS} has no KVMEM_ABI_VERSION");
        return;
    };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libkvmem.so.{number}");
    // Each symbol has the SONAME as its version, so that a program with libraries of two interfaces, such as a plugin's, calls the one it was
    // linked with. Of the common linkers only GNU ld does this.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--default-symver");
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=bfd");
    // Unloading a Rust shared object leaves its threads and thread-locals behind, and crashes.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
