// SPDX-License-Identifier: Apache-2.0
//! Data from a socket on which a share is received, unchanged and with corrected checksums.

#![no_main]

mod reading;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reading::target("message").run(bytes));
