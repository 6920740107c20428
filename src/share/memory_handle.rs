// SPDX-License-Identifier: Apache-2.0
//! The handles in the wire form of a share, by which memory is passed to another process.

use serde::{Deserialize, Serialize};

use super::Transport;
use crate::base::{Result, ensure, fail};
use crate::region::Tier;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MemoryHandle {
    Memory {
        /// Which of the file descriptors.
        fd: u32,
        /// Where in the file the memory starts. Other than 0 from version 3 on.
        #[serde(default, skip_serializing_if = "is_zero")]
        offset: u64,
    },
    Disk {
        /// Which of the file descriptors.
        fd: u32,
    },
    /// The driver's IPC handle of the allocation.
    Ipc {
        #[serde(with = "serde_bytes")]
        device: [u8; 16],
        /// The driver's 64 bytes.
        #[serde(with = "serde_bytes")]
        handle: [u8; 64],
        base_size: u64,
        /// The offset of the region in the allocation.
        offset: u64,
        /// The driver's number for the allocation.
        buffer_id: u64,
    },
    /// Elastic memory, with a file descriptor per extent.
    Extents {
        #[serde(with = "serde_bytes")]
        device: [u8; 16],
        extent_size: u64,
        /// The committed extents, in order.
        extents: Vec<Extent>,
    },
    /// Elastic memory, with a fabric handle per extent. Since version 2.
    Fabric {
        #[serde(with = "serde_bytes")]
        device: [u8; 16],
        extent_size: u64,
        /// The committed extents, in order.
        extents: Vec<FabricExtent>,
    },
    /// The adjacent VMM mappings of a region. Since version 2.
    Mappings {
        #[serde(with = "serde_bytes")]
        device: [u8; 16],
        /// The offset of the region in the first mapping.
        offset: u64,
        /// The mappings, by address.
        mappings: Vec<SharedMapping>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extent {
    /// Which extent of the region.
    pub index: u64,
    /// Which of the file descriptors.
    pub fd: u32,
    /// Its word in the control block, when it was shared.
    pub changes: u32,
}

/// A committed extent, with its fabric handle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FabricExtent {
    /// Which extent of the region.
    pub index: u64,
    /// The driver's 64 bytes.
    #[serde(with = "serde_bytes")]
    pub handle: [u8; 64],
    /// Its word in the control block, when it was shared.
    pub changes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedMapping {
    pub size: u64,
    pub handle: SharedHandle,
}

/// The handle of a mapping's memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum SharedHandle {
    /// Which of the file descriptors.
    Fd(u32),
    Fabric(#[serde(with = "serde_bytes")] [u8; 64]),
}

impl MemoryHandle {
    pub fn way(&self) -> Transport {
        match self {
            Self::Memory { .. } | Self::Disk { .. } | Self::Extents { .. } | Self::Mappings { .. } => {
                Transport::Fd
            }
            Self::Ipc { .. } => Transport::Ipc,
            Self::Fabric { .. } => Transport::Fabric,
        }
    }

    /// Fails unless the handle is valid for memory of this tier and size. Calls `named` with each file descriptor, in order.
    pub fn check(&self, tier: Tier, size: u64, mut named: impl FnMut(u32) -> Result<()>) -> Result<()> {
        match (self, tier) {
            (Self::Memory { fd, offset }, Tier::System | Tier::Pinned) => {
                let inside = offset.checked_add(size).is_some_and(|end| end <= i64::MAX as u64);
                ensure!(inside, Corrupt, "{size} bytes at {offset} are more than a file can have");
                named(*fd)
            }
            (Self::Disk { fd }, Tier::Disk) => named(*fd),
            (Self::Ipc { base_size, offset, .. }, Tier::Device) => {
                let inside = offset.checked_add(size).is_some_and(|end| end <= *base_size);
                ensure!(inside, Corrupt, "{size} bytes at {offset} do not fit an allocation of {base_size}");
                Ok(())
            }
            (Self::Extents { extent_size, extents, .. }, Tier::Elastic | Tier::Device) => {
                check_extents(size, *extent_size, extents.iter().map(|extent| extent.index))?;
                extents.iter().try_for_each(|extent| named(extent.fd))
            }
            (Self::Fabric { extent_size, extents, .. }, Tier::Elastic) => {
                check_extents(size, *extent_size, extents.iter().map(|extent| extent.index))
            }
            (Self::Mappings { offset, mappings, .. }, Tier::Device) => {
                check_mappings(size, *offset, mappings)?;
                mappings.iter().try_for_each(|mapping| match mapping.handle {
                    SharedHandle::Fd(fd) => named(fd),
                    SharedHandle::Fabric(_) => Ok(()),
                })
            }
            (_, tier) => {
                fail!(Corrupt, "it is {} memory, for which this type of handle is invalid", tier.name())
            }
        }
    }
}

fn is_zero(offset: &u64) -> bool {
    *offset == 0
}

fn check_extents(size: u64, extent_size: u64, indices: impl Iterator<Item = u64>) -> Result<()> {
    ensure!(
        extent_size > 0 && size.is_multiple_of(extent_size),
        Corrupt,
        "{size} bytes are not a whole number of extents of {extent_size} bytes"
    );
    let count = size / extent_size;
    let mut next = 0;
    for index in indices {
        ensure!(
            (next..count).contains(&index),
            Corrupt,
            "its extents are not in order, or past the last of {count}"
        );
        next = index + 1;
    }
    Ok(())
}

/// No mapping may be empty or unused, and together they must contain the region.
fn check_mappings(size: u64, offset: u64, mappings: &[SharedMapping]) -> Result<()> {
    let sizes = || mappings.iter().map(|mapping| mapping.size);
    let total = sizes().try_fold(0u64, u64::checked_add).filter(|total| *total <= i64::MAX as u64);
    let (Some(total), Some(first), Some(last), Some(end)) =
        (total, sizes().next(), sizes().next_back(), offset.checked_add(size))
    else {
        fail!(Corrupt, "its {} mappings cannot contain {size} bytes at offset {offset}", mappings.len());
    };
    ensure!(
        sizes().all(|each| each > 0) && offset < first && end <= total && end > total - last,
        Corrupt,
        "{size} bytes at {offset} do not begin in the first and end in the last of {} mappings of {total} bytes",
        mappings.len()
    );
    Ok(())
}
