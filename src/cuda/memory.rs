// SPDX-License-Identifier: Apache-2.0
//! Device memory: allocating it, and asking the driver what a pointer is.

use std::ffi::{c_int, c_void};

use super::context::Context;
use super::device::Device;
use super::driver;
use crate::error::{Cause, Error, Result, Status, ensure};
use crate::log::log;

/// Pointer attributes, by their numbers in the driver's ABI.
const MEMORY_TYPE: c_int = 2;
const DEVICE_ORDINAL: c_int = 9;
/// Results that are told apart.
const INVALID_VALUE: i32 = 1;
const NOT_FOUND: i32 = 500;
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
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let driver = self.context.driver();
        let freed = self.context.enter_to_free().and_then(|_entered| {
            // SAFETY: allocated by this value, and used by nobody any more.
            let code = unsafe { (driver.api.mem_free)(self.address) };
            driver.check(code, format_args!("free {} bytes of device memory", self.size))
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
    let code = unsafe { (driver.api.mem_alloc)(&mut address, size as usize) };
    let ordinal = context.device().ordinal();
    driver
        .check(code, format_args!("allocate {size} bytes on device {ordinal}"))
        .map_err(|error| with_room(error, context, size))?;
    Ok(address)
}

/// Says in an error about memory that ran out how much was asked for and how much is free.
pub(super) fn with_room(error: Error, context: &Context, size: u64) -> Error {
    match (error.status(), room(context)) {
        (Status::OutOfMemory, Ok((free, total))) => {
            error.context(format!("{size} bytes asked, {free} of {total} free"))
        }
        _ => error,
    }
}

/// Bytes of a device that are free, and all it has.
fn room(context: &Context) -> Result<(usize, usize)> {
    let driver = context.driver();
    let _entered = context.enter()?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: a current context; the outputs live through the call.
    let code = unsafe { (driver.api.mem_get_info)(&mut free, &mut total) };
    driver.check(code, "ask for free memory").map(|()| (free, total))
}

/// Checks with the driver that `size` bytes at `address` are memory of one device, and answers which, and of how many
/// allocations or mappings side by side they are a part.
pub fn identify(address: u64, size: u64) -> Result<(Device, usize)> {
    let driver = driver::get()?;
    // Any other answer is a failure of the driver's, not a mistake of the caller's.
    let unknown = |error: &Error| matches!(error.cause(), Some(Cause::Cuda(INVALID_VALUE | NOT_FOUND, _)));
    let not_device = |error: Error| {
        if !unknown(&error) {
            return error;
        }
        error
            .context(format!("{address:#x} is no device memory of this process"))
            .with_status(Status::InvalidArgument)
    };
    let kind: u32 = attribute(MEMORY_TYPE, address).map_err(not_device)?;
    ensure!(kind == MEMORY_TYPE_DEVICE, InvalidArgument, "{address:#x} is host memory, not device memory");
    let device = Device::get(attribute::<c_int>(DEVICE_ORDINAL, address)?)?;
    let end = address.checked_add(size);
    ensure!(
        end.is_some(),
        InvalidArgument,
        "{size} bytes at {address:#x} reach past the end of the address space"
    );
    let context = Context::retain(device)?;
    let _entered = context.enter()?;
    // VMM memory may be many mappings side by side: follow them to the end.
    let (mut next, mut pieces) = (address, 0);
    while next < address + size {
        let ends_here = |error: Error| {
            if !unknown(&error) {
                return error;
            }
            let message = format!(
                "of {size} bytes at {address:#x} only the first {} are device memory",
                next - address
            );
            error.context(message).with_status(Status::OutOfRange)
        };
        let owner: c_int = attribute(DEVICE_ORDINAL, next).map_err(ends_here)?;
        ensure!(
            owner == device.ordinal(),
            InvalidArgument,
            "{size} bytes at {address:#x} lie on device {} and on device {owner}",
            device.ordinal()
        );
        let (mut base, mut length) = (0, 0);
        // SAFETY: the outputs live through the call.
        let code = unsafe { (driver.api.mem_get_address_range)(&mut base, &mut length, next) };
        driver.check(code, format_args!("find the allocation at {next:#x}")).map_err(ends_here)?;
        next = base + length as u64;
        pieces += 1;
    }
    Ok((device, pieces))
}

fn attribute<T: Default>(attribute: c_int, address: u64) -> Result<T> {
    let driver = driver::get()?;
    let mut value = T::default();
    // SAFETY: the two attributes asked for are 32-bit integers, as T is; the output lives through the call.
    let code =
        unsafe { (driver.api.pointer_get_attribute)((&raw mut value).cast::<c_void>(), attribute, address) };
    driver.check(code, format_args!("ask what {address:#x} is"))?;
    Ok(value)
}
