// SPDX-License-Identifier: Apache-2.0
//! Properties of a device. Some are determined by creating memory, so this file is above the virtual memory management.

use std::ffi::c_int;

use super::device::Device;
use super::vmm;
use crate::base::Result;

/// Attributes, by their numbers in the driver's ABI.
const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const COMPUTE_CAPABILITY_MINOR: c_int = 76;
const MEMORY_POOLS: c_int = 115;
const DMA_BUF: c_int = 124;
const HANDLE_TYPE_FABRIC: c_int = 128;
const HOST_NUMA_VMM: c_int = 141;

/// Properties of a device: the driver's attributes, and for handles the result of an attempt.
#[derive(Clone, Debug)]
pub struct DeviceProperties {
    /// Its name, such as "NVIDIA H200".
    pub name: String,
    /// Identical in every process, unlike the ordinal.
    pub uuid: [u8; 16],
    pub total_memory: u64,
    /// Its compute capability, major and minor.
    pub compute_capability: (u32, u32),
    pub multiprocessors: u32,
    /// The NUMA node it is attached to, if the driver knows it.
    pub numa_node: Option<u32>,
    /// Devices whose memory it can map, itself included: one bit per ordinal below 64.
    pub can_access: u64,
    /// Virtual memory management is supported.
    pub vmm: bool,
    /// Sizes and offsets of VMM memory must be multiples of this; 0 without VMM.
    pub minimum_granularity: u64,
    /// They should be multiples of this; 0 without VMM.
    pub recommended_granularity: u64,
    /// VMM memory can be exported as a file descriptor.
    pub posix_fd: bool,
    /// VMM memory can be exported as a fabric handle.
    pub fabric: bool,
    /// VMM memory can be registered for RDMA.
    pub rdma_with_vmm: bool,
    /// Memory can be exported as a DMA-BUF.
    pub dma_buf: bool,
    /// Stream-ordered memory pools are supported.
    pub memory_pools: bool,
    /// VMM memory can be created on a NUMA node of the host.
    pub host_numa_vmm: bool,
    /// One call can start many copies.
    pub batch_copies: bool,
}

impl Device {
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
