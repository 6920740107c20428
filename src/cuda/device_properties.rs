// SPDX-License-Identifier: Apache-2.0
//! What a device can do. It is a file of its own, because some of it is found out by creating memory on the device.

#![forbid(unsafe_code)]

use std::ffi::c_int;

use super::device::Device;
use super::vmm;
use crate::error::Result;

/// Attributes, by their numbers in the driver's ABI.
const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const COMPUTE_CAPABILITY_MINOR: c_int = 76;
const MEMORY_POOLS: c_int = 115;
const DMA_BUF: c_int = 124;
const HANDLE_TYPE_FABRIC: c_int = 128;
const HOST_NUMA_VMM: c_int = 141;

/// What a device is and can do: as the driver's attributes say, and for handles as a try has shown.
#[derive(Clone, Debug)]
pub struct DeviceProperties {
    /// Its name, such as "NVIDIA H200".
    pub name: String,
    /// The same in every process, whatever the ordinals are there.
    pub uuid: [u8; 16],
    /// Bytes of memory.
    pub total_memory: u64,
    /// Its compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Multiprocessors it has.
    pub multiprocessors: u32,
    /// The NUMA node it hangs on, where the driver knows.
    pub numa_node: Option<u32>,
    /// Devices whose memory it can map, itself among them, a bit for each ordinal below 64.
    pub can_access: u64,
    /// Memory can be reserved, created and mapped apart.
    pub vmm: bool,
    /// What sizes and offsets of such memory must be multiples of; 0 without it.
    pub minimum_granularity: u64,
    /// What they should be multiples of; 0 without it.
    pub recommended_granularity: u64,
    /// Such memory can be exported as a file descriptor.
    pub posix_fd: bool,
    /// Such memory can be exported as a fabric handle.
    pub fabric: bool,
    /// Such memory can be registered for RDMA.
    pub rdma_with_vmm: bool,
    /// Memory can be exported as a DMA-BUF.
    pub dma_buf: bool,
    /// Stream-ordered memory pools.
    pub memory_pools: bool,
    /// Host memory of a NUMA node can be created and mapped apart.
    pub host_numa_vmm: bool,
    /// The driver takes many copies in one call.
    pub batch_copies: bool,
}

impl Device {
    /// What it is and can do.
    pub fn properties(&self) -> Result<DeviceProperties> {
        let plain = vmm::AllocationProperties::on_device(self.ordinal());
        let vmm = self.has_vmm();
        let granularity = |which| if vmm { plain.granularity(which) } else { Ok(0) };
        Ok(DeviceProperties {
            name: self.name()?,
            uuid: self.uuid()?,
            total_memory: self.total_memory()?,
            compute_capability: (self.count(COMPUTE_CAPABILITY_MAJOR), self.count(COMPUTE_CAPABILITY_MINOR)),
            multiprocessors: self.multiprocessors(),
            numa_node: self.numa_node(),
            can_access: self.accessible()?,
            vmm,
            minimum_granularity: granularity(vmm::Granularity::Minimum)?,
            recommended_granularity: granularity(vmm::Granularity::Recommended)?,
            posix_fd: self.exports_posix_fd()
                && vmm::can_export(vmm::AllocationProperties { posix_fd: true, ..plain }),
            fabric: self.has(HANDLE_TYPE_FABRIC)
                && vmm::can_export(vmm::AllocationProperties { fabric: true, ..plain }),
            rdma_with_vmm: self.registers_vmm(),
            dma_buf: self.has(DMA_BUF),
            memory_pools: self.has(MEMORY_POOLS),
            host_numa_vmm: self.has(HOST_NUMA_VMM),
            batch_copies: self.driver().copies_batches(),
        })
    }
}
