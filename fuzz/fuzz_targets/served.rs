// SPDX-License-Identifier: Apache-2.0
//! What a peer may ask of an owner that serves transfers of a layout.

#![no_main]

mod reading;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reading::target("served").run(bytes));
