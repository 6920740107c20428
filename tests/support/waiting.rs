// SPDX-License-Identifier: Apache-2.0
//! Waits of tests for what other threads do.

use std::time::{Duration, Instant};

/// Far longer than any of it takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until a condition is met. Fails the test with `what` if it never is.
#[track_caller]
pub fn until(what: &str, is_met: impl Fn() -> bool) {
    until_some(what, || is_met().then_some(()));
}

/// Repeats an attempt until it has a result.
#[track_caller]
pub fn until_some<R>(what: &str, mut attempt: impl FnMut() -> Option<R>) -> R {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}
