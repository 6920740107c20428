// SPDX-License-Identifier: Apache-2.0
//! Copies in rows, where strides are regular: how many calls they take, and whether there are any.

use super::super::rates::Rates;
use super::cost;
use super::cost::Case;
use super::weighing::Weighing;
use crate::transfer::path::Path;
use crate::transfer::plan::{Matrices, Plan};

/// The driver takes no rows that are further apart.
const LARGEST_PITCH: u64 = i32::MAX as u64;

/// A plan as calls of rows.
pub fn matrices(plan: &Plan) -> Matrices<'_> {
    plan.matrices(LARGEST_PITCH)
}

/// How many calls there are, if not more than `limit`; or why there are no rows.
fn count(matrices: &Matrices<'_>, limit: u64) -> std::result::Result<Option<u64>, String> {
    let calls = matrices.count(limit);
    if calls != Some(matrices.total_rows()) {
        return Ok(calls);
    }
    let grid = matrices.grid();
    if grid.blocks_together {
        return Err("blocks that follow each other lie together, and no others at regular distances".into());
    }
    let pitch = grid.strides.iter().copied().max().unwrap_or(0);
    if pitch > LARGEST_PITCH {
        return Err(format!("blocks are {pitch} bytes apart, the driver takes {LARGEST_PITCH}"));
    }
    Ok(calls)
}

impl Weighing<'_> {
    /// Weighs rows, behind all other ways: their calls are counted only up to where they would be taken no more.
    pub fn weigh_rows(&mut self, rates: &Rates) {
        let matrices = matrices(self.plan);
        let Some(rows) = self.candidates.iter().position(|candidate| candidate.path == Path::Cuda2d) else {
            return;
        };
        let seconds = |row_calls| cost::seconds(Path::Cuda2d, &Case { row_calls, ..self.case }, rates);
        let limit = match self.preferences.path {
            Some(Path::Cuda2d) => u64::MAX,
            Some(_) => 0,
            // A number below 0 becomes 0, and one that is too large the largest.
            None => ((self.least_seconds() - seconds(0)) / (seconds(1) - seconds(0))) as u64,
        };
        let counted = match self.candidates[rows].reason {
            None => count(&matrices, limit),
            Some(_) => Ok(None),
        };
        let calls = counted.as_ref().map_or(None, |calls| *calls);
        let row_calls = calls.unwrap_or(matrices.most());
        let seconds = seconds(row_calls);
        self.case.row_calls = row_calls;
        let candidate = &mut self.candidates[rows];
        candidate.seconds = seconds;
        candidate.reason = candidate.reason.take().or(counted.err());
    }

    /// What the fastest of the other ways takes, of those that can be taken.
    fn least_seconds(&self) -> f64 {
        let others = self.candidates.iter().filter(|each| each.path != Path::Cuda2d && each.reason.is_none());
        others.map(|each| each.seconds).fold(f64::INFINITY, f64::min)
    }
}
