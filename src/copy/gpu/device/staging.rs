// SPDX-License-Identifier: Apache-2.0
//! Staging memory on a device, and its events.

use std::sync::Arc;

use crate::base::{Counted, Gauge, Result};
use crate::cuda::{Context, DeviceBuffer, Event, Stream};

/// Number of parts of the staging memory. Concurrently with compute, there are few and large parts: each needs a launch, and
/// each launch may wait for the end of a large kernel. With 8 parts of 16 MiB and 32 CTAs the link of an H200 was idle
/// during every fourth kernel; with 4 parts it is used to 90% and more.
pub fn staging_parts(computes: bool) -> u64 {
    if computes { 4 } else { MAX_PARTS }
}

pub const MAX_PARTS: u64 = 8;

/// Bytes of all of it.
pub static BYTES: Gauge = Gauge::new();

/// Device memory in parts that are filled and drained in rotation, and the events that synchronise kernel and copy engine.
pub struct Staging {
    memory: DeviceBuffer,
    parts: Vec<StagingPart>,
    pub copier: Stream,
    /// Recorded behind the work that the run waits for.
    pub begun: Event,
    _counted: Counted,
}

/// The events of a part of the staging memory.
pub struct StagingPart {
    pub filled: Event,
    pub drained: Event,
}

impl Staging {
    /// Allocates the memory, a stream and events.
    pub fn new(context: &Arc<Context>, size: u64) -> Result<Self> {
        // Otherwise the allocation would create the context again that the program has reset.
        context.ensure_alive()?;
        let memory = DeviceBuffer::new(context.device(), size)?;
        let part = |_| Ok(StagingPart { filled: Event::new(context)?, drained: Event::new(context)? });
        let parts = (0..MAX_PARTS).map(part).collect::<Result<_>>()?;
        let (copier, begun) = (Stream::new(context)?, Event::new(context)?);
        Ok(Self { memory, parts, copier, begun, _counted: BYTES.count(size) })
    }

    pub fn size(&self) -> u64 {
        self.memory.size()
    }

    /// The part of a chunk and its address, if the run uses so many parts of `size` bytes.
    pub fn part(&self, chunk: usize, parts: usize, size: u64) -> (u64, &StagingPart) {
        let index = chunk % parts.min(self.parts.len());
        (self.memory.address() + index as u64 * size, &self.parts[index])
    }
}
