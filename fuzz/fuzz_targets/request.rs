// SPDX-License-Identifier: Apache-2.0
//! Requests from clients to a broker.

#![no_main]

mod reading;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reading::target("request").run(bytes));
