//! Link flags of the shared library. Generates nothing.

fn main() {
    println!("cargo:rerun-if-changed=src/build.rs");
    let major = env("CARGO_PKG_VERSION_MAJOR");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libkvmem.so.{major}");
    // Unloading a Rust shared object leaves its threads and thread-locals behind, and crashes.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
