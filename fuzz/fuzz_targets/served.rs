// SPDX-License-Identifier: Apache-2.0
//! Messages from peers to an owner that serves transfers of a layout.

#![no_main]

mod reading;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reading::target("served").run(bytes));
