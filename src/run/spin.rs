// SPDX-License-Identifier: Apache-2.0
//! Polling before a thread sleeps: waking it costs more than the poll.

use std::time::{Duration, Instant};

use crate::base::thread::yields_soon;

/// How long a waiting thread polls before it sleeps. Not in a model, which has no time.
const SPIN: Duration = Duration::from_micros(if cfg!(kvmem_model) { 0 } else { 200 });

/// Polls a condition until it is met, until the deadline, or for a short time. Returns whether it is met.
pub fn is_met_soon(deadline: Option<Instant>, is_met: impl Fn() -> bool) -> bool {
    if is_met() {
        return true;
    }
    let now = Instant::now();
    let until = deadline.map_or(now + SPIN, |deadline| deadline.min(now + SPIN));
    loop {
        if is_met() {
            return true;
        }
        if Instant::now() >= until || !yields_soon() {
            return is_met();
        }
    }
}
