// SPDX-License-Identifier: Apache-2.0
//! Why a transfer goes the way it goes.

use crate::transfer::{Candidate, Path, Transfer};

/// The answer.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The way it takes.
    pub path: Path,
    /// Stretches of memory it moves.
    pub moves: u64,
    /// What is expected of it: by the figures of the device, by how fast this machine copies, or by what earlier runs
    /// took.
    pub bytes_per_second: u64,
    /// No run has been timed yet, and what is usual was taken for it.
    pub assumed: bool,
    /// For people: a line for each way.
    pub text: String,
}

impl Transfer {
    /// Says which way it takes, what is expected of it, and why it takes no other. Moves nothing.
    pub fn explain(&self) -> Explanation {
        let candidates = self.candidates();
        let taken = candidates.iter().find(|candidate| candidate.path == self.path());
        let summary = self.summary();
        let rate = taken.map_or(0, |candidate| rate(candidate, summary.bytes));
        let assumed = self.is_assumed();
        let mut text = format!(
            "{} bytes in {} moves by {}{}{}\n",
            summary.bytes,
            summary.moves,
            self.path(),
            expected(rate),
            if assumed { ": assumed, not measured, for nothing has been moved on this way yet" } else { "" }
        );
        if self.by_layer {
            text += &format!(
                "layer by layer: {} layers in order, and nothing is joined across them\n",
                self.completion.layers()
            );
        }
        if let Some(remark) = taken.and_then(|candidate| candidate.reason.as_ref()) {
            text += &format!("{}: taken, but {remark}\n", self.path());
        }
        for candidate in candidates.iter().filter(|candidate| candidate.path != self.path()) {
            text += &line(candidate, rate, summary.bytes);
        }
        Explanation { path: self.path(), moves: summary.moves, bytes_per_second: rate, assumed, text }
    }
}

fn line(candidate: &Candidate, taken: u64, bytes: u64) -> String {
    let rate = rate(candidate, bytes);
    let verdict = match &candidate.reason {
        Some(reason) => format!("not taken: {reason}"),
        None if rate > taken => "not taken: another path was asked for".to_string(),
        None => "slower".to_string(),
    };
    format!("{}{}: {verdict}\n", candidate.path, expected(rate))
}

fn rate(candidate: &Candidate, bytes: u64) -> u64 {
    if candidate.seconds > 0.0 { (bytes as f64 / candidate.seconds) as u64 } else { 0 }
}

fn expected(rate: u64) -> String {
    if rate == 0 { String::new() } else { format!(", {:.2} GB/s expected", rate as f64 / 1e9) }
}
