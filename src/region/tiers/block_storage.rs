// SPDX-License-Identifier: Apache-2.0
//! A part of a block device or of a store of blocks, which a backend of NIXL reads and writes.

use crate::base::{Result, ensure};
use crate::nixl::{DescriptorEntry, Descriptors, MemoryType};
use crate::region::{AddressSpace, Backing, MemoryRange, Tier};

/// The part of the device that a region is.
#[derive(Clone, Debug)]
pub struct BlockStorageConfig {
    /// The backend's number for the device.
    pub device_id: u64,
    /// Where the part begins, in bytes.
    pub offset: u64,
    pub size: u64,
    /// Offsets and sizes of transfers are multiples of it.
    pub alignment: u64,
    /// What the backend needs to register the part.
    pub metadata: Vec<u8>,
}

/// Block storage. Its addresses are offsets in the device.
pub struct BlockStorage(BlockStorageConfig);

impl BlockStorage {
    pub fn new(config: BlockStorageConfig) -> Result<Self> {
        let BlockStorageConfig { offset, size, alignment, .. } = config;
        ensure!(size > 0, InvalidArgument, "size is 0 bytes; it must be at least 1");
        ensure!(
            offset.checked_add(size).is_some_and(|end| end <= i64::MAX as u64),
            InvalidArgument,
            "{size} bytes at offset {offset} are beyond 2^63 - 1 bytes"
        );
        ensure!(
            alignment.is_power_of_two(),
            InvalidArgument,
            "alignment is {alignment} bytes; it must be a power of two"
        );
        ensure!(
            offset.is_multiple_of(alignment) && size.is_multiple_of(alignment),
            InvalidArgument,
            "offset {offset} and size {size} must be multiples of the alignment {alignment}"
        );
        Ok(Self(config))
    }

    /// It with what the backend needs, for registration.
    fn descriptors(&self) -> Result<Descriptors> {
        let BlockStorageConfig { device_id, offset, size, metadata, .. } = &self.0;
        let entry = DescriptorEntry {
            address: *offset,
            size: *size,
            device_id: *device_id,
            metadata: metadata.clone(),
            ..DescriptorEntry::default()
        };
        Descriptors::new(MemoryType::Block, vec![entry])
    }
}

impl Backing for BlockStorage {
    fn range(&self) -> MemoryRange {
        MemoryRange { tier: Tier::Block, address: self.0.offset, size: self.0.size }
    }

    fn address_space(&self) -> AddressSpace {
        AddressSpace::BlockDevice(self.0.device_id)
    }

    fn device_id(&self) -> u64 {
        self.0.device_id
    }

    fn storage_list(&self) -> Option<Result<Descriptors>> {
        Some(self.descriptors())
    }

    fn is_registered_whole(&self) -> bool {
        true
    }

    fn io_alignment(&self) -> u64 {
        self.0.alignment
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;

    #[test]
    fn storage_that_cannot_be_is_refused() {
        let config = |offset, size, alignment| BlockStorageConfig {
            device_id: 7,
            offset,
            size,
            alignment,
            metadata: Vec::new(),
        };
        for (offset, size, alignment) in [
            (0, 0, 1),
            (u64::MAX, 1, 1),
            (1 << 63, 512, 512),
            (0, 512, 0),
            (0, 512, 3),
            (256, 512, 512),
            (0, 700, 512),
        ] {
            let error = BlockStorage::new(config(offset, size, alignment)).err().unwrap();
            assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        }
        assert!(BlockStorage::new(config(512, 1024, 512)).is_ok());
    }
}
