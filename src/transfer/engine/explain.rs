// SPDX-License-Identifier: Apache-2.0
//! Why a transfer takes its path.
#![forbid(unsafe_code)]

use super::Candidate;
use crate::transfer::path::TransferPath;

/// The size of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Bytes that it moves.
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

/// The path of a transfer, and why it is taken.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The path that it takes.
    pub path: TransferPath,
    /// Number of contiguous spans that it moves.
    pub moves: u64,
    /// Estimated throughput, from the rates of the device, of host memory, or of earlier runs.
    pub bytes_per_second: u64,
    /// No run has been timed yet, so a usual rate is assumed.
    pub assumed: bool,
    /// A description with one line per path.
    pub text: String,
}

/// What was decided about a path that was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The transfer takes it.
    Used,
    /// It is possible, and its estimate is no better.
    Slower,
    /// It is possible, and the reason says why it is not taken.
    NotUsed,
    /// It is not possible: the reason says why.
    Impossible,
}

/// A path that was compared, and the outcome.
#[derive(Clone, Debug)]
pub struct PathChoice {
    /// The path.
    pub path: TransferPath,
    /// Estimated throughput; 0 if unknown.
    pub bytes_per_second: u64,
    /// The outcome.
    pub verdict: Verdict,
    /// Why it is not taken, or a remark on the path that is.
    pub reason: String,
}

/// The outcome for each path, beginning with the one that is taken.
pub fn choices(path: TransferPath, bytes: u64, candidates: &[Candidate]) -> Vec<PathChoice> {
    let taken = candidates.iter().find(|candidate| candidate.path == path);
    let taken_rate = taken.map_or(0, |candidate| rate(candidate, bytes));
    let used = PathChoice {
        path,
        bytes_per_second: taken_rate,
        verdict: Verdict::Used,
        reason: taken.and_then(|candidate| candidate.reason.clone()).unwrap_or_default().into_owned(),
    };
    let others = candidates.iter().filter(|candidate| candidate.path != path);
    std::iter::once(used).chain(others.map(|each| choice(each, taken_rate, bytes))).collect()
}

fn choice(candidate: &Candidate, taken: u64, bytes: u64) -> PathChoice {
    let bytes_per_second = rate(candidate, bytes);
    let (verdict, reason) = match &candidate.reason {
        Some(reason) if candidate.is_impossible => (Verdict::Impossible, reason.to_string()),
        Some(reason) => (Verdict::NotUsed, reason.to_string()),
        None if bytes_per_second > taken => (Verdict::NotUsed, "another path was requested".to_string()),
        None => (Verdict::Slower, String::new()),
    };
    PathChoice { path: candidate.path, bytes_per_second, verdict, reason }
}

/// Explains a choice. `loops` describes what is copied, of one layer if layers are moved one by one, and `conditions` what the
/// estimates depend on, in lines. `layers` is the number of layers of such a transfer.
pub fn explain(
    path: TransferPath,
    summary: Summary,
    [loops, conditions]: [&str; 2],
    candidates: &[Candidate],
    layers: Option<u64>,
    assumed: bool,
) -> Explanation {
    let taken = candidates.iter().find(|candidate| candidate.path == path);
    let rate = taken.map_or(0, |candidate| rate(candidate, summary.bytes));
    let mut text = format!(
        "{} bytes in {} moves by {path}{}{}\n",
        summary.bytes,
        summary.moves,
        estimate(rate),
        if assumed { ": assumed, not measured, because nothing has been moved on this path yet" } else { "" }
    );
    text += loops;
    if let Some(layers) = layers {
        text += &format!("layer by layer: {layers} layers in order, and no move spans two layers\n");
    }
    text += &format!("bytes read in excess: {}\n", summary.excess);
    text += conditions;
    if let Some(remark) = taken.and_then(|candidate| candidate.reason.as_ref()) {
        text += &format!("{path}: used, but {remark}\n");
    }
    choices(path, summary.bytes, candidates).iter().skip(1).for_each(|other| text += &line(other));
    Explanation { path, moves: summary.moves, bytes_per_second: rate, assumed, text }
}

fn line(other: &PathChoice) -> String {
    let verdict = match other.verdict {
        Verdict::Slower => "slower".to_string(),
        _ => format!("not used: {}", other.reason),
    };
    format!("{}{}: {verdict}\n", other.path, estimate(other.bytes_per_second))
}

fn rate(candidate: &Candidate, bytes: u64) -> u64 {
    if candidate.seconds > 0.0 { (bytes as f64 / candidate.seconds) as u64 } else { 0 }
}

fn estimate(rate: u64) -> String {
    if rate == 0 { String::new() } else { format!(", estimated {:.2} GB/s", rate as f64 / 1e9) }
}
