// SPDX-License-Identifier: Apache-2.0
//! The memory behind a range of addresses that somebody else has mapped, mapping by mapping.

#![forbid(unsafe_code)]

use std::sync::Arc;

use super::memory::PhysicalMemory;
use crate::cuda::memory as pointers;
use crate::error::{Result, Status, ensure};

/// The memory behind a range of addresses.
pub struct RetainedRange {
    /// Where in the first memory the range begins.
    pub offset: u64,
    /// The memories, in the order of their addresses; held, they stay when they are unmapped.
    pub memories: Vec<Arc<PhysicalMemory>>,
}

/// What lies behind `size` bytes at `address`; `None` where the first of them was not mapped apart, as memory of
/// cuMemAlloc is not.
pub fn retain_range(address: u64, size: u64) -> Result<Option<RetainedRange>> {
    let device = pointers::owner_of(address)?;
    let (mut next, mut found) = (address, RetainedRange { offset: 0, memories: Vec::new() });
    while next < address + size {
        let memory = match PhysicalMemory::retain(next) {
            Err(error) if next == address && error.status() == Status::InvalidArgument => return Ok(None),
            retained => retained?,
        };
        let (base, length) = pointers::range_of(&device, next)?;
        ensure!(
            base <= next && base + length > next && length == memory.size(),
            Cuda,
            "the driver says that {length} bytes at {base:#x} are mapped where {next:#x} is asked for"
        );
        if next == address {
            found.offset = address - base;
        }
        found.memories.push(memory);
        next = base + length;
    }
    Ok(Some(found))
}
