// SPDX-License-Identifier: Apache-2.0
//! What the last run of a transfer has taken, beside what was estimated, as a line of its explanation.

use std::fmt::Write;
use std::time::Duration;

use crate::base::Microseconds;
use crate::engine::explain::RunEstimate;
use crate::run::Completion;
use crate::run::phases::{RunPhase, RunTimes};

/// What phases of a run are estimated to take. Nothing is known of the others: how long a run waits for threads, streams and memory,
/// and how long it takes to report its end.
#[derive(Clone, Copy, Default)]
pub(super) struct PhaseEstimates {
    pub gathered: Option<RunEstimate>,
    pub moved: Option<RunEstimate>,
    pub verified: Option<RunEstimate>,
}

impl PhaseEstimates {
    fn described(&self, phase: RunPhase) -> String {
        let estimate = match phase {
            RunPhase::Gathered => self.gathered,
            RunPhase::Moved => self.moved,
            RunPhase::Verified => self.verified,
            RunPhase::Queued | RunPhase::Completed => None,
        };
        let Some(RunEstimate { seconds, assumed }) = estimate else { return " (not estimated)".to_string() };
        let taken = Microseconds(Duration::try_from_secs_f64(seconds).unwrap_or_default());
        format!(" ({} {taken})", if assumed { "assumed" } else { "estimated" })
    }
}

/// Nothing before the end of the first run. `estimates` are of its blocks; `None` if the next run has other blocks.
pub(super) fn last_run(
    completion: &Completion,
    estimates: impl FnOnce() -> Option<PhaseEstimates>,
) -> String {
    let Some(times) = completion.times() else { return String::new() };
    described(&times, !completion.has_succeeded(), estimates())
}

fn described(times: &RunTimes, has_failed: bool, estimates: Option<PhaseEstimates>) -> String {
    let estimated = |phase| estimates.map_or_else(String::new, |estimates| estimates.described(phase));
    let took = |since: u64, until: u64| Microseconds(Duration::from_nanos(until.saturating_sub(since)));
    let blocks = if estimates.is_some() { "" } else { ", of other blocks" };
    let outcome = if has_failed { "failed after " } else { "" };
    let mut line = format!("last run{blocks}: {outcome}{}", took(0, times.duration));
    let mut separator = ": ";
    for (phase, since, until) in times.phases(has_failed) {
        // A String takes any text.
        let _ = write!(line, "{separator}{} {}{}", phase.name(), took(since, until), estimated(phase));
        separator = ", ";
    }
    if times.phases(has_failed).next().is_none() {
        let _ = write!(line, " within the call that submitted it{}", estimated(RunPhase::Moved));
    }
    line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(seconds: f64, assumed: bool) -> Option<RunEstimate> {
        Some(RunEstimate { seconds, assumed })
    }

    #[test]
    fn each_phase_has_its_duration_beside_its_estimate() {
        let times = RunTimes { started: 1000, reached: [2000, 2250, 5500, 6000], duration: 5100 };
        let all = PhaseEstimates {
            gathered: estimate(0.5e-6, false),
            moved: estimate(2.5e-6, false),
            verified: estimate(0.4e-6, true),
        };
        assert_eq!(
            described(&times, false, Some(all)),
            "last run: 5.1 us: queued 1.0 us (not estimated), gathered 0.2 us (estimated 0.5 us), \
             moved 3.2 us (estimated 2.5 us), verified 0.5 us (assumed 0.4 us), completed 0.1 us (not estimated)\n"
        );
        assert_eq!(
            described(
                &RunTimes { reached: [2000, 2250, 5500, 0], ..times },
                false,
                Some(PhaseEstimates::default())
            ),
            "last run: 5.1 us: queued 1.0 us (not estimated), gathered 0.2 us (not estimated), \
             moved 3.2 us (not estimated), completed 0.6 us (not estimated)\n"
        );
        assert_eq!(
            described(&RunTimes { reached: [0; 4], ..times }, true, None),
            "last run, of other blocks: failed after 5.1 us: queued 5.1 us\n"
        );
        assert_eq!(
            described(&RunTimes { reached: [0; 4], ..times }, false, Some(all)),
            "last run: 5.1 us within the call that submitted it (estimated 2.5 us)\n"
        );
    }
}
