// SPDX-License-Identifier: Apache-2.0
//! Why a transfer takes its method.

use super::Candidate;
use crate::base::one_line::one_line;
use crate::run::{Record, TransferMethod};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub bytes: u64,
    /// Number of (block, layer, outer slot) units.
    pub pieces: u64,
    /// Number of contiguous spans after merging adjacent ones.
    pub moves: u64,
    /// Number of NIXL requests, or of reads and writes of a file.
    pub requests: u64,
    /// Bytes that are read and discarded.
    pub excess: u64,
}

/// What was decided about a method that was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Used,
    /// It is possible, and its estimate is no better.
    Slower,
    /// It is possible, and the reason says why it is not taken.
    NotUsed,
    /// It is not possible: the reason says why.
    Impossible,
}

/// A method that was compared, and the outcome.
#[derive(Clone, Debug)]
pub struct ComparedMethod {
    pub method: TransferMethod,
    /// Estimated throughput, from the rates of the device, of host memory, or of earlier runs; 0 if unknown.
    pub bytes_per_second: u64,
    /// No run has been timed yet, so a usual rate is assumed.
    pub assumed: bool,
    pub verdict: Verdict,
    /// Why it is not taken, or a remark on the method that is.
    pub reason: String,
}

/// The duration of the taken method, if runs and not a model estimate it.
#[derive(Clone, Copy, Debug)]
pub struct RunEstimate {
    pub seconds: f64,
    /// No run has been timed yet, so it is a usual duration.
    pub assumed: bool,
}

impl RunEstimate {
    pub fn recorded(record: &Record, bytes: u64) -> Self {
        let (seconds, is_measured) = record.seconds(bytes);
        Self { seconds, assumed: !is_measured }
    }
}

/// The outcome for each method, beginning with the one that is taken. Other methods are compared with what the model said of this one:
/// runs may be slower than it, which is no reason against the others.
pub fn compared(
    method: TransferMethod,
    bytes: u64,
    candidates: &[Candidate],
    runs: Option<RunEstimate>,
) -> Vec<ComparedMethod> {
    let taken = candidates.iter().find(|candidate| candidate.method == method);
    let taken_rate = taken.map_or(0, |candidate| rate(candidate.seconds, bytes));
    let used = ComparedMethod {
        method,
        bytes_per_second: runs.map_or(taken_rate, |runs| rate(runs.seconds, bytes)),
        assumed: runs.is_some_and(|runs| runs.assumed),
        verdict: Verdict::Used,
        reason: taken
            .and_then(|each| each.reason.clone())
            .map(|reason| one_line(reason.into_owned()))
            .unwrap_or_default(),
    };
    let others = candidates.iter().filter(|candidate| candidate.method != method);
    std::iter::once(used).chain(others.map(|each| choice(each, taken_rate, bytes))).collect()
}

fn choice(candidate: &Candidate, taken: u64, bytes: u64) -> ComparedMethod {
    let bytes_per_second = rate(candidate.seconds, bytes);
    let (verdict, reason) = match &candidate.reason {
        Some(reason) if candidate.is_impossible => (Verdict::Impossible, one_line(reason.to_string())),
        Some(reason) => (Verdict::NotUsed, one_line(reason.to_string())),
        None if bytes_per_second > taken => (Verdict::NotUsed, "another method was requested".to_string()),
        None => (Verdict::Slower, String::new()),
    };
    ComparedMethod { method: candidate.method, bytes_per_second, assumed: false, verdict, reason }
}

/// Explains a choice. `loops` describes what is copied, of one layer if layers are moved one by one, and `conditions` what the
/// estimates depend on, in lines. `layers` is the number of layers of such a transfer.
pub fn explain(
    method: TransferMethod,
    summary: Summary,
    [loops, conditions]: [&str; 2],
    candidates: &[Candidate],
    layers: Option<u64>,
    runs: Option<RunEstimate>,
) -> String {
    let compared = compared(method, summary.bytes, candidates, runs);
    let bytes_per_second = compared.first().map_or(0, |used| used.bytes_per_second);
    let speed = match runs {
        None => estimate(bytes_per_second),
        Some(RunEstimate { assumed: false, .. }) => {
            format!(", measured {} in earlier runs", gigabytes(bytes_per_second))
        }
        Some(_) => {
            let reason = "assumed, not measured, because nothing has been moved by this method yet";
            format!("{}: {reason}", estimate(bytes_per_second))
        }
    };
    let mut text = format!("{} bytes in {} moves by {method}{speed}\n", summary.bytes, summary.moves);
    text += loops;
    if let Some(layers) = layers {
        text += &format!("layer by layer: {layers} layers in order, and no move spans two layers\n");
    }
    text += &format!("bytes read in excess: {}\n", summary.excess);
    text += conditions;
    for used in compared.iter().take(1).filter(|used| !used.reason.is_empty()) {
        text += &format!("{method}: used, but {}\n", used.reason);
    }
    compared.iter().skip(1).for_each(|other| text += &line(other));
    text
}

fn line(other: &ComparedMethod) -> String {
    let verdict = match other.verdict {
        Verdict::Slower => "slower".to_string(),
        _ => format!("not used: {}", other.reason),
    };
    format!("{}{}: {verdict}\n", other.method, estimate(other.bytes_per_second))
}

fn rate(seconds: f64, bytes: u64) -> u64 {
    if seconds > 0.0 { (bytes as f64 / seconds) as u64 } else { 0 }
}

pub(super) fn estimate(rate: u64) -> String {
    if rate == 0 { String::new() } else { format!(", estimated {}", gigabytes(rate)) }
}

fn gigabytes(rate: u64) -> String {
    format!("{:.2} GB/s", rate as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text, and what is said of the taken method.
    fn explained(runs: Option<RunEstimate>) -> (String, ComparedMethod) {
        let candidates =
            [Candidate::new(TransferMethod::Nixl, 1.0), Candidate::new(TransferMethod::NixlStaged, 2.0)];
        let summary = Summary { bytes: 6_000_000_000, moves: 3, ..Summary::default() };
        let mut methods = compared(TransferMethod::Nixl, summary.bytes, &candidates, runs);
        (explain(TransferMethod::Nixl, summary, ["", ""], &candidates, None, runs), methods.swap_remove(0))
    }

    #[test]
    fn slow_runs_do_not_change_what_is_said_of_other_methods() {
        let (text, taken) = explained(Some(RunEstimate { seconds: 4.0, assumed: false }));
        assert!(text.contains("by NIXL, measured 1.50 GB/s in earlier runs\n"), "{text}");
        assert!(text.contains("NIXL, staged, estimated 3.00 GB/s: slower\n"), "{text}");
        assert_eq!((taken.bytes_per_second, taken.assumed), (1_500_000_000, false));
    }

    #[test]
    fn estimates_and_assumptions_are_called_so() {
        let (text, modelled) = explained(None);
        assert!(text.contains("by NIXL, estimated 6.00 GB/s\n"), "{text}");
        let (text, usual) = explained(Some(RunEstimate { seconds: 3.0, assumed: true }));
        assert!(text.contains("estimated 2.00 GB/s: assumed, not measured"), "{text}");
        assert_eq!((modelled.assumed, usual.assumed), (false, true));
    }
}
