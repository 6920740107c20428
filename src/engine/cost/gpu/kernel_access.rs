// SPDX-License-Identifier: Apache-2.0
//! What a kernel accesses, as far as its duration depends on it. Pure.

use crate::copy::gpu::unit_launches::{UnitLoops, iterations};
use crate::plan::{Plan, PlanPart};

/// The accesses of a copy by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelAccess {
    /// The maximum number of spans that warps copy one after the other: those of a plan, or several elements or rows
    /// together.
    pub moves: u64,
    /// The maximum number of contiguous spans in the source and in the destination, whatever the other side has between
    /// them.
    pub spans: [u64; 2],
    pub transposed: u64,
}

impl KernelAccess {
    /// The accesses of a kernel that copies a plan.
    pub fn from_plan(plan: &Plan) -> Self {
        let none = Self { moves: 0, spans: [0; 2], transposed: 0 };
        plan.parts().map(|part| Self::from_part(&part)).fold(none, Self::and)
    }

    /// A line for people about a copy of so many bytes: what its estimate depends on, and where the estimate comes from.
    pub fn line(&self, bytes: u64) -> String {
        let [source, destination] = self.spans.map(|spans| bytes / spans.max(1));
        let transposed = if self.transposed > 0 { ", and elements are transposed" } else { "" };
        format!(
            "kernel: spans of {source} bytes in the source and of {destination} in the destination are contiguous{transposed}; \
             estimated from the copy rates of the GPU and costs per span that were fitted on H200 hosts\n"
        )
    }

    fn from_part(part: &PlanPart<'_>) -> Self {
        let loops = UnitLoops::from_part(part);
        let transposed = transposed_moves(&loops, part.blocks());
        let moves = transposed.or_else(|| row_moves(&loops, part.blocks()));
        Self {
            moves: moves.unwrap_or_else(|| part.max_moves()),
            spans: [0, 1].map(|side| part.max_spans_on(side)),
            transposed: if transposed.is_some() { part.bytes() } else { 0 },
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            moves: self.moves + other.moves,
            spans: [0, 1].map(|side| self.spans[side] + other.spans[side]),
            transposed: self.transposed + other.transposed,
        }
    }
}

fn transposed_moves(of: &UnitLoops<'_>, blocks: u64) -> Option<u64> {
    let (loops, listed) = of.transposed()?;
    let max_blocks = of.units.max_blocks.into();
    let times = if loops.are_joined() { blocks.div_ceil(max_blocks) } else { blocks };
    let moves = loops.moves(of.units.unit_size, max_blocks);
    Some(moves.saturating_mul(iterations(&listed)).saturating_mul(times))
}

fn row_moves(of: &UnitLoops<'_>, blocks: u64) -> Option<u64> {
    let (rows, listed) = of.rows()?;
    let moves = rows.moves(of.units.unit_size)?;
    Some(moves.saturating_mul(iterations(listed)).saturating_mul(blocks))
}
