// SPDX-License-Identifier: Apache-2.0
//! One side of a plan against its bytes in a row. Two processes that agree on the order of the axes and of the spans of
//! tokens count the bytes alike, and neither needs the addresses of the other.

use std::ops::Range;

use super::axes::PairedBlock;
use super::block_runs::BlockRuns;
use super::nest::{BLOCK_AXES, LoopOrder, PairedAxis};
use super::outline::too_large;
use super::shape::Shape;
use super::side::Side;
use super::wanted::BlockPair;
use super::{Matrix, Plan, PlanPart, units};
use crate::base::sorting::sort_few_by_key;
use crate::base::{Result, lists};
use crate::layout::Axis;

/// All axes, from the outermost to the innermost.
pub type AxisOrder = [Axis; Axis::ALL.len()];

/// The axes of a block, in the order of [`OneSide`].
pub const INNER_AXES: [Axis; BLOCK_AXES] = [Axis::Layer, Axis::Outer, Axis::Token, Axis::Head, Axis::Element];

/// Spans of tokens of equal length, as one side stores them.
#[derive(Debug)]
pub struct OneSide {
    /// Its regions, and the bytes from a span id to the next.
    pub side: Side,
    /// Regions and bytes from the first region and the start of span 0 to the first index of each axis.
    pub start: (u32, u64),
    /// Of each axis: number of indices, bytes and regions from one to the next.
    pub axes: [(u64, u64, u32); BLOCK_AXES],
    pub element_size: u64,
    /// The spans: their distance from the first, in steps of the side.
    pub ids: Vec<u32>,
}

/// The bytes of some sections in a row.
#[derive(Debug)]
pub struct LinearPlan {
    sections: Vec<LinearSection>,
    bytes: u64,
}

#[derive(Debug)]
struct LinearSection {
    /// From the side to the bytes in a row, which start at address 0.
    shape: Shape,
    spans: BlockRuns,
    bytes: u64,
}

impl LinearPlan {
    /// Puts sections in a row, each in an order of its own. Fails if they have more bytes than an address can count.
    pub fn new(sections: impl Iterator<Item = Result<(AxisOrder, OneSide)>>) -> Result<Self> {
        let mut plan = Self { sections: Vec::new(), bytes: 0 };
        for section in sections {
            let (order, side) = section?;
            let section = LinearSection::new(order, side, plan.bytes)?;
            plan.bytes = plan.bytes.checked_add(section.bytes).ok_or_else(too_large)?;
            plan.sections.push(section);
        }
        Ok(plan)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The rows of some of the bytes: from the addresses of the side to the offset among all bytes.
    pub fn rows_in(&self, bytes: Range<u64>) -> impl Iterator<Item = Matrix> {
        let (mut skip, mut left) = (bytes.start, bytes.end - bytes.start);
        self.sections.iter().flat_map(move |LinearSection { shape, spans, bytes }| {
            let first = skip.min(*bytes);
            let end = first + left.min(bytes - first);
            (skip, left) = (skip - first, left - (end - first));
            units::spans(shape, spans, first..end)
        })
    }
}

impl LinearSection {
    fn new(order: AxisOrder, one: OneSide, first: u64) -> Result<Self> {
        let mut strides = [0; BLOCK_AXES];
        let (mut size, mut step) = (one.element_size, 0);
        for axis in order.into_iter().rev() {
            let count = match INNER_AXES.iter().position(|inner| *inner == axis) {
                Some(index) => {
                    strides[index] = size;
                    one.axes[index].0
                }
                None => {
                    step = size;
                    one.ids.len() as u64
                }
            };
            size = size.checked_mul(count).ok_or_else(too_large)?;
        }
        let axes = std::array::from_fn(|index| {
            let (count, stride, regions) = one.axes[index];
            PairedAxis {
                axis: INNER_AXES[index],
                count,
                strides: [stride, strides[index]],
                regions: [regions, 0],
                is_whole: false,
            }
        });
        let block = PairedBlock {
            axes,
            firsts: [[0; 2]; BLOCK_AXES],
            offsets: [0; 2],
            element_size: one.element_size,
            page_strides: [one.side.block_stride, step],
        };
        let sides = [one.side, Side::new([first].into(), step)];
        let mut shape = Shape::in_order(LoopOrder::StrictDestination, &sides, &block);
        shape.sides[0] = sides[0].starting_at(one.start);
        let pair = |(source, destination): (&u32, u32)| BlockPair { source: *source, destination };
        let pairs = lists::collect(one.ids.iter().zip(0u32..).map(pair))?;
        let mut spans = BlockRuns::default();
        spans.fill(&pairs, u32::MAX.into(), u32::MAX.into())?;
        Ok(Self { shape, spans, bytes: size })
    }
}

impl Plan {
    /// The plan in the order of one side: what that side has together is together among the bytes in a row.
    pub fn led_by(&self, side: usize) -> Result<Self> {
        self.in_order(if side == 0 { LoopOrder::Source } else { LoopOrder::StrictDestination })
    }
}

impl PlanPart<'_> {
    /// The axes in the order of one side.
    pub(super) fn order_of(&self, side: usize) -> AxisOrder {
        let key = |axis: &Axis| match INNER_AXES.iter().position(|inner| inner == axis) {
            Some(index) => (self.block.axes[index].regions[side], self.block.axes[index].strides[side]),
            None => (0, self.block.page_strides[side]),
        };
        let mut order = Axis::ALL;
        sort_few_by_key(&mut order, |axis| std::cmp::Reverse(key(axis)));
        order
    }

    /// The ids of some of its blocks or spans on one side, in order.
    pub(super) fn ids(&self, side: usize, blocks: &Range<u64>) -> impl Iterator<Item = u32> + use<'_> {
        let (run, before) = self.blocks.find(blocks.start);
        let ids = self.runs()[run..].iter().flat_map(move |run| {
            let first = if side == 0 { run.source } else { run.destination };
            first..first + run.length
        });
        ids.skip(before as usize).take((blocks.end - blocks.start) as usize)
    }

    /// Some of its blocks or spans, as one side stores them.
    pub(super) fn one_side(&self, side: usize, blocks: &Range<u64>) -> Result<OneSide> {
        Ok(OneSide {
            side: self.shape.sides[side].clone(),
            start: self.block.start(side),
            axes: self.block.axes.map(|axis| (axis.count, axis.strides[side], axis.regions[side])),
            element_size: self.block.element_size,
            ids: lists::collect(self.ids(side, blocks))?,
        })
    }
}
