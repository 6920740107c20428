// SPDX-License-Identifier: Apache-2.0
//! Slices of a plan: some of its blocks, so that the terms of each slice fit in a message. The bytes of each slice are counted by
//! themselves. A range of the plan's bytes would be no slice: if blocks are not the outermost axis, it has some of the bytes of
//! most blocks.

use std::ops::Range;

use super::linear::LinearPlan;
use super::terms::{MAX_SPANS, SPAN_BYTES, SpanPlaces, SpanRun, Terms, section_bytes};
use super::{Plan, PlanPart};
use crate::base::{Result, lists};

/// Some of the blocks of a plan, or of its spans of tokens.
pub struct PlanSlice<'a> {
    plan: &'a Plan,
    /// Of each part that it has blocks of: the blocks, which are counted from the first of the part.
    parts: Vec<(PlanPart<'a>, Range<u64>)>,
}

impl Plan {
    pub fn whole(&self) -> PlanSlice<'_> {
        let parts = self.parts().map(|part| (part, 0..part.blocks()));
        PlanSlice { plan: self, parts: parts.collect() }
    }

    /// Divides the plan. The terms of one side have at most so many bytes for each slice, but name at least one span.
    pub fn slices(&self, side: usize, max_bytes: usize) -> Result<Vec<PlanSlice<'_>>> {
        if self.certainly_fits(max_bytes) {
            return Ok(vec![self.whole()]);
        }
        let mut slices = Slices::new(self, max_bytes);
        for part in self.parts() {
            slices.add(part, side)?;
        }
        slices.finish()
    }

    /// Whether one slice has space for all blocks, also if no two of them are joined.
    fn certainly_fits(&self, max_bytes: usize) -> bool {
        let (mut bytes, mut spans) = (0u64, 0u64);
        for part in self.parts() {
            spans = spans.saturating_add(part.blocks());
            bytes = bytes.saturating_add(section_bytes(part.name) as u64);
        }
        let bytes = bytes.saturating_add(spans.saturating_mul(SPAN_BYTES as u64));
        spans <= MAX_SPANS as u64 && bytes <= max_bytes as u64
    }
}

impl<'a> PlanSlice<'a> {
    /// One side of a slice of a plan that [`Plan::led_by`] returned for the other side. Fails for what can't be said in these
    /// terms.
    pub fn terms(&self, side: usize) -> Result<Terms> {
        Terms::new(self.plan, &self.parts, side)
    }

    /// The bytes in a row of a slice of a plan that [`Plan::led_by`] returned for this side, on this side.
    pub fn linear(&self, side: usize) -> Result<LinearPlan> {
        let sections =
            self.parts.iter().map(|(part, blocks)| Ok((part.order_of(side), part.one_side(side, blocks)?)));
        LinearPlan::new(sections)
    }
}

/// The slices of a plan, to which one part after the other is added.
struct Slices<'a> {
    complete: Vec<PlanSlice<'a>>,
    last: PlanSlice<'a>,
    max_bytes: usize,
    /// What the last one has space for.
    bytes: usize,
    spans: usize,
}

impl<'a> Slices<'a> {
    fn new(plan: &'a Plan, max_bytes: usize) -> Self {
        let last = PlanSlice { plan, parts: Vec::new() };
        Self { complete: Vec::new(), last, max_bytes, bytes: max_bytes, spans: MAX_SPANS }
    }

    fn add(&mut self, part: PlanPart<'a>, side: usize) -> Result<()> {
        let places = SpanPlaces::new(self.last.plan, &part, side)?;
        let with_section = section_bytes(part.name) + SPAN_BYTES;
        let mut first = 0;
        let mut run: Option<SpanRun> = None;
        for (block, id) in (0..).zip(part.ids(side, &(0..part.blocks()))) {
            let place = places.of_id(id)?;
            let mut size = match &mut run {
                None => with_section,
                Some(run) if run.goes_on_in(place) => 0,
                Some(_) => SPAN_BYTES,
            };
            let is_empty = self.last.parts.is_empty() && first == block;
            if !is_empty && (size > self.bytes || self.spans == 0) {
                self.end(part, first..block)?;
                (first, size) = (block, with_section);
            }
            self.bytes = self.bytes.saturating_sub(size);
            self.spans -= 1;
            run = match run {
                Some(run) if size == 0 => Some(run.longer()),
                _ => Some(place),
            };
        }
        lists::push(&mut self.last.parts, (part, first..part.blocks()))
    }

    /// Ends the last slice with some blocks of a part, which may be none, and begins another one.
    fn end(&mut self, part: PlanPart<'a>, blocks: Range<u64>) -> Result<()> {
        if !blocks.is_empty() {
            lists::push(&mut self.last.parts, (part, blocks))?;
        }
        let next = PlanSlice { plan: self.last.plan, parts: Vec::new() };
        lists::push(&mut self.complete, std::mem::replace(&mut self.last, next))?;
        (self.bytes, self.spans) = (self.max_bytes, MAX_SPANS);
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<PlanSlice<'a>>> {
        lists::push(&mut self.complete, self.last)?;
        Ok(self.complete)
    }
}
