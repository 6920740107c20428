// SPDX-License-Identifier: Apache-2.0
//! Device memory: plain memory of one GPU, or the caller's.

use super::adopted::Release;
use crate::cuda::memory::{self, Allocation};
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
}

/// Device memory of the caller's, such as an engine's tensor.
pub struct AdoptedDevice {
    address: u64,
    size: u64,
    ordinal: i32,
    pieces: usize,
    release: Option<Release>,
}

impl DeviceMemory {
    /// Allocates memory of one device.
    pub fn allocate(config: &DeviceConfig) -> Result<Self> {
        Allocation::new(config.ordinal, config.size).map(Self::Owned)
    }

    /// Takes memory of the caller's into use, after the driver has said that all of it is memory of device
    /// `ordinal`. `release` runs only if this succeeds.
    pub fn adopt(address: u64, size: u64, ordinal: i32, release: Option<Release>) -> Result<Self> {
        ensure!(address != 0, InvalidArgument, "the address to adopt is NULL");
        ensure!(size > 0, InvalidArgument, "an adopted region of 0 bytes can't be made");
        let (device, pieces) = memory::identify(address, size)?;
        ensure!(
            device.ordinal() == ordinal,
            InvalidArgument,
            "{address:#x} is memory of device {}, not of device {ordinal}",
            device.ordinal()
        );
        Ok(Self::Adopted(AdoptedDevice { address, size, ordinal, pieces, release }))
    }

    /// Its first byte.
    pub fn address(&self) -> u64 {
        match self {
            Self::Owned(memory) => memory.address(),
            Self::Adopted(memory) => memory.address,
        }
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Owned(memory) => memory.size(),
            Self::Adopted(memory) => memory.size,
        }
    }

    /// Allocations or mappings side by side it is made of.
    pub fn pieces(&self) -> usize {
        match self {
            Self::Owned(_) => 1,
            Self::Adopted(memory) => memory.pieces,
        }
    }

    /// The device's ordinal.
    pub fn ordinal(&self) -> i32 {
        match self {
            Self::Owned(memory) => memory.device().ordinal(),
            Self::Adopted(memory) => memory.ordinal,
        }
    }
}

impl Drop for AdoptedDevice {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}
