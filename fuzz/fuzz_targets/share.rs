// SPDX-License-Identifier: Apache-2.0
//! Bytes of a share or of a layout descriptor, unchanged and with a corrected header.

#![no_main]

mod reading;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reading::target("share").run(bytes));
