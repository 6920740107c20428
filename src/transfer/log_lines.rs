// SPDX-License-Identifier: Apache-2.0
//! What the log says of a transfer's creation, and of the paths that it does not take.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Candidate, Path, Transfer};
use crate::layout::Layout;
use crate::log::{Count, Level, Microseconds, enabled, log};

impl Transfer {
    /// The line about a new transfer, and why a faster path is not taken.
    pub(super) fn log_creation(&self, source: &Layout, destination: &Layout) {
        if enabled(Level::Info) {
            self.write_creation(source, destination);
        }
    }

    #[cold]
    fn write_creation(&self, source: &Layout, destination: &Layout) {
        let (id, summary, candidates) = (self.completion.log_id(), self.summary(), self.candidates());
        let taken = candidates.iter().find(|candidate| candidate.path == self.path);
        log!(
            Debug,
            "transfer {id} created: {}, {} in {} and {}, layout {} to layout {}, {} expected",
            self.path,
            Count(summary.bytes, "byte"),
            Count(summary.pieces, "piece"),
            Count(summary.moves, "move"),
            source.log_id(),
            destination.log_id(),
            microseconds(taken.map_or(0.0, |taken| taken.seconds))
        );
        for candidate in &candidates {
            let Candidate { path, seconds, reason, .. } = candidate;
            let reason = reason.as_deref().unwrap_or("possible");
            log!(Trace, "transfer {id} weighed {path}: {} expected, {reason}", microseconds(*seconds));
        }
        if let Some((faster, reason)) = self.faster_but_impossible(&candidates)
            && is_news(self.path, faster)
        {
            log!(
                Info,
                "transfer {id} takes the path {}, because {faster} is not possible: {reason}",
                self.path
            );
        }
    }

    fn faster_but_impossible<'a>(&self, candidates: &'a [Candidate]) -> Option<(Path, &'a str)> {
        let taken = candidates.iter().find(|candidate| candidate.path == self.path)?;
        // Of what a file's candidates take nothing is known. Those marked as impossible would be taken if they were possible.
        let faster = candidates.iter().filter(|other| other.is_impossible && other.seconds < taken.seconds);
        faster.filter_map(|other| Some((other.path, other.reason.as_deref()?))).next()
    }
}

fn microseconds(seconds: f64) -> Microseconds {
    Microseconds(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Whether it was not logged before that one path is taken for another: an engine creates transfers by the thousand.
fn is_news(taken: Path, faster: Path) -> bool {
    static LOGGED: [AtomicU32; 32] = [const { AtomicU32::new(0) }; 32];
    let bit = 1u32 << (faster as u32 % 32);
    let known = LOGGED.get(taken as usize).map_or(0, |known| known.fetch_or(bit, Ordering::Relaxed));
    known & bit == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_taken_for_another_is_news_once() {
        assert!(is_news(Path::PreadStaged, Path::Memcpy));
        assert!(!is_news(Path::PreadStaged, Path::Memcpy));
        assert!(is_news(Path::PreadStaged, Path::NixlFileRead));
    }
}
