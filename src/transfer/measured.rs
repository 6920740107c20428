// SPDX-License-Identifier: Apache-2.0
//! What the last run of a transfer has taken, as a line of its explanation.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::prepared_pairs::PreparedPairs;
use crate::base::Microseconds;
use crate::run::Completion;
use crate::run::phases::{RunPhase, RunTimes};

/// Nothing before the end of the first run.
pub(super) fn last_run(completion: &Completion, next: &PreparedPairs) -> String {
    let Some(times) = completion.times() else { return String::new() };
    let has_same_blocks = next.was_submitted.load(Ordering::Acquire);
    described(&times, !completion.has_succeeded(), has_same_blocks, next.estimated_seconds())
}

/// `estimate` is for its blocks, in seconds; `None` if the next run has other blocks, or nothing is known. It is for what moves the
/// blocks, so it is behind that phase.
fn described(times: &RunTimes, has_failed: bool, has_same_blocks: bool, estimate: Option<f64>) -> String {
    let estimate = estimate.filter(|seconds| has_same_blocks && *seconds > 0.0);
    let estimated = estimate.map(|seconds| {
        format!(" (estimated {})", Microseconds(Duration::try_from_secs_f64(seconds).unwrap_or_default()))
    });
    let estimated = estimated.as_deref().unwrap_or_default();
    let took = |since: u64, until: u64| Microseconds(Duration::from_nanos(until.saturating_sub(since)));
    let blocks = if has_same_blocks { "" } else { ", of other blocks" };
    let outcome = if has_failed { "failed after " } else { "" };
    let mut line = format!("last run{blocks}: {outcome}{}", took(0, times.duration));
    let mut separator = ": ";
    for (phase, since, until) in times.phases(has_failed) {
        let estimated = if phase == RunPhase::Moved { estimated } else { "" };
        // A String takes any text.
        let _ = write!(line, "{separator}{} {}{estimated}", phase.name(), took(since, until));
        separator = ", ";
    }
    if times.phases(has_failed).next().is_none() {
        let _ = write!(line, " within the call that submitted it{estimated}");
    }
    line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_duration_and_the_move_its_estimate() {
        let times = RunTimes { started: 1000, reached: [2000, 0, 5500, 6000], duration: 5100 };
        assert_eq!(
            described(&times, false, true, Some(2.5e-6)),
            "last run: 5.1 us: queued 1.0 us, moved 3.5 us (estimated 2.5 us), verified 0.5 us, completed 0.1 us\n"
        );
        assert_eq!(
            described(&RunTimes { reached: [0; 4], ..times }, true, false, Some(2.5e-6)),
            "last run, of other blocks: failed after 5.1 us: queued 5.1 us\n"
        );
        assert_eq!(
            described(&RunTimes { reached: [0; 4], ..times }, false, true, Some(2.5e-6)),
            "last run: 5.1 us within the call that submitted it (estimated 2.5 us)\n"
        );
        assert_eq!(
            described(&RunTimes { reached: [0; 4], ..times }, false, true, None),
            "last run: 5.1 us within the call that submitted it\n"
        );
    }
}
