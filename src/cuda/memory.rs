// SPDX-License-Identifier: Apache-2.0
//! Device memory: allocations, and queries of addresses.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::Arc;

use super::codes::{INVALID_VALUE, NOT_FOUND, has_code};
use super::context::{Context, ContextIdentity, Entered};
use super::deferred::{self, Deferred};
use super::device::Device;
use super::driver;
use super::driver_structs::RawLocation;
use super::ending::released;
use crate::base::{Error, Result, Status, ensure};

/// Pointer attributes, by their numbers in the driver's ABI.
pub(super) const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const DEVICE_POINTER: c_int = 3;
const BUFFER_ID: c_int = 7;
const IS_MANAGED: c_int = 8;
/// The access that the device of the current context has.
const ACCESS_FLAGS: c_int = 16;
const DEVICE_ORDINAL: c_int = 9;
const RANGE_START: c_int = 11;
const RANGE_SIZE: c_int = 12;
/// Access flags.
const READ: u64 = 1;
const READ_AND_WRITE: u64 = 3;
/// A memory type.
const MEMORY_TYPE_DEVICE: u32 = 2;

/// Plain memory of a device. It is freed when the device has finished its work.
pub struct Allocation(Deferred<Plain>);

struct Plain {
    context: Arc<Context>,
    address: u64,
    size: u64,
}

impl Allocation {
    /// Allocates. If memory is exhausted, the error contains the requested and the free size.
    pub fn new(ordinal: i32, size: u64) -> Result<Self> {
        ensure!(size > 0, InvalidArgument, "the size of a device region is 0 bytes; it must be at least 1");
        let context = Arc::new(Context::retain(Device::get(ordinal)?)?);
        let address = deferred::allocate(Some(ordinal), || allocate(&context, size))?;
        Ok(Self(Deferred::new(&context.clone(), Plain { context, address, size }, size)))
    }

    /// Its first byte.
    pub fn address(&self) -> u64 {
        self.0.address
    }

    pub fn size(&self) -> u64 {
        self.0.size
    }

    pub fn device(&self) -> Device {
        self.0.context.device()
    }

    pub fn identity(&self) -> ContextIdentity {
        self.0.context.identity()
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let driver = self.context.driver();
        released(self.context.free(|| {
            // SAFETY: allocated by `Allocation`, and no longer in use.
            let result = unsafe { driver.api.mem_free.call(self.address) };
            driver.check(result, format_args!("free {} bytes of device memory", self.size))
        }));
    }
}

fn allocate(context: &Context, size: u64) -> Result<u64> {
    let driver = context.driver();
    let entered = context.enter()?;
    let mut address = 0;
    // SAFETY: a current context; the output lives through the call.
    let result = entered.call(|| unsafe { driver.api.mem_alloc.call(&mut address, size as usize) })?;
    let ordinal = context.device().ordinal();
    driver
        .check(result, format_args!("allocate {size} bytes on device {ordinal}"))
        .map_err(|error| with_free_memory(error, context.device(), size))?;
    Ok(address)
}

/// Adds the requested and the available size to an error about exhausted memory. The free size is available only if the
/// device's primary context exists.
pub(super) fn with_free_memory(error: Error, device: Device, size: u64) -> Error {
    if error.status() != Status::OutOfMemory {
        return error;
    }
    let free = Context::retain_existing(device).and_then(|context| free_memory(&context).ok());
    let found = match free {
        Some((free, total)) => format!(", {free} of {total} free"),
        None => device.total_memory().map_or(String::new(), |total| format!(", the device has {total}")),
    };
    error.context(format!("{size} bytes requested{found}"))
}

/// The free and the total memory of a device, in bytes.
pub fn free_memory(context: &Context) -> Result<(usize, usize)> {
    let driver = context.driver();
    let _entered = context.enter()?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: a current context; the outputs live through the call.
    let result = unsafe { driver.api.mem_get_info.call(&mut free, &mut total) };
    driver.check(result, "get the free memory").map(|()| (free, total))
}

pub struct DeviceRange {
    pub device: Device,
    /// The number of adjacent allocations or mappings that contain it.
    pub pieces: usize,
    /// Addresses at which copies must be split; empty if nowhere.
    pub ends: Vec<u64>,
}

/// Fails unless the driver knows `size` bytes at `address` as memory of one device, which the device may read, and write if
/// `write` is set: a copy that violates the access of a VMM mapping destroys the context.
pub fn identify(address: u64, size: u64, write: bool) -> Result<DeviceRange> {
    let device = owner_of(address)?;
    let end = address.checked_add(size);
    ensure!(end.is_some(), InvalidArgument, "{size} bytes at {address:#x} exceed the address space");
    // VMM memory may be many adjacent mappings.
    let context = Context::retain(device)?;
    let (mut next, mut pieces) = (address, 0);
    while next < address + size {
        let ends_here = |error: Error| {
            if !is_unknown(&error) {
                return error;
            }
            let message = format!(
                "of {size} bytes at {address:#x} only the first {} are device memory",
                next - address
            );
            error.context(message).with_status(Status::OutOfRange)
        };
        let owner = ordinal_of(next).map_err(ends_here)?;
        ensure!(
            owner == device.ordinal(),
            InvalidArgument,
            "{size} bytes at {address:#x} are located on device {} and on device {owner}; adopt each part on its own",
            device.ordinal()
        );
        ensure_access(&context, next, write)?;
        let (base, length) = range_in(&context, next).map_err(ends_here)?;
        next = base + length;
        pieces += 1;
    }
    let ends = if pieces > 1 { piece_ends(address, size)? } else { Vec::new() };
    Ok(DeviceRange { device, pieces, ends })
}

/// Fails unless the device of a context may read memory at an address, and write it if `write` is set.
fn ensure_access(context: &Context, address: u64, write: bool) -> Result<()> {
    let _entered = context.enter()?;
    let flags: u32 = match attribute(ACCESS_FLAGS, address) {
        // The driver does not know the attribute: it knows the address.
        Err(error) if has_code(&error, &[INVALID_VALUE]) => return Ok(()),
        flags => flags?,
    };
    let ordinal = context.device().ordinal();
    ensure!(
        u64::from(flags) & READ == READ,
        PermissionDenied,
        "device {ordinal} has no access to the memory at {address:#x}: set its access (cuMemSetAccess)"
    );
    ensure!(
        !write || u64::from(flags) & READ_AND_WRITE == READ_AND_WRITE,
        PermissionDenied,
        "device {ordinal} may only read the memory at {address:#x}: give it write access (cuMemSetAccess), or adopt the memory \
         with KVMEM_ADOPT_READ_ONLY"
    );
    Ok(())
}

/// The range of host memory that contains an address, and that the driver allocated or page-locked by one call; `None` if
/// there is none.
pub fn host_range(address: u64) -> Result<Option<Range<u64>>> {
    let kind: u32 = match attribute(MEMORY_TYPE, address) {
        Err(error) if has_code(&error, &[INVALID_VALUE]) => return Ok(None),
        kind => kind?,
    };
    if kind == MEMORY_TYPE_DEVICE {
        return Ok(None);
    }
    let start: u64 = attribute(RANGE_START, address)?;
    let end = start.saturating_add(attribute(RANGE_SIZE, address)?).max(address + 1);
    Ok(Some(start..end))
}

/// Whether kernels of the current context can access host memory at its host address.
pub fn is_mapped_at(_entered: &Entered<'_>, address: u64) -> Result<bool> {
    match attribute::<u64>(DEVICE_POINTER, address) {
        Err(error) if has_code(&error, &[INVALID_VALUE]) => Ok(false),
        found => Ok(found? == address),
    }
}

/// The addresses within `size` bytes at `address` of a device that no copy of the driver may cross: the ends of allocations
/// and of ranges of reserved addresses.
fn piece_ends(address: u64, size: u64) -> Result<Vec<u64>> {
    let (mut next, mut ends) = (address, Vec::new());
    while next < address + size {
        let start: u64 = attribute(RANGE_START, next)?;
        next = start.saturating_add(attribute(RANGE_SIZE, next)?).max(next + 1);
        ends.push(next);
    }
    Ok(ends)
}

/// Whether a device may read VMM memory at an address, or write it.
pub fn is_accessible(device: Device, address: u64, write: bool) -> Result<bool> {
    let driver = device.driver();
    let location = RawLocation::device(device.ordinal());
    let mut flags = 0;
    // SAFETY: the location and the output live through the call.
    let result = unsafe { driver.api.mem_get_access.call(&mut flags, &location, address) };
    driver.check(result, format_args!("get the access of device {} to {address:#x}", device.ordinal()))?;
    let needed = if write { READ_AND_WRITE } else { READ };
    Ok(flags & needed == needed)
}

/// The device that an address belongs to. Fails if it is not device memory.
pub fn owner_of(address: u64) -> Result<Device> {
    let not_device = |error: Error| {
        if !is_unknown(&error) {
            return error;
        }
        error
            .context(format!("{address:#x} is not device memory of this process"))
            .with_status(Status::InvalidArgument)
    };
    let kind: u32 = attribute(MEMORY_TYPE, address).map_err(not_device)?;
    ensure!(kind == MEMORY_TYPE_DEVICE, InvalidArgument, "{address:#x} is host memory, not device memory");
    let is_managed = attribute::<u32>(IS_MANAGED, address)? != 0;
    ensure!(
        !is_managed,
        InvalidArgument,
        "{address:#x} is managed memory, which the driver migrates between host and devices, so it cannot be shared, \
         registered or copied; use cuMemAlloc"
    );
    Device::get(ordinal_of(address)?)
}

/// The ordinal of the device that an address belongs to, according to the driver.
pub(super) fn ordinal_of(address: u64) -> Result<c_int> {
    attribute(DEVICE_ORDINAL, address)
}

/// Base and size of the allocation or mapping that contains a device address.
pub(super) fn range_of(device: &Device, address: u64) -> Result<(u64, u64)> {
    range_in(&Context::retain(*device)?, address)
}

/// The same with a retained context.
pub(super) fn range_in(context: &Context, address: u64) -> Result<(u64, u64)> {
    let driver = context.driver();
    let _entered = context.enter()?;
    let (mut base, mut length) = (0, 0);
    // SAFETY: the outputs live through the call.
    let result = unsafe { driver.api.mem_get_address_range.call(&mut base, &mut length, address) };
    driver.check(result, format_args!("find the allocation at {address:#x}"))?;
    Ok((base, length as u64))
}

/// The driver's number for an allocation, which is unique within the process.
pub fn buffer_id(address: u64) -> Result<u64> {
    attribute(BUFFER_ID, address)
}

/// Identifies an allocation of other code, in a context that can be reset or destroyed, so that a later check can determine
/// whether it still exists.
#[derive(Clone, Copy, Debug)]
pub struct AllocationStamp {
    address: u64,
    context: u64,
    /// The driver's number for the allocation.
    buffer_id: u64,
}

impl AllocationStamp {
    /// Identifies the allocation at an address; `None` if it belongs to no context, like VMM mappings.
    pub fn from_address(address: u64) -> Result<Option<Self>> {
        let context = match attribute::<u64>(CONTEXT, address) {
            Err(error) if is_unknown(&error) => 0,
            found => found?,
        };
        if context == 0 {
            return Ok(None);
        }
        Ok(Some(Self { address, context, buffer_id: buffer_id(address)? }))
    }

    /// Whether both belong to the same context.
    pub fn is_of_context_of(&self, other: &Self) -> bool {
        self.context == other.context
    }

    /// Fails if the allocation no longer exists.
    pub fn ensure_exists(&self) -> Result<()> {
        ensure_exists(self.address, Some(self.buffer_id))
    }
}

/// Fails if an allocation no longer exists: if its context was reset or destroyed, the address may belong to other memory
/// by now. Queries twice, because there is no later attempt to release the memory.
pub(super) fn ensure_exists(address: u64, known: Option<u64>) -> Result<()> {
    let Some(known) = known else { return Ok(()) };
    let found = match buffer_id(address).or_else(|_| buffer_id(address)) {
        Err(error) if is_unknown(&error) => None,
        found => Some(found?),
    };
    ensure!(
        found == Some(known),
        InvalidState,
        "the device memory at {address:#x} was destroyed with its context, which the program reset or destroyed"
    );
    Ok(())
}

/// Whether the error means that the driver does not know the address. Any other error is a failure of the driver, not an
/// error of the caller.
fn is_unknown(error: &Error) -> bool {
    has_code(error, &[INVALID_VALUE, NOT_FOUND])
}

/// An attribute of an address; T must be as wide as the attribute.
pub(super) fn attribute<T: Default>(attribute: c_int, address: u64) -> Result<T> {
    let driver = driver::get()?;
    let mut value = T::default();
    // SAFETY: each attribute is queried as a T of its width: ids and addresses have 64 bits, others 32. The output lives
    // through the call.
    let result = unsafe {
        driver.api.pointer_get_attribute.call((&raw mut value).cast::<c_void>(), attribute, address)
    };
    driver.check(result, format_args!("get an attribute of {address:#x}"))?;
    Ok(value)
}
