// SPDX-License-Identifier: Apache-2.0
//! include/kvmem.h is what cbindgen makes of src/ffi. `make header` writes it anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

/// The files of the C face, in the order of their declarations: that is the order of the header.
fn sources(root: &Path) -> Vec<PathBuf> {
    let room = root.join("src/ffi");
    let modules = std::fs::read_to_string(room.join("mod.rs")).unwrap();
    let names = modules.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    names.map(|name| room.join(name).with_extension("rs")).collect()
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
