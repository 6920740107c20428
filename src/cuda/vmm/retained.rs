// SPDX-License-Identifier: Apache-2.0
//! The physical memory behind a range of addresses that other code of this process has mapped.

use std::sync::Arc;

use super::memory::PhysicalMemory;
use crate::base::{Result, Status, ensure};
use crate::cuda::memory as pointers;

/// The physical memory behind a range of addresses.
pub struct RetainedRange {
    /// The offset of the range in the first memory.
    pub offset: u64,
    /// One memory per mapping, by address. Holding them keeps them when they are unmapped.
    pub memories: Vec<Arc<PhysicalMemory>>,
}

/// The memory behind `size` bytes at `address`; `None` if the first byte is not VMM memory, for example memory of
/// cuMemAlloc.
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
            "the driver reports a mapping of {length} bytes at {base:#x} for the address {next:#x}"
        );
        if next == address {
            found.offset = address - base;
        }
        found.memories.push(memory);
        next = base + length;
    }
    Ok(Some(found))
}
