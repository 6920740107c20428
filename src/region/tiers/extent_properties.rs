// SPDX-License-Identifier: Apache-2.0
//! Properties of the memory of extents: granularity, and the handles it can be exported as.

use super::pinned::name_the_alternative;
use crate::base::{Result, Status};
use crate::cuda::Device;
use crate::cuda::vmm::{AllocationProperties, Granularity, Location, try_export};

/// The granularity of extents on a device: their size is a multiple of it.
pub fn granularity(ordinal: i32) -> Result<u64> {
    granularity_of(properties(ordinal)?, ordinal)
}

/// The first query of the driver. It fails if the device has no virtual memory management.
pub fn granularity_of(properties: AllocationProperties, ordinal: i32) -> Result<u64> {
    properties.granularity(Granularity::Recommended).map_err(|error| match Device::get(ordinal) {
        Ok(device) if !device.has_vmm() => error
            .context(format!(
                "device {ordinal} has no virtual memory management, which elastic memory needs: use a device region"
            ))
            .with_status(Status::Unsupported),
        _ => error,
    })
}

/// Memory that can be shared and, if the device supports it, registered for RDMA: neither can be added later.
pub fn properties(ordinal: i32) -> Result<AllocationProperties> {
    let device = Device::get(ordinal).map_err(name_the_alternative)?;
    Ok(AllocationProperties {
        location: Location::Device(ordinal),
        posix_fd: device.exports_posix_fd(),
        fabric: false,
        rdma: device.registers_vmm(),
    })
}

/// The same with fabric handles. An export is tried first, because the driver may refuse although the device's attribute
/// is set.
pub fn with_fabric(plain: AllocationProperties, ordinal: i32) -> Result<AllocationProperties> {
    let properties = AllocationProperties { fabric: true, ..plain };
    match try_export(properties) {
        // On a full device it is unknown whether handles work.
        Err(error) if error.status() == Status::OutOfMemory => Ok(properties),
        Err(error) => Err(error.context(format!(
            "device {ordinal} exports no fabric handles: omit KVMEM_ELASTIC_FABRIC, and share by file descriptors within \
             one machine"
        ))),
        Ok(()) => Ok(properties),
    }
}
