//! kvmem: KV-cache memory for LLM inference engines.

/// The version of the library, from `Cargo.toml`.
#[unsafe(no_mangle)]
pub extern "C" fn kvmem_version_string() -> *const std::ffi::c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
