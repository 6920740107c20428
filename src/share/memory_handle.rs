// SPDX-License-Identifier: Apache-2.0
//! How memory is carried from one process to another, as the wire form of a share says it.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

use super::Transport;
use crate::error::{Result, ensure, fail};
use crate::region::Tier;

/// How memory is carried from one process to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MemoryHandle {
    /// A memory file.
    Memory {
        /// Which of the file descriptors.
        fd: u32,
        /// Where in the file the memory starts. Other than 0 from version 3 on.
        #[serde(default, skip_serializing_if = "is_zero")]
        offset: u64,
    },
    /// A file on disk.
    Disk {
        /// Which of the file descriptors.
        fd: u32,
    },
    /// The driver's IPC handle of the allocation it lies in.
    Ipc {
        /// The device's UUID.
        #[serde(with = "serde_bytes")]
        device: [u8; 16],
        /// The driver's 64 bytes.
        #[serde(with = "serde_bytes")]
        handle: [u8; 64],
        /// Bytes of the allocation.
        base_size: u64,
        /// Where in the allocation the region begins.
        offset: u64,
        /// The driver's number of the allocation.
        buffer_id: u64,
    },
    /// Memory of the driver's virtual memory management, a file descriptor an extent.
    Extents {
        /// The device's UUID.
        #[serde(with = "serde_bytes")]
        device: [u8; 16],
        /// Bytes of an extent.
        extent_size: u64,
        /// Those that have memory, in order.
        extents: Vec<Extent>,
    },
    /// The same, a fabric handle an extent. From version 2 on.
    Fabric {
        /// The device's UUID.
        #[serde(with = "serde_bytes")]
        device: [u8; 16],
        /// Bytes of an extent.
        extent_size: u64,
        /// Those that have memory, in order.
        extents: Vec<FabricExtent>,
    },
    /// Mappings side by side that the process found under a region. From version 2 on.
    Mappings {
        /// The device's UUID.
        #[serde(with = "serde_bytes")]
        device: [u8; 16],
        /// Where in the first of them the region begins.
        offset: u64,
        /// In the order of their addresses.
        mappings: Vec<SharedMapping>,
    },
}

/// One extent that has memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extent {
    /// Which extent of the region.
    pub index: u64,
    /// Which of the file descriptors.
    pub fd: u32,
    /// Its word in the control block, when it was shared.
    pub changes: u32,
}

/// One extent that has memory, by its fabric handle.
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

/// The memory of one mapping.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedMapping {
    /// Its bytes.
    pub size: u64,
    /// How it comes.
    pub handle: SharedHandle,
}

/// How the memory of a mapping comes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum SharedHandle {
    /// Which of the file descriptors.
    Fd(u32),
    /// The driver's 64 bytes.
    Fabric(#[serde(with = "serde_bytes")] [u8; 64]),
}

impl MemoryHandle {
    /// Which way that is.
    pub fn way(&self) -> Transport {
        match self {
            Self::Memory { .. } | Self::Disk { .. } | Self::Extents { .. } | Self::Mappings { .. } => {
                Transport::Fd
            }
            Self::Ipc { .. } => Transport::Ipc,
            Self::Fabric { .. } => Transport::Fabric,
        }
    }

    /// The first version of the wire form that has it.
    pub fn version(&self) -> u16 {
        match self {
            Self::Memory { offset: 1.., .. } => 3,
            Self::Memory { .. } | Self::Disk { .. } | Self::Ipc { .. } | Self::Extents { .. } => 1,
            Self::Fabric { .. } | Self::Mappings { .. } => 2,
        }
    }

    /// Whether memory of a tier and of that size can be carried so. `named` is told every file descriptor, in order.
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
            (_, tier) => fail!(Corrupt, "it is {} memory, which is not carried this way", tier.name()),
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
        "{size} bytes are no whole extents of {extent_size} bytes"
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

/// None may be empty or more than the region needs, and together they must hold it.
fn check_mappings(size: u64, offset: u64, mappings: &[SharedMapping]) -> Result<()> {
    let sizes = || mappings.iter().map(|mapping| mapping.size);
    let total = sizes().try_fold(0u64, u64::checked_add).filter(|total| *total <= i64::MAX as u64);
    let (Some(total), Some(first), Some(last), Some(end)) =
        (total, sizes().next(), sizes().next_back(), offset.checked_add(size))
    else {
        fail!(Corrupt, "its {} mappings can't hold {size} bytes at {offset}", mappings.len());
    };
    ensure!(
        sizes().all(|each| each > 0) && offset < first && end <= total && end > total - last,
        Corrupt,
        "{size} bytes at {offset} do not begin in the first and end in the last of {} mappings of {total} bytes",
        mappings.len()
    );
    Ok(())
}
