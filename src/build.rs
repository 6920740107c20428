//! Link flags of the shared library. Generates nothing.

fn main() {
    println!("cargo:rerun-if-changed=src/build.rs");
    // Before 1.0 a new minor version may break programs, so the loader must not take it for the old one.
    let (major, minor) = (env("CARGO_PKG_VERSION_MAJOR"), env("CARGO_PKG_VERSION_MINOR"));
    let version = if major == "0" { format!("0.{minor}") } else { major };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libkvmem.so.{version}");
    // Unloading a Rust shared object leaves its threads and thread-locals behind, and crashes.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
