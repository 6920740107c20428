// SPDX-License-Identifier: Apache-2.0
//! What the memory of extents is: how large in whole, and how it may leave the process.

#![forbid(unsafe_code)]

use crate::cuda::Device;
use crate::cuda::vmm::{AllocationProperties, Granularity, Location, try_export};
use crate::error::{Result, Status};

/// The granularity that extents on a device are multiples of.
pub fn granularity(ordinal: i32) -> Result<u64> {
    granularity_of(properties(ordinal)?, ordinal)
}

/// The first thing asked of the driver: a device without virtual memory management has none.
pub(super) fn granularity_of(properties: AllocationProperties, ordinal: i32) -> Result<u64> {
    properties.granularity(Granularity::Recommended).map_err(|error| match Device::get(ordinal) {
        Ok(device) if !device.has_vmm() => error
            .context(format!(
                "device {ordinal} has no virtual memory management, which elastic memory is made of: use a device region"
            ))
            .with_status(Status::Unsupported),
        _ => error,
    })
}

/// Memory that can be shared and, where the device can, registered for RDMA: neither can be added later.
pub(super) fn properties(ordinal: i32) -> Result<AllocationProperties> {
    let device = Device::get(ordinal)?;
    Ok(AllocationProperties {
        location: Location::Device(ordinal),
        posix_fd: device.exports_posix_fd(),
        fabric: false,
        rdma: device.registers_vmm(),
    })
}

/// The same with fabric handles, after one was made and exported: the device's attribute says yes also where the driver
/// then refuses.
pub(super) fn with_fabric(plain: AllocationProperties, ordinal: i32) -> Result<AllocationProperties> {
    let properties = AllocationProperties { fabric: true, ..plain };
    match try_export(properties) {
        // A full device says nothing about handles.
        Err(error) if error.status() == Status::OutOfMemory => Ok(properties),
        Err(error) => Err(error.context(format!(
            "device {ordinal} gives no fabric handles: leave KVMEM_ELASTIC_FABRIC away, file descriptors serve within one \
             machine"
        ))),
        Ok(()) => Ok(properties),
    }
}
