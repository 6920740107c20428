// SPDX-License-Identifier: Apache-2.0
//! Refusals from a broker.

#![no_main]

mod reading;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reading::target("refusal").run(bytes));
