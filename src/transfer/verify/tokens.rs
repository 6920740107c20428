// SPDX-License-Identifier: Apache-2.0
//! Compares moved tokens, of which only some heads may be moved, with their source, in memory of any kind. Tokens of both sides
//! are copied to host memory, where each is a block by itself.

use std::sync::Arc;

use super::copied::{BUFFER, of_copies};
use super::differences::Differences;
use super::moved_list::MovedList;
use crate::base::{Error, Result, ensure, lists};
use crate::engine::single_move::WaitLimits;
use crate::layout::{AllocationConfig, Arrangement, Axis, Dimensions, Geometry, Layout, LayoutSource};
use crate::plan::{BlockTable, Outline, PairedRange, Plan, Selection, TokenTables, Wanted};
use crate::region::SystemConfig;
use crate::run::{Findings, Outcome};
use crate::transfer::transfer_request::Step;

pub struct Tokens {
    list: MovedList,
    selection: Selection,
}

impl Tokens {
    /// The tokens of a step. Fails if those of a side can't be copied one by one.
    pub fn new(layouts: [&Arc<Layout>; 2], step: &Step<'_>, selection: &Selection) -> Result<Self> {
        for (name, layout) in ["source", "destination"].into_iter().zip(layouts) {
            ensure!(
                layout.geometry().region_step(Axis::Token) == 0 && layout.io_alignment() == 1,
                Unsupported,
                "a transfer of some heads or tokens is verified token by token, which the {name} layout does not support: \
                 it is a file with direct I/O, or its tokens have separate regions; create the file with \
                 KVMEM_DISK_BUFFERED, move whole blocks, or compare elsewhere"
            );
        }
        Ok(Self { list: MovedList::new(step, layouts)?, selection: *selection })
    }

    /// Compares the tokens of both sides, as many as fit the buffers at a time.
    pub fn compare(
        &self,
        layouts: &[Arc<Layout>; 2],
        limits: &WaitLimits,
        findings: &mut Findings,
    ) -> Outcome {
        let [source, destination] = layouts.each_ref().map(|layout| self.buffer(layout));
        let buffers = [source?, destination?];
        let [from, to] = [0, 1].map(|side| self.outline(side, &layouts[side], &buffers[side]));
        let outlines = [from.map_err(copying)?, to.map_err(copying)?];
        let capacity = buffers.iter().map(|buffer| buffer.geometry().count(Axis::Block)).min().unwrap_or(1);
        let ids = lists::collect(0..capacity as u32)?;
        let mut differences = Differences::default();
        for first in (0..self.list.tokens()).step_by(capacity as usize) {
            let tokens = first..self.list.tokens().min(first + capacity);
            let count = (tokens.end - tokens.start) as u32;
            let checksums = |side: usize| {
                let to = BlockTable { blocks: &ids[..count as usize], first_token: 0, token_step: 1 };
                let tables = TokenTables { sides: [self.list.part(side, &tokens), to], tokens: count.into() };
                let plan = Plan::from_tokens(&outlines[side], &tables, None);
                let copied =
                    plan.and_then(|plan| of_copies(&layouts[side], &buffers[side], plan, count, limits));
                copied.map_err(copying)
            };
            let (expected, found) = (checksums(0)?, checksums(1)?);
            for (token, (expected, found)) in tokens.zip(expected.into_iter().zip(found)) {
                differences.compare(self.list.entry(token), [expected, found])?;
            }
        }
        differences.outcome(&self.list, findings)
    }

    /// Host memory in which each block is one token of what is moved.
    fn buffer(&self, layout: &Layout) -> Result<Arc<Layout>> {
        let Selection { layers, outers, heads } = self.selection;
        let like = layout.geometry().dimensions();
        let (num_heads, inner_dim) = match like.num_heads {
            Some(_) => (Some(heads.count), heads.count * layout.geometry().count(Axis::Element)),
            None => (None, like.inner_dim),
        };
        let token_size = layers.count * outers.count * inner_dim * like.dtype_width;
        let dimensions = Dimensions {
            num_blocks: (BUFFER / token_size.max(1)).clamp(1, self.list.tokens()),
            num_layers: layers.count,
            outer_dim: outers.count,
            inner_dim,
            dtype_width: like.dtype_width,
            num_heads,
            identity: like.identity.clone(),
            ..Dimensions::ONE
        };
        let memory = AllocationConfig::System(SystemConfig::default());
        let geometry = Geometry::new(dimensions, Arrangement::FULLY_CONTIGUOUS)?;
        let built = Layout::build(geometry, LayoutSource::Allocate(memory), layout.agent_of_copies());
        built.map_err(|error| error.context("allocate memory for tokens to verify"))
    }

    fn outline(&self, side: usize, layout: &Layout, buffer: &Layout) -> Result<Arc<Outline>> {
        let from = |range: PairedRange| {
            let source = if side == 0 { range.source } else { range.destination };
            Some(PairedRange { source, destination: 0, count: range.count })
        };
        let Selection { layers, outers, heads } = self.selection;
        let has_heads = layout.geometry().dimensions().num_heads.is_some();
        let wanted =
            Wanted { layers: from(layers), outers: from(outers), heads: from(heads).filter(|_| has_heads) };
        Ok(Arc::new(Outline::new(layout, buffer, wanted, false)?))
    }
}

fn copying(error: Error) -> Error {
    error.context("copy tokens to host memory to verify them")
}
