// SPDX-License-Identifier: Apache-2.0
//! Log messages about the method of a new transfer, and about those that it does not take.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::base::{Count, LogId, Microseconds, Result, log};
use crate::engine::Candidate;
use crate::engine::explain::{RunEstimate, Summary};
use crate::run::TransferMethod;

/// Logs the method of a transfer, and why a faster one is not taken.
#[cold]
pub fn log_method(
    id: LogId,
    method: TransferMethod,
    (summary, candidates, runs): (Result<Summary>, Vec<Candidate>, Option<RunEstimate>),
) {
    let summary = match summary {
        Ok(summary) => summary,
        Err(error) => return log!(Error, "the requests of transfer {id} cannot be counted: {error}"),
    };
    let taken = candidates.iter().find(|candidate| candidate.method == method);
    let seconds = runs.map(|runs| runs.seconds).or(taken.map(|taken| taken.seconds)).unwrap_or_default();
    log!(
        Debug,
        "transfer {id} prepared: {method}, {} in {} and {}, {} expected",
        Count(summary.bytes, "byte"),
        Count(summary.pieces, "piece"),
        Count(summary.moves, "move"),
        microseconds(seconds)
    );
    for candidate in &candidates {
        let Candidate { method, seconds, reason, .. } = candidate;
        let reason = reason.as_deref().unwrap_or("possible");
        log!(Trace, "transfer {id} compared {method}: {} expected, {reason}", microseconds(*seconds));
    }
    if let Some((faster, reason)) = faster_but_impossible(seconds, &candidates)
        && is_news(method, faster)
    {
        log!(Info, "transfer {id} takes the method {method}, because {faster} is not possible: {reason}");
    }
}

/// A faster method that is not possible, and the reason. The candidates of files have no estimates; those marked as
/// impossible would be taken if they were possible.
fn faster_but_impossible(seconds: f64, candidates: &[Candidate]) -> Option<(TransferMethod, &str)> {
    let faster = candidates.iter().filter(|other| other.is_impossible && other.seconds < seconds);
    faster.filter_map(|other| Some((other.method, other.reason.as_deref()?))).next()
}

fn microseconds(seconds: f64) -> Microseconds {
    Microseconds(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Whether this replacement of one method by another was not logged yet. It is logged once, because an engine may create
/// thousands of transfers.
fn is_news(taken: TransferMethod, faster: TransferMethod) -> bool {
    static LOGGED: [AtomicU32; 32] = [const { AtomicU32::new(0) }; 32];
    let bit = 1u32 << (faster as u32 % 32);
    let known = LOGGED.get(taken as usize).map_or(0, |known| known.fetch_or(bit, Ordering::Relaxed));
    known & bit == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_method_is_logged_once() {
        assert!(is_news(TransferMethod::Pread, TransferMethod::Memcpy));
        assert!(!is_news(TransferMethod::Pread, TransferMethod::Memcpy));
        assert!(is_news(TransferMethod::Pread, TransferMethod::Nixl));
    }
}
