// SPDX-License-Identifier: Apache-2.0
//! Timeouts and deadlines, of which `None` is no limit.

use std::time::{Duration, Instant};

/// When a timeout that begins now ends; `None` also if that exceeds the clock's range.
pub fn deadline_of(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// The time until a deadline; zero after it.
pub fn time_left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

pub fn has_passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

pub fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    [one, other].into_iter().flatten().min()
}
