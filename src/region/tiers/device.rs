// SPDX-License-Identifier: Apache-2.0
//! Device memory: memory of one GPU that was allocated here, adopted from the caller, or imported from another process.

#![forbid(unsafe_code)]

use std::sync::Arc;

use super::mapped_device::MappedDevice;
use crate::base::error::{Result, ensure};
use crate::cuda::ContextIdentity;
use crate::cuda::context::not_started;
use crate::cuda::ipc::{DevicePair, IpcHandle, IpcMapping};
use crate::cuda::memory::{self, Allocation, AllocationStamp, DeviceRange};
use crate::cuda::vmm::{self, RetainedRange};
use crate::region::origin::Access;
use crate::region::release::{Release, ReleaseCallback};

/// How to allocate.
#[derive(Clone, Debug, Default)]
pub struct DeviceConfig {
    /// Size in bytes.
    pub size: u64,
    /// The device, in the order of CUDA_VISIBLE_DEVICES.
    pub ordinal: i32,
}

/// Memory of one device.
pub enum DeviceMemory {
    /// Allocated here.
    Owned(Allocation),
    /// Memory of the caller.
    Adopted(AdoptedDevice),
    /// Memory of another process, opened by its IPC handle.
    Imported(ImportedDevice),
    /// VMM memory of an engine in another process.
    Mapped(MappedDevice),
}

/// Device memory of the caller, for example a tensor of an engine.
pub struct AdoptedDevice {
    address: u64,
    size: u64,
    ordinal: i32,
    access: Access,
    pieces: usize,
    /// Addresses at which copies must be split; empty if nowhere.
    ends: Vec<u64>,
    stamp: Option<AllocationStamp>,
    _release: Option<Release>,
}

/// The memory of another process to open.
#[derive(Clone, Debug)]
pub struct IpcConfig {
    /// The device that it is located on, and the device that will use it, in the order of CUDA_VISIBLE_DEVICES here.
    pub place: DevicePair,
    /// Identifies the allocation.
    pub handle: IpcHandle,
    /// Its offset in the allocation.
    pub offset: u64,
    /// Its bytes.
    pub size: u64,
    /// The size of the allocation in bytes, if the exporter reported it.
    pub base_size: Option<u64>,
    /// The exporter's number for the allocation, if the exporter reported it.
    pub buffer_id: Option<u64>,
}

/// A part of an allocation of another process, which is open as long as any part of it is in use.
pub struct ImportedDevice {
    mapping: Arc<IpcMapping>,
    address: u64,
    size: u64,
}

impl ImportedDevice {
    /// The allocation it is a part of.
    pub fn mapping(&self) -> &Arc<IpcMapping> {
        &self.mapping
    }
}

impl DeviceMemory {
    /// Every address that the driver returns for an allocation is a multiple of this many bytes. CUDA's programming guide
    /// guarantees no larger alignment.
    pub const START_ALIGNMENT: u64 = 256;

    /// Adopts memory of the caller. Fails unless all of it is memory of device `ordinal`, to which the device has this access.
    /// `release` is called only if this succeeds.
    pub fn adopt(
        address: u64,
        size: u64,
        ordinal: i32,
        access: Access,
        release: Option<ReleaseCallback>,
    ) -> Result<Self> {
        ensure!(address != 0, InvalidArgument, "the address to adopt is NULL");
        ensure!(size > 0, InvalidArgument, "the size to adopt is 0 bytes; it must be at least 1");
        let DeviceRange { device, pieces, ends } =
            memory::identify(address, size, access == Access::ReadWrite)?;
        ensure!(
            device.ordinal() == ordinal,
            InvalidArgument,
            "{address:#x} is memory of device {}, not of device {ordinal}; adopt it as memory of its device",
            device.ordinal()
        );
        let stamp = AllocationStamp::from_address(address)?;
        let _release = release.map(|release| Release::new(release, address, size)).transpose()?;
        Ok(Self::Adopted(AdoptedDevice { address, size, ordinal, access, pieces, ends, stamp, _release }))
    }

    /// Opens memory of another process by its legacy IPC handle.
    pub fn open(config: &IpcConfig) -> Result<Self> {
        ensure!(config.size > 0, InvalidArgument, "the size to open is 0 bytes; it must be at least 1");
        let mapping = IpcMapping::open(config.place, &config.handle, config.buffer_id)?;
        config.base_size.map_or(Ok(()), |size| mapping.check_size(size))?;
        let address = mapping.part(config.offset, config.size)?;
        Ok(Self::Imported(ImportedDevice { mapping, address, size: config.size }))
    }

    /// Its first byte.
    pub fn address(&self) -> u64 {
        match self {
            Self::Owned(memory) => memory.address(),
            Self::Adopted(memory) => memory.address,
            Self::Imported(memory) => memory.address,
            Self::Mapped(memory) => memory.address(),
        }
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Owned(memory) => memory.size(),
            Self::Adopted(memory) => memory.size,
            Self::Imported(memory) => memory.size,
            Self::Mapped(memory) => memory.size(),
        }
    }

    /// Whether the caller adopted it to be read only.
    pub fn is_read_only(&self) -> bool {
        matches!(self, Self::Adopted(memory) if memory.access == Access::Read)
    }

    /// The number of adjacent allocations or mappings that contain it.
    pub fn pieces(&self) -> usize {
        match self {
            Self::Owned(_) | Self::Imported(_) => 1,
            Self::Adopted(memory) => memory.pieces,
            Self::Mapped(memory) => memory.pieces(),
        }
    }

    /// Bytes from `address` that one copy of the driver may cover; unlimited if it is one allocation.
    pub fn bytes_in_piece(&self, address: u64) -> u64 {
        let Self::Adopted(AdoptedDevice { ends, .. }) = self else { return u64::MAX };
        ends.get(ends.partition_point(|end| *end <= address)).map_or(u64::MAX, |end| end - address)
    }

    /// The device's ordinal.
    pub fn ordinal(&self) -> i32 {
        match self {
            Self::Owned(memory) => memory.device().ordinal(),
            Self::Adopted(memory) => memory.ordinal,
            Self::Imported(memory) => memory.mapping.place().owner,
            Self::Mapped(memory) => memory.ordinal(),
        }
    }

    /// The device that it is mapped for, if it was opened for another device; otherwise its own.
    pub fn user(&self) -> i32 {
        match self {
            Self::Imported(memory) => memory.mapping.place().user,
            _ => self.ordinal(),
        }
    }

    /// Identifies the allocation, if the caller owns it and it belongs to a context.
    pub fn stamp(&self) -> Option<AllocationStamp> {
        match self {
            Self::Adopted(memory) => memory.stamp,
            _ => None,
        }
    }

    /// The primary context that it belongs to, if kvmem allocated or opened it.
    pub fn identity(&self) -> Option<ContextIdentity> {
        match self {
            Self::Owned(memory) => Some(memory.identity()),
            Self::Imported(memory) => Some(memory.mapping.identity()),
            Self::Adopted(_) | Self::Mapped(_) => None,
        }
    }

    /// Fails if it was destroyed with its context.
    pub fn ensure_exists(&self) -> Result<()> {
        match self.identity() {
            Some(identity) => identity.ensure_alive().map_err(not_started),
            None => self.stamp().as_ref().map_or(Ok(()), AllocationStamp::ensure_exists),
        }
    }

    /// Retains the physical memory of VMM memory of an engine; `None` for any other. Fails if it was destroyed.
    pub fn retain_mappings(&self) -> Result<Option<RetainedRange>> {
        self.ensure_exists()?;
        match self {
            Self::Adopted(memory) => vmm::retain_range(memory.address, memory.size),
            _ => Ok(None),
        }
    }
}
