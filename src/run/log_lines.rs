// SPDX-License-Identifier: Apache-2.0
//! What the log reports of runs.

use std::time::Duration;

use crate::base::{LogId, Microseconds, Result, Status, log};

pub(super) fn ended(id: LogId, bytes: u64, outcome: &Result<()>, duration: Duration) {
    match outcome {
        Ok(()) => {
            log!(
                Debug,
                "transfer {id} ended: {bytes} bytes in {}, {:.2} GB/s",
                Microseconds(duration),
                rate(bytes, duration)
            );
        }
        Err(error) if error.status() == Status::Cancelled => {
            log!(Debug, "transfer {id} cancelled after {}", Microseconds(duration));
        }
        Err(error) => {
            let (took, status) = (Microseconds(duration), error.status().name());
            log!(Debug, "transfer {id} failed after {took}: {status}: {error}");
        }
    }
}

/// In gigabytes per second, which are bytes per nanosecond.
fn rate(bytes: u64, duration: Duration) -> f64 {
    bytes as f64 / (duration.as_nanos().max(1) as f64)
}
