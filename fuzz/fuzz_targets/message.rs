// SPDX-License-Identifier: Apache-2.0
//! What comes over a socket in place of a share, as it comes and with its checksums made right.

#![no_main]

mod reading;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reading::target("message").run(bytes));
