// SPDX-License-Identifier: Apache-2.0
//! The sizes of slots of staging memory.

use super::slots::SLOTS;
use super::staging_memory::StagingMemory;
use crate::base::{Result, ensure, error};

/// Default size of an arena in host memory, and of one in GPU memory, from which a peer reads a slot in the time of a message.
const DEFAULT_SIZE: u64 = 16 << 20;
const DEFAULT_DEVICE_SIZE: u64 = 64 << 20;
/// The minimum size of a slot.
pub(super) const PAGE: u64 = 4096;

/// Bytes of a slot of an arena of `size` bytes, which is the value of an `option`; 0 for the default.
pub fn slot_size(option: &str, size: u64, memory: StagingMemory) -> Result<u64> {
    let default = if let StagingMemory::Device(_) = memory { DEFAULT_DEVICE_SIZE } else { DEFAULT_SIZE };
    let size = if size == 0 { default } else { size };
    let slot = size / SLOTS / PAGE * PAGE;
    ensure!(
        slot > 0,
        InvalidArgument,
        "{option} is {size} bytes; the staging memory of transfers over NIXL needs {} or more, and 0 is the default",
        SLOTS * PAGE
    );
    Ok(slot)
}

/// Bytes of a slot that contains `content` bytes of an object, of an arena of `size` bytes; 0 for one that is large enough.
pub fn object_slot_size(size: u64, memory: StagingMemory, content: u64) -> Result<u64> {
    let needed = content.next_multiple_of(PAGE);
    let too_large = || {
        error!(
            OutOfMemory,
            "{SLOTS} objects of {content} bytes exceed the address space; use smaller objects"
        )
    };
    let of_all = needed.checked_mul(SLOTS).ok_or_else(too_large)?;
    if size == 0 {
        return Ok(needed);
    }
    let slot = slot_size("staging_size", size, memory)?;
    ensure!(
        slot >= content,
        InvalidArgument,
        "staging_size is {size} bytes; objects of {content} bytes pass through staging memory as a whole, which needs {of_all} or \
         more"
    );
    Ok(slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;

    #[test]
    fn slots_of_objects_are_in_the_address_space() {
        let slot = |content| object_slot_size(0, StagingMemory::Host, content);
        assert_eq!(slot((1 << 61) - 1).err().map(|error| error.status()), Some(Status::OutOfMemory));
        assert_eq!(slot((1 << 61) - PAGE).unwrap(), (1 << 61) - PAGE);
    }
}
