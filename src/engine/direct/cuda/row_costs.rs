// SPDX-License-Identifier: Apache-2.0
//! Rows with constant strides: the number of calls, and whether there are any rows.

use super::comparison::Comparison;
use crate::copy::gpu::driver_copies::{LARGEST_PITCH, matrices};
use crate::copy::gpu::rates::Rates;
use crate::engine::cost::gpu::model as cost;
use crate::engine::cost::gpu::model::CopyCase;
use crate::engine::cost::outcome::Reason;
use crate::plan::{Matrices, Plan};
use crate::run::TransferMethod;

/// The number of calls, if not more than `limit`.
fn count(parts: &[Matrices<'_>], limit: u64) -> Option<u64> {
    parts.iter().try_fold(0, |calls, matrices| Some(calls + matrices.count(limit - calls)?))
}

/// Why a plan has no rows of which the driver copies several in a call.
pub fn reason_against(plan: &Plan) -> Option<Reason> {
    without_rows(&matrices(plan).collect::<Vec<_>>())
}

fn without_rows(parts: &[Matrices<'_>]) -> Option<Reason> {
    if parts.iter().any(Matrices::have_rows) {
        return None;
    }
    let grid = parts.iter().max_by_key(|matrices| matrices.total_rows())?.grid();
    if grid.blocks_together {
        return Some("adjacent blocks are contiguous, and no other blocks have a constant stride".into());
    }
    let pitch = grid.strides.iter().copied().max().unwrap_or(0);
    (pitch > LARGEST_PITCH).then(|| {
        format!("the stride of blocks is {pitch} bytes; the driver supports up to {LARGEST_PITCH}").into()
    })
}

impl Comparison<'_> {
    /// Whether a method would copy rows, and there are none. Then it is not possible.
    pub fn lacks_rows(&mut self, method: TransferMethod) -> bool {
        let reason = if method == TransferMethod::Cuda2d { reason_against(self.plan) } else { None };
        let is_lacking = reason.is_some();
        if is_lacking && let Some(rows) = self.candidates.iter_mut().find(|each| each.method == method) {
            *rows = rows.clone().impossible_if(reason);
        }
        is_lacking
    }

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
        let calls = match self.candidates[rows].reason {
            None => count(&matrices, limit),
            Some(_) => None,
        };
        let row_calls = calls.unwrap_or_else(|| matrices.iter().map(Matrices::most).sum());
        self.case.row_calls = row_calls;
        let candidate = &mut self.candidates[rows];
        candidate.seconds = seconds(row_calls);
        // Of those that were not counted it is known when they would be taken, or when the methods are listed.
        let total: u64 = matrices.iter().map(Matrices::total_rows).sum();
        if calls == Some(total)
            && let Some(reason) = without_rows(&matrices)
        {
            *candidate = candidate.clone().impossible_if(Some(reason));
        }
    }
}
