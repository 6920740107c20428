// SPDX-License-Identifier: Apache-2.0
//! Device memory: allocating it, and asking the driver what a pointer is.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use super::codes::{INVALID_VALUE, NOT_FOUND, has_code};
use super::context::{Context, ContextIdentity, Entered};
use super::device::Device;
use super::driver;
use super::raw::RawLocation;
use crate::error::{Error, Result, Status, ensure};
use crate::log::log;

/// Pointer attributes, by their numbers in the driver's ABI.
pub(super) const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const DEVICE_POINTER: c_int = 3;
const BUFFER_ID: c_int = 7;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;
const RANGE_START: c_int = 11;
const RANGE_SIZE: c_int = 12;
/// A memory type.
const MEMORY_TYPE_DEVICE: u32 = 2;

/// Plain memory of a device.
pub struct Allocation {
    context: Context,
    address: u64,
    size: u64,
}

impl Allocation {
    /// Allocates. Without room the error says how much was asked for and how much is free.
    pub fn new(ordinal: i32, size: u64) -> Result<Self> {
        ensure!(size > 0, InvalidArgument, "a device region of 0 bytes can't be made");
        let context = Context::retain(Device::get(ordinal)?)?;
        let address = allocate(&context, size)?;
        Ok(Self { context, address, size })
    }

    /// Its first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.context.device()
    }

    /// The context that it goes with.
    pub fn identity(&self) -> ContextIdentity {
        self.context.identity()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let driver = self.context.driver();
        let freed = self.context.free(|| {
            // SAFETY: allocated by this value, and used by nobody any more.
            let answer = unsafe { driver.api.mem_free.call(self.address) };
            driver.check(answer, format_args!("free {} bytes of device memory", self.size))
        });
        if let Err(error) = freed {
            log!(Error, "{error}");
        }
    }
}

fn allocate(context: &Context, size: u64) -> Result<u64> {
    let driver = context.driver();
    let _entered = context.enter()?;
    let mut address = 0;
    // SAFETY: a current context; the output lives through the call.
    let answer = unsafe { driver.api.mem_alloc.call(&mut address, size as usize) };
    let ordinal = context.device().ordinal();
    driver
        .check(answer, format_args!("allocate {size} bytes on device {ordinal}"))
        .map_err(|error| with_room(error, context.device(), size))?;
    Ok(address)
}

/// Says in an error about memory that ran out how much was asked for and how much there is. How much of it is free takes
/// a context to ask for: told where there is one.
pub(super) fn with_room(error: Error, device: Device, size: u64) -> Error {
    if error.status() != Status::OutOfMemory {
        return error;
    }
    let free = Context::retain_existing(device).and_then(|context| room(&context).ok());
    let found = match free {
        Some((free, total)) => format!(", {free} of {total} free"),
        None => device.total_memory().map_or(String::new(), |total| format!(", the device has {total}")),
    };
    error.context(format!("{size} bytes asked{found}"))
}

/// Bytes of a device that are free, and all it has.
fn room(context: &Context) -> Result<(usize, usize)> {
    let driver = context.driver();
    let _entered = context.enter()?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: a current context; the outputs live through the call.
    let answer = unsafe { driver.api.mem_get_info.call(&mut free, &mut total) };
    driver.check(answer, "ask for free memory").map(|()| (free, total))
}

/// Memory of one device, as the driver knows it.
pub struct DeviceRange {
    /// The device.
    pub device: Device,
    /// Allocations or mappings side by side that it is a part of.
    pub pieces: usize,
    /// Where copies must be cut; empty if nowhere.
    pub ends: Vec<u64>,
}

/// Checks with the driver that `size` bytes at `address` are memory of one device.
pub fn identify(address: u64, size: u64) -> Result<DeviceRange> {
    let device = owner_of(address)?;
    let end = address.checked_add(size);
    ensure!(
        end.is_some(),
        InvalidArgument,
        "{size} bytes at {address:#x} reach past the end of the address space"
    );
    // VMM memory may be many mappings side by side: follow them to the end.
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
            "{size} bytes at {address:#x} lie on device {} and on device {owner}",
            device.ordinal()
        );
        let (base, length) = range_in(&context, next).map_err(ends_here)?;
        next = base + length;
        pieces += 1;
    }
    let ends = if pieces > 1 { piece_ends(address, size)? } else { Vec::new() };
    Ok(DeviceRange { device, pieces, ends })
}

/// The range of host memory around an address that the driver knows as one: allocated by it, or page-locked by one call;
/// `None` if it knows none.
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

/// Whether kernels of the current context reach host memory at its own address.
pub fn is_mapped_at(_entered: &Entered<'_>, address: u64) -> Result<bool> {
    match attribute::<u64>(DEVICE_POINTER, address) {
        Err(error) if has_code(&error, &[INVALID_VALUE]) => Ok(false),
        found => Ok(found? == address),
    }
}

/// Where the pieces end that `size` bytes at `address` of a device are to copies of the driver: each allocation is one,
/// and all mappings in one range of reserved addresses are.
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
    const READ: u64 = 1;
    const READ_AND_WRITE: u64 = 3;
    let driver = device.driver();
    let location = RawLocation::device(device.ordinal());
    let mut flags = 0;
    // SAFETY: the location and the output live through the call.
    let answer = unsafe { driver.api.mem_get_access.call(&mut flags, &location, address) };
    driver.check(answer, format_args!("ask whether device {} reaches {address:#x}", device.ordinal()))?;
    let needed = if write { READ_AND_WRITE } else { READ };
    Ok(flags & needed == needed)
}

/// The device whose memory lies at an address; refused where that is none's.
pub fn owner_of(address: u64) -> Result<Device> {
    let not_device = |error: Error| {
        if !is_unknown(&error) {
            return error;
        }
        error
            .context(format!("{address:#x} is no device memory of this process"))
            .with_status(Status::InvalidArgument)
    };
    let kind: u32 = attribute(MEMORY_TYPE, address).map_err(not_device)?;
    ensure!(kind == MEMORY_TYPE_DEVICE, InvalidArgument, "{address:#x} is host memory, not device memory");
    let is_managed = attribute::<u32>(IS_MANAGED, address)? != 0;
    ensure!(
        !is_managed,
        InvalidArgument,
        "{address:#x} is managed memory, whose pages move between the host and devices: only memory that stays on its \
         device can be shared, registered and copied; use cuMemAlloc"
    );
    Device::get(ordinal_of(address)?)
}

/// The ordinal of the device that the driver says an address belongs to.
pub(super) fn ordinal_of(address: u64) -> Result<c_int> {
    attribute(DEVICE_ORDINAL, address)
}

/// Base and size of the allocation or mapping around an address of a device's.
pub(super) fn range_of(device: &Device, address: u64) -> Result<(u64, u64)> {
    range_in(&Context::retain(*device)?, address)
}

/// The same, in a context that is retained already.
pub(super) fn range_in(context: &Context, address: u64) -> Result<(u64, u64)> {
    let driver = context.driver();
    let _entered = context.enter()?;
    let (mut base, mut length) = (0, 0);
    // SAFETY: the outputs live through the call.
    let answer = unsafe { driver.api.mem_get_address_range.call(&mut base, &mut length, address) };
    driver.check(answer, format_args!("find the allocation at {address:#x}"))?;
    Ok((base, length as u64))
}

/// The driver's number for an allocation: no other of this process has had it or will have it.
pub fn buffer_id(address: u64) -> Result<u64> {
    attribute(BUFFER_ID, address)
}

/// What tells later whether memory of somebody else's, in a context that can be reset or destroyed, is still there.
#[derive(Clone, Copy, Debug)]
pub struct AllocationStamp {
    /// An address of it.
    address: u64,
    /// The context it goes with.
    context: u64,
    /// The driver's number for the allocation.
    buffer_id: u64,
}

impl AllocationStamp {
    /// What the driver says of an address now; `None` for what belongs to no context, as mappings don't.
    pub fn of(address: u64) -> Result<Option<Self>> {
        let context = match attribute::<u64>(CONTEXT, address) {
            Err(error) if is_unknown(&error) => 0,
            found => found?,
        };
        if context == 0 {
            return Ok(None);
        }
        Ok(Some(Self { address, context, buffer_id: buffer_id(address)? }))
    }

    /// Whether both went with one context.
    pub fn is_of_context_of(&self, other: &Self) -> bool {
        self.context == other.context
    }

    /// Refuses memory that is not there any more.
    pub fn ensure_exists(&self) -> Result<()> {
        ensure_exists(self.address, Some(self.buffer_id))
    }
}

/// Refuses to give back, or to use, what is not there any more: somebody has reset or destroyed the context it was in,
/// and the address may be other memory of somebody else's by now. Asked twice, for what is not given back now never is.
pub(super) fn ensure_exists(address: u64, known: Option<u64>) -> Result<()> {
    let Some(known) = known else { return Ok(()) };
    let found = match buffer_id(address).or_else(|_| buffer_id(address)) {
        Err(error) if is_unknown(&error) => None,
        found => Some(found?),
    };
    ensure!(
        found == Some(known),
        InvalidState,
        "the device memory at {address:#x} went with its context, which somebody has reset or destroyed"
    );
    Ok(())
}

/// Whether an error says that the driver does not know the address. Any other is a failure of the driver's, not a
/// mistake of the caller's.
fn is_unknown(error: &Error) -> bool {
    has_code(error, &[INVALID_VALUE, NOT_FOUND])
}

/// What the driver says of an address; T must be as wide as the attribute.
pub(super) fn attribute<T: Default>(attribute: c_int, address: u64) -> Result<T> {
    let driver = driver::get()?;
    let mut value = T::default();
    // SAFETY: the attributes asked for are as wide as the T they are asked as: 32 bits, ids and addresses 64. The output
    // lives through the call.
    let answer = unsafe {
        driver.api.pointer_get_attribute.call((&raw mut value).cast::<c_void>(), attribute, address)
    };
    driver.check(answer, format_args!("ask what {address:#x} is"))?;
    Ok(value)
}
