// SPDX-License-Identifier: Apache-2.0
//! Timeouts.

use std::time::{Duration, Instant};

use crate::base::deadline_of;

/// A timeout that never expires, for every `timeout_ns`.
pub const KVMEM_TIMEOUT_FOREVER: u64 = u64::MAX;

/// A timeout in nanoseconds as the core has it.
pub(in crate::ffi) fn timeout(nanoseconds: u64) -> Option<Duration> {
    (nanoseconds != KVMEM_TIMEOUT_FOREVER).then(|| Duration::from_nanos(nanoseconds))
}

/// When a timeout that begins now ends.
pub(in crate::ffi) fn deadline(nanoseconds: u64) -> Option<Instant> {
    deadline_of(timeout(nanoseconds))
}
