// SPDX-License-Identifier: Apache-2.0
//! Blocks in the order of the host. Pure.

use std::ops::Range;

use crate::base::sorting::sort_by_id;
use crate::base::{Result, lists};
use crate::cuda::KernelRun;
use crate::plan::PlanPart;

/// Blocks in host order, and which of them are adjacent there.
#[derive(Clone, Debug)]
pub struct HostOrder {
    /// Device block, host block, number of blocks.
    runs: Vec<KernelRun>,
    /// Index of the first, host block, number of blocks.
    spans: Vec<(u64, u64, u64)>,
    blocks: u64,
}

impl HostOrder {
    /// The order of blocks with the same loops.
    pub fn new(part: &PlanPart<'_>, to_host: bool) -> Result<Self> {
        let mut runs = lists::collect(part.runs().iter().map(|run| match to_host {
            true => KernelRun::new(run.source, run.destination, run.length),
            false => KernelRun::new(run.destination, run.source, run.length),
        }))?;
        sort_by_id(&mut runs, |run| run.destination)?;
        let mut spans: Vec<(u64, u64, u64)> = Vec::new();
        let mut blocks = 0;
        for run in &runs {
            let (host, length) = (u64::from(run.destination), u64::from(run.length));
            match spans.last_mut() {
                Some((_, first, count)) if *first + *count == host => *count += length,
                _ => lists::push(&mut spans, (blocks, host, length))?,
            }
            blocks += length;
        }
        Ok(Self { runs, spans, blocks })
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Number of spans of blocks that are adjacent on the host.
    pub fn num_spans(&self) -> u64 {
        self.spans.len() as u64
    }

    /// Runs of blocks from device block ids to indices in host order.
    pub fn pack(&self) -> Result<Vec<KernelRun>> {
        let mut packed: Vec<KernelRun> = Vec::new();
        lists::reserve(&mut packed, self.runs.len())?;
        let mut index = 0;
        for run in &self.runs {
            match packed.last_mut() {
                Some(last) if last.source + last.length == run.source => last.length += run.length,
                _ => lists::push(&mut packed, KernelRun::new(run.source, index, run.length))?,
            }
            index += run.length;
        }
        Ok(packed)
    }

    /// Index, host block and length of each span of blocks that are adjacent on the host; or of each block, unless `joined`.
    pub fn spans(&self, blocks: &Range<u64>, joined: bool) -> impl Iterator<Item = (u64, u64, u64)> {
        let spans = &self.spans;
        let first = spans.partition_point(|(index, _, count)| index + count <= blocks.start);
        let blocks = blocks.clone();
        let inside = spans[first..].iter().take_while({
            let end = blocks.end;
            move |(index, _, _)| *index < end
        });
        inside.flat_map(move |(index, host, count)| {
            let from = (*index).max(blocks.start);
            let until = (index + count).min(blocks.end);
            let (host, step) = (host + (from - index), if joined { until - from } else { 1 });
            (from..until).step_by(step as usize).map(move |at| (at, host + (at - from), step))
        })
    }
}
