// SPDX-License-Identifier: Apache-2.0
//! What a region's owner may have in its control block.

#![no_main]

mod reading;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reading::target("control").run(bytes));
