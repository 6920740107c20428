// SPDX-License-Identifier: Apache-2.0
//! Rows with constant strides: the number of calls, and whether there are any rows.

use super::comparison::Comparison;
use crate::copy::gpu::driver_copies::{LARGEST_PITCH, matrices};
use crate::copy::gpu::rates::Rates;
use crate::engine::cost::gpu::model as cost;
use crate::engine::cost::gpu::model::CopyCase;
use crate::engine::cost::outcome::Reason;
use crate::plan::Matrices;
use crate::run::TransferMethod;

/// The number of calls, if not more than `limit`. Fails with the reason if there are no rows.
fn count(parts: &[Matrices<'_>], limit: u64) -> std::result::Result<Option<u64>, Reason> {
    let mut calls = 0;
    for matrices in parts {
        let Some(more) = matrices.count(limit - calls) else { return Ok(None) };
        calls += more;
    }
    let total_rows: u64 = parts.iter().map(Matrices::total_rows).sum();
    let longest = parts.iter().max_by_key(|matrices| matrices.total_rows());
    let Some(grid) = longest.map(Matrices::grid).filter(|_| calls == total_rows) else {
        return Ok(Some(calls));
    };
    if grid.blocks_together {
        return Err("adjacent blocks are contiguous, and no other blocks have a constant stride".into());
    }
    let pitch = grid.strides.iter().copied().max().unwrap_or(0);
    if pitch > LARGEST_PITCH {
        let reason =
            format!("the stride of blocks is {pitch} bytes; the driver supports up to {LARGEST_PITCH}");
        return Err(reason.into());
    }
    Ok(Some(calls))
}

impl Comparison<'_> {
    /// Compares rows after all other methods: their calls are counted only as long as rows could be the
    /// fastest.
    pub fn compare_rows(&mut self, rates: &Rates) {
        let Some(rows) =
            self.candidates.iter().position(|candidate| candidate.method == TransferMethod::Cuda2d)
        else {
            return;
        };
        let matrices: Vec<_> = matrices(self.plan).collect();
        let seconds =
            |row_calls| cost::seconds(TransferMethod::Cuda2d, &CopyCase { row_calls, ..self.case }, rates);
        let limit = match self.preferences.method {
            Some(TransferMethod::Cuda2d) => u64::MAX,
            Some(_) => 0,
            // The cast turns negative values into 0, and too large ones into the maximum.
            None => ((self.min_seconds() - seconds(0)) / (seconds(1) - seconds(0))) as u64,
        };
        let counted = match self.candidates[rows].reason {
            None => count(&matrices, limit),
            Some(_) => Ok(None),
        };
        let calls = counted.as_ref().map_or(None, |calls| *calls);
        let row_calls = calls.unwrap_or_else(|| matrices.iter().map(Matrices::most).sum());
        let seconds = seconds(row_calls);
        self.case.row_calls = row_calls;
        let candidate = &mut self.candidates[rows];
        candidate.seconds = seconds;
        candidate.reason = candidate.reason.take().or(counted.err());
    }
}
