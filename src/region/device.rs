// SPDX-License-Identifier: Apache-2.0
//! Device memory: plain memory of one GPU, allocated here, the caller's, or another process's.

#![forbid(unsafe_code)]

use std::sync::Arc;

use super::mapped_device::MappedDevice;
use super::release::{Release, ReleaseCallback};
use crate::cuda::ContextIdentity;
use crate::cuda::context::not_started;
use crate::cuda::ipc::{DevicePair, IpcHandle, IpcMapping};
use crate::cuda::memory::{self, Allocation, AllocationStamp, DeviceRange};
use crate::cuda::vmm::{self, RetainedRange};
use crate::error::{Result, ensure};

/// What to allocate.
#[derive(Clone, Debug, Default)]
pub struct DeviceConfig {
    /// Bytes.
    pub size: u64,
    /// The device, as CUDA_VISIBLE_DEVICES orders them.
    pub ordinal: i32,
}

/// Memory of one device.
pub enum DeviceMemory {
    /// Allocated here.
    Owned(Allocation),
    /// The caller's.
    Adopted(AdoptedDevice),
    /// Another process's, opened by its IPC handle.
    Imported(ImportedDevice),
    /// Another process's, where an engine had mapped it.
    Mapped(MappedDevice),
}

/// Device memory of the caller's, such as an engine's tensor.
pub struct AdoptedDevice {
    address: u64,
    size: u64,
    ordinal: i32,
    pieces: usize,
    /// Where copies of the driver must be cut; empty if nowhere.
    ends: Vec<u64>,
    stamp: Option<AllocationStamp>,
    _release: Option<Release>,
}

/// What to open of another process's.
#[derive(Clone, Debug)]
pub struct IpcConfig {
    /// The device it lies on and the one that is to use it, as CUDA_VISIBLE_DEVICES orders them here.
    pub place: DevicePair,
    /// Names the allocation.
    pub handle: IpcHandle,
    /// Where in the allocation it begins.
    pub offset: u64,
    /// Its bytes.
    pub size: u64,
    /// Bytes of the allocation, where the exporter has told.
    pub base_size: Option<u64>,
    /// The exporter's number for the allocation, where it has told.
    pub buffer_id: Option<u64>,
}

/// A part of an allocation of another process's, which is open as long as any part of it is used.
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
    /// Every address that the driver returns for an allocation is a multiple of this many bytes: CUDA's programming
    /// guide promises no more.
    pub const START_ALIGNMENT: u64 = 256;

    /// Takes memory of the caller's into use, after the driver has said that all of it is memory of device
    /// `ordinal`. `release` is called only if this succeeds.
    pub fn adopt(address: u64, size: u64, ordinal: i32, release: Option<ReleaseCallback>) -> Result<Self> {
        ensure!(address != 0, InvalidArgument, "the address to adopt is NULL");
        ensure!(size > 0, InvalidArgument, "an adopted region of 0 bytes can't be made");
        let DeviceRange { device, pieces, ends } = memory::identify(address, size)?;
        ensure!(
            device.ordinal() == ordinal,
            InvalidArgument,
            "{address:#x} is memory of device {}, not of device {ordinal}",
            device.ordinal()
        );
        let stamp = AllocationStamp::of(address)?;
        let _release = release.map(|release| Release::new(release, address, size)).transpose()?;
        Ok(Self::Adopted(AdoptedDevice { address, size, ordinal, pieces, ends, stamp, _release }))
    }

    /// Opens memory of another process's by its legacy IPC handle.
    pub fn open(config: &IpcConfig) -> Result<Self> {
        ensure!(config.size > 0, InvalidArgument, "an opened region of 0 bytes can't be made");
        let mapping = IpcMapping::open(config.place, &config.handle, config.buffer_id)?;
        config.base_size.map_or(Ok(()), |told| mapping.check_size(told))?;
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

    /// Allocations or mappings side by side it is made of.
    pub fn pieces(&self) -> usize {
        match self {
            Self::Owned(_) | Self::Imported(_) => 1,
            Self::Adopted(memory) => memory.pieces,
            Self::Mapped(memory) => memory.pieces(),
        }
    }

    /// Bytes from `address` that a copy of the driver's may reach over; no bound if it is all one piece.
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

    /// The device whose kernels it is mapped for: another than its own where it was opened for that one.
    pub fn user(&self) -> i32 {
        match self {
            Self::Imported(memory) => memory.mapping.place().user,
            _ => self.ordinal(),
        }
    }

    /// What tells whether it is still there, where it is the caller's and goes with a context.
    pub fn stamp(&self) -> Option<AllocationStamp> {
        match self {
            Self::Adopted(memory) => memory.stamp,
            _ => None,
        }
    }

    /// The primary context that it goes with, where the library allocated or opened it there.
    pub fn identity(&self) -> Option<ContextIdentity> {
        match self {
            Self::Owned(memory) => Some(memory.identity()),
            Self::Imported(memory) => Some(memory.mapping.identity()),
            Self::Adopted(_) | Self::Mapped(_) => None,
        }
    }

    /// Fails if it went with its context.
    pub fn ensure_exists(&self) -> Result<()> {
        match self.identity() {
            Some(identity) => identity.ensure_alive().map_err(not_started),
            None => self.stamp().as_ref().map_or(Ok(()), AllocationStamp::ensure_exists),
        }
    }

    /// What lies behind memory that an engine has mapped itself; `None` for all other. Refused where it is gone.
    pub fn retain_mappings(&self) -> Result<Option<RetainedRange>> {
        self.ensure_exists()?;
        match self {
            Self::Adopted(memory) => vmm::retain_range(memory.address, memory.size),
            _ => Ok(None),
        }
    }
}
