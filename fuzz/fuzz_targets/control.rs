// SPDX-License-Identifier: Apache-2.0
//! Control blocks of regions.

#![no_main]

mod reading;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reading::target("control").run(bytes));
