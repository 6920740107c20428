// SPDX-License-Identifier: Apache-2.0
//! Lists of raw descriptors.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

use crate::base::error::{Result, ensure};
use crate::base::lists;
use crate::base::sync::Mutex;
use crate::ffi::agent::{memory_type, memory_type_of};
use crate::ffi::common::blob::{self, kvmem_blob};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Handle, Out, borrow, destroy, opaque, peek};
use crate::ffi::common::pointer::{items, null, out};
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::text;
use crate::ffi::region::kvmem_region;
use crate::nixl::{Descriptor, DescriptorEntry, Descriptors, Owner};
use crate::region::Region;

/// A list of descriptors of one memory type: memory, files, objects or blocks, as NIXL addresses them. It is
/// the input of registrations, requests, queries, partial metadata and memory views, which copy it. The
/// memory need not belong to kvmem.
///
/// Threads: all functions may use one list at the same time, except kvmem_descriptors_destroy. What
/// kvmem_descriptors_get returns is valid until the list is changed.
pub struct kvmem_descriptors {
    handle: Handle<Mutex<Descriptors>>,
}
opaque!(kvmem_descriptors, Mutex<Descriptors>, "descriptors");

/// One descriptor.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_descriptor {
    /// Address, or offset in a file or object.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// 0 for host memory, the ordinal of a GPU, the file descriptor of a file, the number of an object or
    /// block device.
    pub device_id: u64,
    /// For registrations and queries: what the backend needs, such as the key of an object or the path of a
    /// file; NULL with size 0 for none.
    pub metadata: *const c_void,
    /// Number of bytes of metadata.
    pub metadata_size: usize,
    /// For memory views of peers: name of the agent that owns the memory; otherwise NULL.
    pub agent: *const c_char,
}

/// Creates an empty list.
///
/// @param memory_type KVMEM_MEMORY_* value
/// @param descriptors receives the list; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: memory_type is not a KVMEM_MEMORY_* value
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_descriptors_create(
    memory_type: u32,
    descriptors: *mut *mut kvmem_descriptors,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let descriptors = unsafe { Out::new(descriptors, "descriptors") }?;
        descriptors.set(Mutex::new(Descriptors::new(memory_type_of(memory_type)?)));
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Adds descriptors to the end of a list: all of them, or none if the call fails.
///
/// @param descriptors a list
/// @param added the descriptors, which are copied with their metadata and names
/// @param count number of descriptors
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: a descriptor exceeds the address space, or the list would have more
///           than 2147483647 descriptors
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_descriptors_add(
    descriptors: *mut kvmem_descriptors,
    added: *const kvmem_descriptor,
    count: usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let descriptors = borrow(scope, descriptors)?;
            let added = items(added, count, "added")?;
            let mut entries = Vec::new();
            lists::reserve(&mut entries, added.len())?;
            for (index, each) in added.iter().enumerate() {
                entries.push(entry(each).map_err(|error| error.context(format!("added[{index}]")))?);
            }
            descriptors.lock().add(entries)
        })
    }
}

/// Adds the memory of a region to a list, as one descriptor per span that is registered.
///
/// Descriptors of objects and block storage have the keys or the metadata. Of these, the whole region is
/// added, also if a view of it is given. The list and each request on it keep the region alive. A request
/// also keeps the region's registration with the agent.
///
/// @param descriptors a list of the memory type of the region
/// @param region a region
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the list has another memory type
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_descriptors_add_region(
    descriptors: *mut kvmem_descriptors,
    region: *const kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let (descriptors, region) = (borrow(scope, descriptors)?, borrow(scope, region)?);
            let mut list = descriptors.lock();
            let memory_type = region.tier().memory_type();
            ensure!(
                memory_type == list.memory_type(),
                InvalidArgument,
                "the region is {} memory, the list is of {} memory",
                memory_type.name(),
                list.memory_type().name()
            );
            let region: &Arc<Region> = region;
            let owner: Owner = region.clone();
            let owned = |entry: DescriptorEntry| DescriptorEntry { owner: Some(owner.clone()), ..entry };
            if let Some(storage) = region.storage_list() {
                return list.add(lists::collect(storage?.entries().iter().cloned().map(owned))?);
            }
            let entry = |span: &Descriptor| DescriptorEntry {
                address: span.address,
                size: span.size,
                device_id: span.device_id,
                ..DescriptorEntry::default()
            };
            list.add(lists::collect(region.descriptors().iter().map(entry).map(owned))?)
        })
    }
}

/// Replaces a descriptor of a list.
///
/// @param descriptors a list
/// @param index less than the count
/// @param descriptor the new descriptor, which is copied
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the index is too large, or the descriptor exceeds the address space
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_descriptors_set(
    descriptors: *mut kvmem_descriptors,
    index: usize,
    descriptor: *const kvmem_descriptor,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let descriptors = borrow(scope, descriptors)?;
            let descriptor = descriptor.as_ref().ok_or_else(|| null("descriptor"))?;
            descriptors.lock().set(index, entry(descriptor)?)
        })
    }
}

/// Returns a descriptor of a list.
///
/// @param descriptors a list
/// @param index less than the count
/// @param descriptor receives the descriptor; its pointers are valid until the list is changed or destroyed
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the index is too large
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_descriptors_get(
    descriptors: *const kvmem_descriptors,
    index: usize,
    descriptor: *mut kvmem_descriptor,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let list = borrow(scope, descriptors)?.lock();
            let entry = list.get(index)?;
            let metadata =
                if entry.metadata.is_empty() { std::ptr::null() } else { entry.metadata.as_ptr().cast() };
            out(descriptor, "descriptor")?.write(kvmem_descriptor {
                address: entry.address,
                size: entry.size,
                device_id: entry.device_id,
                metadata,
                metadata_size: entry.metadata.len(),
                agent: entry.agent.as_ref().map_or(std::ptr::null(), |name| name.as_ptr()),
            });
            Ok(())
        })
    }
}

/// Removes a descriptor from a list. The indices of later ones decrease by one.
///
/// @param descriptors a list
/// @param index less than the count
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the index is too large
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_descriptors_remove(
    descriptors: *mut kvmem_descriptors,
    index: usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, descriptors)?.lock().remove(index)) }
}

/// Changes the number of descriptors of a list. Removes the last ones, or adds descriptors of zeroes, which
/// kvmem_descriptors_set replaces.
///
/// @param descriptors a list
/// @param count the new number
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: count is more than 2147483647
///         KVMEM_STATUS_OUT_OF_MEMORY
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_descriptors_resize(
    descriptors: *mut kvmem_descriptors,
    count: usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, descriptors)?.lock().resize(count)) }
}

/// Removes all descriptors of a list.
///
/// @param descriptors a list
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_descriptors_clear(
    descriptors: *mut kvmem_descriptors,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            borrow(scope, descriptors)?.lock().clear();
            Ok(())
        })
    }
}

/// Frees the memory that a list does not need for its descriptors.
///
/// @param descriptors a list
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_descriptors_trim(
    descriptors: *mut kvmem_descriptors,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            borrow(scope, descriptors)?.lock().trim();
            Ok(())
        })
    }
}

/// Returns the number of descriptors of a list.
///
/// @param descriptors a list; NULL returns 0
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_descriptors_count(descriptors: *const kvmem_descriptors) -> usize {
    // SAFETY: NULL or live, by contract.
    unsafe { peek(descriptors) }.map_or(0, |list| list.lock().entries().len())
}

/// Returns the memory type of a list, a KVMEM_MEMORY_* value.
///
/// @param descriptors a list; NULL returns 0
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_descriptors_memory_type(descriptors: *const kvmem_descriptors) -> u32 {
    // SAFETY: NULL or live, by contract.
    unsafe { peek(descriptors) }.map_or(0, |list| memory_type(list.lock().memory_type()))
}

/// Returns a list as text: a line for the list, and one for each descriptor.
///
/// @param descriptors a list
/// @param text receives the text; the caller destroys the blob
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_descriptors_print(
    descriptors: *const kvmem_descriptors,
    text: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let text = Out::new(text, "text")?;
            text.set(blob::value(borrow(scope, descriptors)?.lock().print().into_bytes()));
            Ok(())
        })
    }
}

/// Serializes a list for another process, with a version and a checksum.
///
/// @param descriptors a list
/// @param data receives the bytes; the caller destroys the blob
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the bytes would be more than 4 GiB
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_descriptors_export(
    descriptors: *const kvmem_descriptors,
    data: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let data = Out::new(data, "data")?;
            let bytes = borrow(scope, descriptors)?.lock().serialise()?;
            data.set(blob::value(bytes));
            Ok(())
        })
    }
}

/// Creates a list from the bytes of kvmem_descriptors_export. The bytes are not trusted; NIXL checks
/// addresses in them when the list is used.
///
/// @param data the bytes
/// @param size number of bytes
/// @param descriptors receives the list; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_CORRUPT: the bytes are damaged, or not a list
///         KVMEM_STATUS_VERSION_MISMATCH: the bytes have a version that this library cannot read
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_descriptors_import(
    data: *const c_void,
    size: usize,
    descriptors: *mut *mut kvmem_descriptors,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (descriptors, bytes) =
            unsafe { (Out::new(descriptors, "descriptors")?, text::bytes(data, size, "data")?) };
        descriptors.set(Mutex::new(Descriptors::deserialise(bytes)?));
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Destroys a list. Objects that were created from it are unchanged.
///
/// @param descriptors a list that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_descriptors_destroy(descriptors: *mut kvmem_descriptors) {
    // SAFETY: by contract.
    unsafe { destroy(descriptors) };
}

/// # Safety
/// The pointers of the descriptor must be NULL or valid.
unsafe fn entry(descriptor: &kvmem_descriptor) -> Result<DescriptorEntry> {
    // SAFETY: the caller's promise.
    let (metadata, agent) = unsafe {
        let metadata = text::bytes(descriptor.metadata, descriptor.metadata_size, "metadata")?;
        let agent = descriptor.agent;
        (metadata, if agent.is_null() { None } else { Some(text::required(agent, "agent")?) })
    };
    Ok(DescriptorEntry {
        address: descriptor.address,
        size: descriptor.size,
        device_id: descriptor.device_id,
        metadata: lists::copied(metadata)?,
        agent: agent.map(|name| CString::new(name).unwrap_or_default()),
        owner: None,
    })
}
