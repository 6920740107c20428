// SPDX-License-Identifier: Apache-2.0
//! Raw descriptors.

use std::ffi::{CString, c_char, c_void};
use std::ptr::null;
use std::sync::Arc;

use crate::base::{Result, ensure, lists};
use crate::ffi::agent::{memory_type, memory_type_of};
use crate::ffi::common::{
    OutItems, Scope, borrow, borrow_nullable, call, items, kvmem_error, kvmem_status, out, text,
};
use crate::ffi::region::kvmem_region;
use crate::nixl::{DescriptorEntry, Descriptors, MemoryType, Owner};
use crate::region::Region;

/// Memory, a file, an object or a block as NIXL addresses it. The memory need not belong to kvmem. Calls copy
/// the descriptors that they take, with metadata and names. An array has at least one, all of one memory
/// type.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_nixl_descriptor {
    /// Address, or offset in a file or object.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// 0 for host memory, the ordinal of a GPU, the fd of a file, the number of an object or block device.
    pub device_id: u64,
    /// KVMEM_MEMORY_* value.
    pub memory_type: u32,
    /// Must be 0.
    pub reserved: u32,
    /// For registrations and queries: an object's key, a file's path and so on; NULL with size 0 for none.
    pub metadata: *const c_void,
    /// Number of bytes of metadata.
    pub metadata_size: usize,
    /// For memory views of peers: name of the agent that owns it; otherwise NULL.
    pub agent: *const c_char,
    /// Region of the memory; NULL for none. Objects that are created from the descriptor keep the region
    /// alive. Requests and prepared lists also keep its registration with the agent.
    pub region: *const kvmem_region,
}

/// Returns the memory of a region as descriptors: one per span that is registered. Those of objects and block
/// storage have the keys or the metadata, and are of the whole region, also if it is a view.
///
/// @param descriptors receives the descriptors, which refer to the region; their metadata is valid as long as
///        it. NULL with capacity 0 to get only their number
/// @param capacity elements of descriptors
/// @param count receives the number of descriptors of the region
/// @return KVMEM_STATUS_OUT_OF_RANGE: capacity is less than the number, which the message has
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_get_descriptors(
    region: *const kvmem_region,
    descriptors: *mut kvmem_nixl_descriptor,
    capacity: usize,
    count: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let handle = region;
        let region = borrow(scope, handle)?;
        let count = out(count, "count")?;
        let asks_number = descriptors.is_null();
        let descriptors = OutItems::new(descriptors, capacity, ("descriptors", "capacity"))?;
        let memory_type = memory_type(region.tier().memory_type());
        let write = |entries: &[DescriptorEntry]| {
            ensure!(
                asks_number || entries.len() <= capacity,
                OutOfRange,
                "capacity is {capacity}, and the region has {} descriptors",
                entries.len()
            );
            let to_c = |entry: &DescriptorEntry| kvmem_nixl_descriptor {
                address: entry.address,
                size: entry.size,
                device_id: entry.device_id,
                memory_type,
                reserved: 0,
                metadata: if entry.metadata.is_empty() { null() } else { entry.metadata.as_ptr().cast() },
                metadata_size: entry.metadata.len(),
                agent: null(),
                region: handle,
            };
            count.write(descriptors.fill(entries.iter().map(to_c)));
            Ok(())
        };
        match region.kept_storage_list() {
            Some(list) => write(list?.entries()),
            None => write(&lists::collect(region.descriptors().iter().map(DescriptorEntry::from_span))?),
        }
    })
}

/// The list of descriptors in an array. An empty one is of host memory.
///
/// # Safety
/// The array must have `count` descriptors, and their pointers be NULL or valid.
pub unsafe fn list(
    scope: &Scope<'_>,
    descriptors: *const kvmem_nixl_descriptor,
    count: usize,
    name: &str,
) -> Result<Descriptors> {
    let given = items(descriptors, count, (name, "count"))?;
    let Some(first) = given.first() else { return Ok(Descriptors::empty(MemoryType::Dram)) };
    let of_all = memory_type_of(first.memory_type).map_err(|error| error.context(format!("{name}[0]")))?;
    let mut entries = Vec::new();
    lists::reserve(&mut entries, count)?;
    for (index, each) in given.iter().enumerate() {
        ensure!(
            each.memory_type == first.memory_type,
            InvalidArgument,
            "memory_type of {name}[{index}] is {}, and that of {name}[0] is {} ({}); they must be equal",
            each.memory_type,
            first.memory_type,
            of_all.name()
        );
        let entry = entry(scope, each);
        entries.push(entry.map_err(|error| error.context(format!("{name}[{index}]")))?);
    }
    Descriptors::new(of_all, entries).map_err(|error| error.context(name.to_string()))
}

/// # Safety
/// The pointers of the descriptor must be NULL or valid.
unsafe fn entry(scope: &Scope<'_>, descriptor: &kvmem_nixl_descriptor) -> Result<DescriptorEntry> {
    ensure!(descriptor.reserved == 0, InvalidArgument, "reserved is {}; it must be 0", descriptor.reserved);
    // SAFETY: the caller's promise.
    let (metadata, agent, region) = unsafe {
        let metadata = text::bytes(descriptor.metadata, descriptor.metadata_size, "metadata")?;
        let agent = descriptor.agent;
        let agent = if agent.is_null() { None } else { Some(text::required(agent, "agent")?) };
        (metadata, agent, borrow_nullable(scope, descriptor.region)?)
    };
    Ok(DescriptorEntry {
        address: descriptor.address,
        size: descriptor.size,
        device_id: descriptor.device_id,
        metadata: lists::copied(metadata)?,
        agent: agent.map(|name| CString::new(name).unwrap_or_default()),
        owner: region.map(|region| -> Owner {
            let region: &Arc<Region> = region;
            region.clone()
        }),
    })
}
