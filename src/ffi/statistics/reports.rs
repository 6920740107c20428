// SPDX-License-Identifier: Apache-2.0
//! What other processes of the user read of this one, by the byte that they send.

use std::cmp::Reverse;
use std::fmt::Write;

use super::text::status_label;
use super::{text, trace};
use crate::base::Result;
use crate::base::sorting::sort_few_by_key;
use crate::run::phases::now;
use crate::run::statistics::{DIRECTION_LABELS, METHOD_LABELS, last_runs};
use crate::run::trace::EndedRun;

/// The runs that are listed: so many, of the last ten seconds.
const SLOWEST: usize = 10;
const RECENT: u64 = 10_000_000_000;

pub(super) fn of_kind(kind: u8) -> Option<Result<Vec<u8>>> {
    match kind {
        b't' => Some(text::all().map(String::into_bytes)),
        b'j' => Some(trace::all().map(String::into_bytes)),
        b's' => Some(last_runs().map(|(runs, _)| slowest(&runs, now()).into_bytes())),
        _ => None,
    }
}

/// The runs that took longest of those that have ended lately, one per line: how long ago it ended, its duration, its bytes, its
/// method, direction and status, the number of its transfer, and for each phase its name and duration, separated by tabs. All times are
/// in nanoseconds.
fn slowest(runs: &[EndedRun], now: u64) -> String {
    let is_recent = |run: &&EndedRun| now.saturating_sub(run.times.end()) <= RECENT;
    let mut slowest = Vec::with_capacity(SLOWEST + 1);
    for run in runs.iter().filter(is_recent) {
        slowest.push(run);
        sort_few_by_key(&mut slowest, |run| Reverse(run.times.duration));
        slowest.truncate(SLOWEST);
    }
    let mut text = String::new();
    for run in slowest {
        let (ago, times) = (now.saturating_sub(run.times.end()), &run.times);
        let method = METHOD_LABELS.get(usize::from(run.method)).copied().unwrap_or_default();
        let direction = DIRECTION_LABELS.get(usize::from(run.direction)).copied().unwrap_or_default();
        let status = status_label(run.status.map_or(0, |status| status as i32));
        let EndedRun { bytes, transfer, .. } = run;
        // A String takes any text.
        let _ =
            write!(text, "{ago}\t{}\t{bytes}\t{method}\t{direction}\t{status}\t{transfer}", times.duration);
        for (phase, since, until) in times.phases(run.status.is_some()) {
            let _ = write!(text, "\t{} {}", phase.name(), until - since);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::run::phases::RunTimes;

    fn run(started: u64, duration: u64, status: Option<Status>) -> EndedRun {
        let times = RunTimes { started, duration, reached: [started + 1, 0, 0, 0] };
        EndedRun { transfer: 7, user_data: 0, bytes: 4096, method: 1, direction: 0, status, times }
    }

    #[test]
    fn the_slowest_recent_runs_are_listed_with_their_phases() {
        let late = RECENT + 1000;
        let runs = [run(0, 999, None), run(1000, 50, None), run(late - 20, 20, Some(Status::TimedOut))];
        assert_eq!(
            slowest(&runs, late),
            format!(
                "{}\t50\t4096\tmemcpy\thost_to_host\tok\t7\tqueued 1\tmoved 49\n\
                 0\t20\t4096\tmemcpy\thost_to_host\ttimed_out\t7\tqueued 1\tmoved 19\n",
                RECENT - 50
            )
        );
        let many: Vec<_> = (0..50).map(|at| run(late, at, None)).collect();
        assert_eq!(slowest(&many, late + 50).lines().count(), SLOWEST);
        assert!(of_kind(b'x').is_none());
    }
}
