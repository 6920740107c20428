// SPDX-License-Identifier: Apache-2.0
//! What the log reports of runs.

use std::time::Duration;

use crate::base::{LogId, Microseconds, Result, Status, log};

pub(super) fn ended(id: LogId, bytes: u64, outcome: &Result<()>, nanoseconds: u64) {
    let took = || Microseconds(Duration::from_nanos(nanoseconds));
    match outcome {
        Ok(()) => {
            log!(
                Debug,
                "transfer {id} ended: {bytes} bytes in {}, {:.2} GB/s",
                took(),
                rate(bytes, nanoseconds)
            );
        }
        Err(error) if error.status() == Status::Cancelled => {
            log!(Debug, "transfer {id} cancelled after {}", took());
        }
        Err(error) => {
            let status = error.status().name().to_string_lossy();
            log!(Debug, "transfer {id} failed after {}: {status}: {error}", took());
        }
    }
}

/// In gigabytes per second, which are bytes per nanosecond.
fn rate(bytes: u64, nanoseconds: u64) -> f64 {
    bytes as f64 / (nanoseconds.max(1) as f64)
}
