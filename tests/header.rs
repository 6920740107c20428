// SPDX-License-Identifier: Apache-2.0
//! include/kvmem.h is what cbindgen makes of src/ffi. `make header` writes it anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

/// The files of the C interface, in the order of the header.
const SOURCES: [&str; 31] = [
    "common/version",
    "common/status",
    "common/error",
    "common/log",
    "common/time",
    "nixl/load",
    "cuda/device",
    "cuda/copy_rates",
    "cuda/peer_rates",
    "common/blob",
    "region/info",
    "region/create",
    "region/adopt",
    "cuda/ipc",
    "nixl/agent",
    "nixl/notification",
    "nixl/registration",
    "layout/build",
    "layout/info",
    "layout/checksum",
    "region/elastic",
    "share/create",
    "share/open",
    "share/socket",
    "share/broker",
    "queue",
    "transfer/run",
    "transfer/progress",
    "transfer/path",
    "cuda/vmm",
    "cuda/vmm_handles",
];

fn sources(root: &Path) -> Vec<PathBuf> {
    SOURCES.iter().map(|name| root.join("src/ffi").join(name).with_extension("rs")).collect()
}

#[test]
fn the_committed_header_is_the_generated_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let builder = sources(root).into_iter().fold(cbindgen::Builder::new(), cbindgen::Builder::with_src);
    let mut generated = Vec::new();
    builder.with_config(config).generate().expect("cbindgen reads src/ffi").write(&mut generated);
    let generated = String::from_utf8(generated).unwrap();

    let path = root.join("include/kvmem.h");
    if std::env::var_os("KVMEM_BLESS").is_some() {
        std::fs::create_dir_all(root.join("include")).unwrap();
        std::fs::write(&path, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).expect("include/kvmem.h is there");
    assert!(committed == generated, "include/kvmem.h is not what src/ffi says; run `make header`");
}
