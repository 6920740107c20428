// SPDX-License-Identifier: Apache-2.0
//! A plan in the terms of one of its sides: tokens, heads, layers and parts, without addresses. A process that has only that
//! side finds the same bytes in the same order. Pure.

use std::collections::HashMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::heads::HeadView;
use super::linear::{AxisOrder, INNER_AXES, LinearPlan, OneSide};
use super::outline::too_large;
use super::side::Side;
use super::tokens::common_divisor;
use super::{Plan, PlanPart};
use crate::base::{Error, Result, Status, ensure, lists};
use crate::layout::{Axis, Geometry, LayoutPart, MAX_PARTS};

/// The maximum number of spans of tokens: the owner's agent lists them, and does nothing else meanwhile.
pub(super) const MAX_SPANS: usize = 1 << 16;
/// The maximum number of sections: the tokens of a part are in at most three.
const MAX_SECTIONS: usize = 3 * MAX_PARTS;
/// Bytes of an entry of [`Section::spans`].
pub(super) const SPAN_BYTES: usize = 12;

/// The maximum size of a section in a message, without its spans.
pub(super) fn section_bytes(part: &str) -> usize {
    // The names of the fields, and their numbers of at most nine bytes each.
    200 + part.len()
}

/// What is moved of one side, and the order in which its bytes are counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    sections: Vec<Section>,
}

/// Spans of tokens of equal length. Ranges are a first index and a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Section {
    /// The name of the part; empty for a layout without parts.
    part: String,
    /// The letters of all axes, from the one that is counted last to the one that is counted first.
    order: String,
    element_size: u64,
    layers: [u64; 2],
    outers: [u64; 2],
    heads: [u64; 2],
    /// The number of heads of the layout, as the other side knows it.
    of_heads: u64,
    tokens: u64,
    /// Tokens of a block from one of them to the next.
    token_step: u64,
    /// For each run of spans: the block, its first token, and for how many consecutive blocks this holds; 32 bits each,
    /// little-endian.
    #[serde(with = "serde_bytes")]
    spans: Vec<u8>,
}

/// Consecutive blocks, and the first token that is moved of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpanRun {
    block: u32,
    token: u32,
    blocks: u32,
}

impl SpanRun {
    /// Whether a span is in the block after the last one, from the same token on.
    pub fn goes_on_in(&self, next: Self) -> bool {
        self.token == next.token && self.block.checked_add(self.blocks) == Some(next.block)
    }

    /// The same with one more block.
    pub fn longer(self) -> Self {
        Self { blocks: self.blocks + 1, ..self }
    }
}

/// Where one side has the spans of a part of a plan.
pub(super) struct SpanPlaces<'a> {
    geometry: &'a Geometry,
    of_heads: u64,
    /// Bytes from a token to the next.
    token_stride: u64,
    /// Bytes from a span id to the next.
    unit: u64,
    /// The first token that is moved of a span.
    phase: u32,
    /// Spans are whole blocks, and have their ids.
    are_blocks: bool,
}

impl<'a> SpanPlaces<'a> {
    /// Fails for a side whose spans can't be named.
    pub fn new(plan: &'a Plan, part: &PlanPart<'_>, side: usize) -> Result<Self> {
        let outline = plan.outline.parts.iter().find(|outline| outline.name() == part.name);
        let Some(outline) = outline else {
            return Err(Error::new(Status::Panic, "a plan has a part without an outline"));
        };
        let geometry = outline.geometry(side);
        ensure!(
            geometry.region_step(Axis::Token) == 0,
            Unsupported,
            "each token of the peer's layout has a region of its own"
        );
        ensure!(
            geometry.count(Axis::Token) <= u64::from(u32::MAX),
            Unsupported,
            "the blocks of the peer's layout have {} tokens, which 32 bits do not number",
            geometry.count(Axis::Token)
        );
        let token_stride = geometry.stride(Axis::Token).max(1);
        Ok(Self {
            geometry,
            of_heads: HeadView::from_geometries([outline.geometry(0), outline.geometry(1)])[side].heads(),
            token_stride,
            unit: part.shape.sides[side].block_stride,
            phase: (part.block.offsets[side] / token_stride) as u32,
            are_blocks: plan.block_runs().is_some(),
        })
    }

    /// The block and the first token of a span.
    pub fn of_id(&self, id: u32) -> Result<SpanRun> {
        let (block, token) = if self.are_blocks { (id, 0) } else { self.located(id)? };
        Ok(SpanRun { block, token: token + self.phase, blocks: 1 })
    }

    fn located(&self, id: u32) -> Result<(u32, u32)> {
        let Self { geometry, unit, token_stride, .. } = *self;
        let block_stride = geometry.stride(Axis::Block);
        let last_token = (geometry.count(Axis::Token) - 1) * geometry.stride(Axis::Token);
        ensure!(
            last_token < block_stride,
            Unsupported,
            "the tokens of a block of the peer's layout are not together, so that parts of blocks can't be named"
        );
        let distance = u64::from(id) * unit;
        Ok(((distance / block_stride) as u32, (distance % block_stride / token_stride) as u32))
    }
}

impl Terms {
    /// One side of some blocks of parts of a plan. Fails for what can't be said in these terms.
    pub(super) fn new(plan: &Plan, parts: &[(PlanPart<'_>, Range<u64>)], side: usize) -> Result<Self> {
        let sections = parts.iter().map(|(part, blocks)| Section::new(plan, part, blocks, side));
        Ok(Self { sections: sections.collect::<Result<_>>()? })
    }

    /// Compares the terms with these parts of a layout, and lists nothing. They may be anything: what the parts do not have is
    /// refused.
    pub fn checked_in<'a>(&'a self, parts: impl Iterator<Item = LayoutPart<'a>>) -> Result<CheckedTerms<'a>> {
        let count = self.sections.len();
        ensure!(
            (1..=MAX_SECTIONS).contains(&count),
            InvalidArgument,
            "the request has {count} sections; it has 1 to {MAX_SECTIONS}"
        );
        let (mut checked, mut spans, mut bytes) = (Vec::new(), 0, 0u64);
        // Both lists may have a thousand entries.
        let parts: HashMap<_, _> = parts.map(|part| (part.name, part)).collect();
        for section in &self.sections {
            let Some(part) = parts.get(section.part.as_str()).copied() else {
                let name = section.part.escape_debug();
                let message = format!("the request is for part '{name}', which the layout does not have");
                return Err(Error::new(Status::NotFound, message));
            };
            let section = section.checked_in(part, &mut spans)?;
            bytes = bytes.checked_add(section.bytes).ok_or_else(too_large)?;
            lists::push(&mut checked, section)?;
        }
        Ok(CheckedTerms { sections: checked, bytes })
    }
}

pub struct CheckedTerms<'a> {
    sections: Vec<CheckedSection<'a>>,
    bytes: u64,
}

impl CheckedTerms<'_> {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes in a row, where the layout has them.
    pub fn placed(&self) -> Result<LinearPlan> {
        LinearPlan::new(self.sections.iter().map(|section| Ok((section.order, section.placed()?))))
    }
}

/// A section that a part of a layout has.
struct CheckedSection<'a> {
    section: &'a Section,
    part: LayoutPart<'a>,
    order: AxisOrder,
    /// First index and number of each axis of a block.
    ranges: [[u64; 2]; INNER_AXES.len()],
    spans: usize,
    bytes: u64,
}

#[cfg(test)]
impl Terms {
    /// Any terms, of one section of a layout without parts. The numbers are those of heads, tokens, the step of tokens, and the
    /// bytes of an element.
    pub fn raw(
        order: String,
        layers: [u64; 2],
        outers: [u64; 2],
        heads: [u64; 2],
        [of_heads, tokens, token_step, element_size]: [u64; 4],
        spans: Vec<u8>,
    ) -> Self {
        let part = String::new();
        Self {
            sections: vec![Section {
                part,
                order,
                element_size,
                layers,
                outers,
                heads,
                of_heads,
                tokens,
                token_step,
                spans,
            }],
        }
    }
}

impl Section {
    fn new(plan: &Plan, part: &PlanPart<'_>, blocks: &Range<u64>, side: usize) -> Result<Self> {
        let places = SpanPlaces::new(plan, part, side)?;
        let tokens = &part.block.axes[2];
        let token_step = if tokens.count > 1 { tokens.strides[side] / places.token_stride } else { 1 };
        let range = |index: usize| [part.block.firsts[index][side], part.block.axes[index].count];
        let mut runs: Vec<SpanRun> = Vec::new();
        for id in part.ids(side, blocks) {
            let place = places.of_id(id)?;
            match runs.last_mut() {
                Some(last) if last.goes_on_in(place) => *last = last.longer(),
                _ => lists::push(&mut runs, place)?,
            }
        }
        let spans = runs.iter().flat_map(|run| [run.block, run.token, run.blocks]);
        Ok(Self {
            part: part.name.to_string(),
            order: part.order_of(1 - side).map(Axis::letter).iter().collect(),
            element_size: part.block.element_size,
            layers: range(0),
            outers: range(1),
            heads: range(3),
            of_heads: places.of_heads,
            tokens: tokens.count,
            token_step,
            spans: lists::collect(spans.flat_map(u32::to_le_bytes))?,
        })
    }

    fn axis_order(&self) -> Result<AxisOrder> {
        let mut order = Axis::ALL;
        let mut letters = self.order.chars();
        for axis in &mut order {
            let found = letters.next().and_then(Axis::from_letter);
            *axis = found.ok_or_else(|| self.wrong_order())?;
        }
        let has_all = Axis::ALL.iter().all(|axis| order.contains(axis));
        if has_all && letters.next().is_none() { Ok(order) } else { Err(self.wrong_order()) }
    }

    fn wrong_order(&self) -> Error {
        let shown: String = self.order.chars().take(16).flat_map(char::escape_debug).collect();
        Error::new(Status::InvalidArgument, format!("the order '{shown}' does not have each axis once"))
    }

    /// Fails unless a part of a layout has the section. Adds its spans to those before.
    fn checked_in<'a>(&'a self, part: LayoutPart<'a>, spans: &mut usize) -> Result<CheckedSection<'a>> {
        let geometry = part.placement.geometry();
        ensure!(
            self.element_size == geometry.element_size(),
            InvalidArgument,
            "the request is for elements of {} bytes, the layout has elements of {}",
            self.element_size,
            geometry.element_size()
        );
        let view = self.view(geometry)?;
        ensure!(
            geometry.region_step(Axis::Block) == 0 && geometry.region_step(Axis::Token) == 0,
            Unsupported,
            "blocks or tokens of the layout have separate regions"
        );
        let elements = view.count(geometry, Axis::Element);
        let ranges = [self.layers, self.outers, [0, self.tokens], self.heads, [0, elements]];
        let mut bytes = self.element_size;
        for (axis, [first, count]) in INNER_AXES.into_iter().zip(ranges) {
            let have = view.count(geometry, axis);
            ensure!(
                count > 0 && first.checked_add(count).is_some_and(|end| end <= have),
                OutOfRange,
                "the request is for {count} from {first} on of the {have} indices of axis {}",
                axis.letter()
            );
            bytes = bytes.checked_mul(count).ok_or_else(too_large)?;
        }
        let before = *spans;
        self.count_spans(geometry, spans)?;
        let spans = *spans - before;
        let bytes = bytes.checked_mul(spans as u64).ok_or_else(too_large)?;
        Ok(CheckedSection { section: self, order: self.axis_order()?, part, ranges, spans, bytes })
    }

    fn view(&self, geometry: &Geometry) -> Result<HeadView> {
        HeadView::with(geometry, self.of_heads).ok_or_else(|| {
            let message = format!("the request is for a layout of {} heads", self.of_heads);
            Error::new(Status::InvalidArgument, message)
        })
    }

    fn runs(&self) -> impl Iterator<Item = SpanRun> + Clone {
        self.spans.chunks_exact(SPAN_BYTES).map(|entry| {
            let word =
                |at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
            SpanRun { block: word(0), token: word(4), blocks: word(8) }
        })
    }

    /// Adds the spans to those before. Fails if one is not in a block.
    fn count_spans(&self, geometry: &Geometry, count: &mut usize) -> Result<()> {
        let (blocks, page) = (geometry.count(Axis::Block), geometry.count(Axis::Token));
        ensure!(
            !self.spans.is_empty() && self.spans.len().is_multiple_of(SPAN_BYTES),
            InvalidArgument,
            "the request lists spans in {} bytes; each has {SPAN_BYTES}, and there is at least one",
            self.spans.len()
        );
        let length = (self.tokens - 1).checked_mul(self.token_step).filter(|_| self.token_step > 0);
        for SpanRun { block, token, blocks: run } in self.runs() {
            let is_inside = run > 0
                && u64::from(block) + u64::from(run) <= blocks
                && length
                    .is_some_and(|length| length.checked_add(token.into()).is_some_and(|last| last < page));
            ensure!(
                is_inside,
                OutOfRange,
                "the request is for {} tokens, each {} after the one before, from token {token} of block {block} on, and \
                 of {run} blocks; the layout has {blocks} blocks of {page} tokens",
                self.tokens,
                self.token_step
            );
            *count = count.saturating_add(run as usize);
            ensure!(*count <= MAX_SPANS, OutOfRange, "the request has more than {MAX_SPANS} spans of tokens");
        }
        Ok(())
    }
}

impl CheckedSection<'_> {
    /// Where the part has the section.
    fn placed(&self) -> Result<OneSide> {
        let geometry = self.part.placement.geometry();
        let view = self.section.view(geometry)?;
        let (mut regions, mut bytes) = (0, 0);
        for (axis, [first, _]) in INNER_AXES.into_iter().zip(self.ranges) {
            regions += first * geometry.region_step(axis) as u64;
            bytes += first * view.stride(geometry, axis);
        }
        let token_stride = geometry.stride(Axis::Token);
        let spans = self.ids(geometry)?;
        let axes = std::array::from_fn(|index| {
            let axis = INNER_AXES[index];
            let step = if axis == Axis::Token { self.section.token_step } else { 1 };
            let stride = step.saturating_mul(view.stride(geometry, axis));
            (self.ranges[index][1], stride, geometry.region_step(axis) as u32)
        });
        Ok(OneSide {
            side: Side::from_part(&self.part).with_stride(spans.unit),
            start: (regions as u32, bytes + spans.token * token_stride),
            axes,
            element_size: self.section.element_size,
            ids: spans.ids,
        })
    }

    /// The spans as distances from block 0.
    fn ids(&self, geometry: &Geometry) -> Result<SpanIds> {
        let runs = || self.section.runs();
        let first = runs().next().map_or(0, |run| run.token);
        let block_stride = geometry.stride(Axis::Block);
        if runs().all(|run| run.token == first) {
            let ids = lists::collect(runs().flat_map(|run| run.block..run.block + run.blocks))?;
            return Ok(SpanIds { ids, unit: block_stride, token: first.into() });
        }
        let granule = runs().fold(0, |granule, run| common_divisor(granule, run.token.into()));
        let token_stride = geometry.stride(Axis::Token);
        let unit = common_divisor(block_stride, granule * token_stride).max(1);
        let mut ids = Vec::new();
        lists::reserve(&mut ids, self.spans)?;
        for run in runs() {
            for block in run.block..run.block + run.blocks {
                let distance = u64::from(block) * block_stride + u64::from(run.token) * token_stride;
                ids.push(span_id(distance, unit)?);
            }
        }
        Ok(SpanIds { ids, unit, token: 0 })
    }
}

/// Spans as distances from a token of block 0, in steps of `unit` bytes.
struct SpanIds {
    ids: Vec<u32>,
    unit: u64,
    token: u64,
}

fn span_id(distance: u64, unit: u64) -> Result<u32> {
    u32::try_from(distance / unit).ok().filter(|id| *id < u32::MAX).ok_or_else(|| {
        let message = format!("a span is more than 2^32 steps of {unit} bytes away from block 0");
        Error::new(Status::Unsupported, message)
    })
}
