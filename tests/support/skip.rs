// SPDX-License-Identifier: Apache-2.0
//! Skips in Rust tests. libtest cannot report a test as skipped while it runs, so a skip is printed and written to the
//! record that CI compares with the skips it expects (scripts/skips.py).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Write;

/// Reports that the running test, or a part of it, is skipped because the machine lacks something. The caller then
/// returns from the test, or continues with the rest. Call it on the test's own thread, whose name is that of the test.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().expect("a skip is reported on the thread of its test");
    println!("skipped {test}: {reason}");
    let Some(record) = std::env::var_os("KVMEM_TEST_SKIPS").filter(|path| !path.is_empty()) else { return };
    let program = env!("CARGO_CRATE_NAME");
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(record).unwrap();
    file.write_all(format!("rust:{program}\t{test}\t{reason}\n").as_bytes()).unwrap();
}
