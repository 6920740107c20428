// SPDX-License-Identifier: Apache-2.0
//! Properties of physical memory: its location, and the handles it can be exported as.
#![allow(unsafe_code)]

use crate::base::{Result, fail};
use crate::cuda::device::Device;
use crate::cuda::driver;
use crate::cuda::driver_structs::{LOCATION_DEVICE, LOCATION_HOST_NUMA, RawLocation, RawProperties};

/// Values of the driver's ABI.
const ALLOCATION_TYPE_PINNED: u32 = 1;
pub(super) const HANDLE_POSIX_FD: u32 = 1;
pub(super) const HANDLE_FABRIC: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// On a device, by ordinal.
    Device(i32),
    HostNuma(i32),
}

/// Properties of physical memory, which are fixed when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationProperties {
    pub location: Location,
    /// It can be exported as a file descriptor.
    pub posix_fd: bool,
    /// It can be exported as a fabric handle.
    pub fabric: bool,
    /// It can be registered for RDMA.
    pub rdma: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// Sizes and offsets must be multiples of it.
    Minimum,
    /// Sizes and offsets should be multiples of it.
    Recommended,
}

impl AllocationProperties {
    /// Memory of a device that cannot be exported.
    pub fn on_device(ordinal: i32) -> Self {
        Self { location: Location::Device(ordinal), posix_fd: false, fabric: false, rdma: false }
    }

    /// Converts them to the driver's struct.
    pub(super) fn raw(&self) -> Result<RawProperties> {
        let location = match self.location {
            Location::Device(ordinal) => RawLocation::device(Device::get(ordinal)?.ordinal()),
            Location::HostNuma(node) => RawLocation { kind: LOCATION_HOST_NUMA, id: node },
        };
        let bits = |wanted, bit| if wanted { bit } else { 0 };
        Ok(RawProperties {
            allocation_type: ALLOCATION_TYPE_PINNED,
            handle_types: bits(self.posix_fd, HANDLE_POSIX_FD) | bits(self.fabric, HANDLE_FABRIC),
            location,
            gpu_direct_rdma: self.rdma.into(),
            ..RawProperties::empty()
        })
    }

    /// Converts them from the driver's struct.
    pub(super) fn from_raw(raw: &RawProperties) -> Result<Self> {
        let location = match raw.location {
            RawLocation { kind: LOCATION_DEVICE, id } => Location::Device(id),
            RawLocation { kind: LOCATION_HOST_NUMA, id } => Location::HostNuma(id),
            RawLocation { kind, id } => fail!(
                Unsupported,
                "the memory has a location of kind {kind}, number {id}; kvmem supports GPUs and NUMA nodes only"
            ),
        };
        Ok(Self {
            location,
            posix_fd: raw.handle_types & HANDLE_POSIX_FD != 0,
            fabric: raw.handle_types & HANDLE_FABRIC != 0,
            rdma: raw.gpu_direct_rdma != 0,
        })
    }

    /// The granularity of memory with these properties.
    pub fn granularity(&self, which: Granularity) -> Result<u64> {
        let driver = driver::get()?;
        let raw = self.raw()?;
        let mut granularity = 0;
        // SAFETY: the properties and the output live through the call.
        let result = unsafe { driver.api.mem_get_granularity.call(&mut granularity, &raw, which as u32) };
        driver.check(result, format_args!("get the granularity of memory on {}", self.location))?;
        Ok(granularity as u64)
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Device(ordinal) => write!(f, "device {ordinal}"),
            Self::HostNuma(node) => write!(f, "NUMA node {node}"),
        }
    }
}
