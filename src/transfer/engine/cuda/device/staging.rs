// SPDX-License-Identifier: Apache-2.0
//! Staging memory on a device.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::cuda::memory::Allocation;
use crate::cuda::stream::Stream;
use crate::cuda::{Context, Event};
use crate::error::Result;

/// Parts of the staging memory. Beside compute few and large ones: each takes a launch, and each launch may have to wait
/// for a large kernel's end. With 8 parts of 16 MiB and 32 CTAs the link of an H200 stood still for every fourth kernel;
/// with these it runs at 0.90 and more.
pub fn staging_parts(computes: bool) -> u64 {
    if computes { 4 } else { MOST_PARTS }
}

/// The most parts that staging memory has.
pub const MOST_PARTS: u64 = 8;

/// Device memory in parts that fill and drain in turn, and what keeps kernel and copy engine in step.
pub struct Staging {
    memory: Allocation,
    parts: Vec<Part>,
    /// Where the copy engine works.
    pub copier: Stream,
    /// What the run waits for was reached.
    pub begun: Event,
}

/// What tells of a part of the staging memory.
pub struct Part {
    /// It is full.
    pub filled: Event,
    /// It is empty.
    pub drained: Event,
}

impl Staging {
    /// Allocates it, with a stream and events.
    pub fn new(context: &Arc<Context>, size: u64) -> Result<Self> {
        let memory = Allocation::new(context.device().ordinal(), size)?;
        let part = |_| Ok(Part { filled: Event::new(context)?, drained: Event::new(context)? });
        let parts = (0..MOST_PARTS).map(part).collect::<Result<_>>()?;
        Ok(Self { memory, parts, copier: Stream::new(context)?, begun: Event::new(context)? })
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.memory.size()
    }

    /// The part that a chunk goes through, of as many parts of `size` bytes as the run uses, and where it begins.
    pub fn part(&self, chunk: usize, parts: usize, size: u64) -> (u64, &Part) {
        let index = chunk % parts.min(self.parts.len());
        (self.memory.address() + index as u64 * size, &self.parts[index])
    }
}
