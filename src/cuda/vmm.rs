// SPDX-License-Identifier: Apache-2.0
//! The driver's virtual memory management: addresses are reserved, memory is created, and the two are mapped, each on
//! its own. None of it needs a current context.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::FdFlags;

use super::context::Context;
use super::device::Device;
use super::driver::{self, Driver};
use super::memory;
use crate::error::{Error, Result, Status, ensure};
use crate::log::log;

/// Values of the driver's ABI.
const ALLOCATION_TYPE_PINNED: u32 = 1;
const LOCATION_DEVICE: u32 = 1;
const LOCATION_HOST_NUMA: u32 = 3;
const HANDLE_POSIX_FD: u32 = 1;
const HANDLE_FABRIC: u32 = 8;

/// CUmemLocation.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawLocation {
    kind: u32,
    id: i32,
}

/// CUmemAllocationProp. cudarc's has a Rust enum where the driver takes a set of bits.
#[repr(C)]
pub(super) struct RawProperties {
    allocation_type: u32,
    handle_types: u32,
    location: RawLocation,
    win32_metadata: *mut c_void,
    compression: u8,
    gpu_direct_rdma: u8,
    usage: u16,
    reserved: [u8; 4],
}

/// CUmemAccessDesc.
#[repr(C)]
pub(super) struct RawAccess {
    location: RawLocation,
    flags: u32,
}

/// Where memory is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// On a device, by ordinal.
    Device(i32),
    /// On a NUMA node of the host.
    HostNuma(i32),
}

/// What memory is and how it may leave the process. Fixed for the life of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Where it lies.
    pub location: Location,
    /// It can be exported as a file descriptor.
    pub posix_fd: bool,
    /// It can be exported as a fabric handle.
    pub fabric: bool,
    /// It can be registered for RDMA.
    pub rdma: bool,
}

/// Which granularity to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// What sizes and offsets must be multiples of.
    Minimum,
    /// What they should be multiples of.
    Recommended,
}

/// What a device may do with a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    None,
    /// Read.
    Read,
    /// Read and write.
    ReadWrite,
}

impl Properties {
    /// Memory of a device that stays in the process.
    pub fn on_device(ordinal: i32) -> Self {
        Self { location: Location::Device(ordinal), posix_fd: false, fabric: false, rdma: false }
    }

    fn raw(&self) -> Result<RawProperties> {
        let location = match self.location {
            Location::Device(ordinal) => {
                RawLocation { kind: LOCATION_DEVICE, id: Device::get(ordinal)?.ordinal() }
            }
            Location::HostNuma(node) => RawLocation { kind: LOCATION_HOST_NUMA, id: node },
        };
        let bits = |wanted, bit| if wanted { bit } else { 0 };
        Ok(RawProperties {
            allocation_type: ALLOCATION_TYPE_PINNED,
            handle_types: bits(self.posix_fd, HANDLE_POSIX_FD) | bits(self.fabric, HANDLE_FABRIC),
            location,
            win32_metadata: std::ptr::null_mut(),
            compression: 0,
            gpu_direct_rdma: self.rdma.into(),
            usage: 0,
            reserved: [0; 4],
        })
    }

    /// The granularity of memory with these properties.
    pub fn granularity(&self, which: Granularity) -> Result<u64> {
        let driver = driver::get()?;
        let raw = self.raw()?;
        let mut granularity = 0;
        // SAFETY: the properties and the output live through the call.
        let code = unsafe { (driver.api.mem_get_granularity)(&mut granularity, &raw, which as u32) };
        driver.check(code, format_args!("ask the granularity of memory on {}", self.location))?;
        Ok(granularity as u64)
    }
}

impl Location {
    /// How much is free takes a context to ask for: told where there is one.
    fn with_room(self, error: Error, size: u64) -> Error {
        let Self::Device(ordinal) = self else { return error };
        match Device::get(ordinal).ok().and_then(Context::retain_existing) {
            Some(context) => memory::with_room(error, &context, size),
            None => error,
        }
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

/// Whether memory of these properties can really be created and exported here: an attribute of the device promises
/// more than the driver, its fabric and its permissions keep.
pub fn can_export(properties: Properties) -> bool {
    let exported = properties.granularity(Granularity::Minimum).and_then(|size| {
        let memory = Memory::create(size, properties)?;
        if properties.fabric { memory.export_fabric().map(|_| ()) } else { memory.export_fd().map(|_| ()) }
    });
    // A full device says nothing about handles.
    exported.map_or_else(|error| error.status() == Status::OutOfMemory, |()| true)
}

/// A range of addresses with nothing behind them until something is mapped.
pub struct Range {
    driver: &'static Driver,
    address: u64,
    size: u64,
    /// Offset → size of what is mapped.
    mapped: Mutex<BTreeMap<u64, u64>>,
}

impl Range {
    /// Reserves addresses. `alignment` of 0 leaves it to the driver.
    pub fn reserve(size: u64, alignment: u64) -> Result<Arc<Self>> {
        let driver = driver::get()?;
        ensure!(size > 0, InvalidArgument, "a range of 0 bytes can't be reserved");
        ensure!(
            alignment == 0 || alignment.is_power_of_two(),
            InvalidArgument,
            "alignment is {alignment}, it must be a power of two"
        );
        let unit = host_page();
        ensure!(
            size.is_multiple_of(unit),
            InvalidArgument,
            "{size} bytes are no multiple of the page size {unit}"
        );
        let mut address = 0;
        // SAFETY: the output lives through the call; nothing of this process changes.
        let code = unsafe {
            (driver.api.mem_address_reserve)(&mut address, size as usize, alignment as usize, 0, 0)
        };
        driver.check(code, format_args!("reserve {size} bytes of addresses"))?;
        Ok(Arc::new(Self { driver, address, size, mapped: Mutex::default() }))
    }

    /// Its first address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    fn mapped(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.mapped.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: reserved by this value; every mapping in it held it, so none is left.
        let code = unsafe { (self.driver.api.mem_address_free)(self.address, self.size as usize) };
        if let Err(error) = self.driver.check(code, format_args!("free {} bytes of addresses", self.size)) {
            log!(Error, "{error}");
        }
    }
}

/// Memory without an address.
pub struct Memory {
    driver: &'static Driver,
    handle: u64,
    size: u64,
    properties: Properties,
}

impl Memory {
    /// Creates memory; `size` must be a multiple of the granularity.
    pub fn create(size: u64, properties: Properties) -> Result<Arc<Self>> {
        let driver = driver::get()?;
        let raw = properties.raw()?;
        let granularity = properties.granularity(Granularity::Minimum)?;
        ensure!(size > 0, InvalidArgument, "memory of 0 bytes can't be created");
        ensure!(
            size.is_multiple_of(granularity),
            InvalidArgument,
            "{size} bytes are no multiple of the granularity {granularity}"
        );
        let mut handle = 0;
        // SAFETY: the properties and the output live through the call.
        let code = unsafe { (driver.api.mem_create)(&mut handle, size as usize, &raw, 0) };
        driver
            .check(code, format_args!("create {size} bytes on {}", properties.location))
            .map_err(|error| properties.location.with_room(error, size))?;
        Ok(Arc::new(Self { driver, handle, size, properties }))
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What it is.
    pub fn properties(&self) -> Properties {
        self.properties
    }

    /// A fabric handle for it.
    pub fn export_fabric(&self) -> Result<[u8; 64]> {
        ensure!(
            self.properties.fabric,
            InvalidState,
            "the memory was not created to be exported as a fabric handle"
        );
        let mut handle = [0u8; 64];
        // SAFETY: for this handle type the driver writes 64 bytes.
        let code = unsafe {
            (self.driver.api.mem_export)(handle.as_mut_ptr().cast::<c_void>(), self.handle, HANDLE_FABRIC, 0)
        };
        self.driver.check(code, format_args!("export {} bytes as a fabric handle", self.size))?;
        Ok(handle)
    }

    /// A file descriptor for it, close-on-exec. While one is open anywhere the memory stays.
    pub fn export_fd(&self) -> Result<OwnedFd> {
        ensure!(
            self.properties.posix_fd,
            InvalidState,
            "the memory was not created to be exported as a file descriptor"
        );
        let mut fd = -1i32;
        // SAFETY: for this handle type the driver writes an int.
        let code = unsafe {
            (self.driver.api.mem_export)((&raw mut fd).cast::<c_void>(), self.handle, HANDLE_POSIX_FD, 0)
        };
        self.driver.check(code, format_args!("export {} bytes as a file descriptor", self.size))?;
        // SAFETY: made for us just now.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)
            .map_err(|errno| Error::errno(format!("close fd {} on exec", fd.as_raw_fd()), errno))?;
        Ok(fd)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: created by this value. Mappings and exported descriptors keep the memory itself.
        let code = unsafe { (self.driver.api.mem_release)(self.handle) };
        if let Err(error) = self.driver.check(code, format_args!("release {} bytes", self.size)) {
            log!(Error, "{error}");
        }
    }
}

/// Memory at an address. Holds both.
pub struct Mapping {
    range: Arc<Range>,
    memory: Arc<Memory>,
    offset: u64,
}

impl Mapping {
    /// Maps all of `memory` at `offset` in `range`. No device may touch it until [`Mapping::set_access`] says so.
    pub fn create(range: &Arc<Range>, offset: u64, memory: &Arc<Memory>) -> Result<Arc<Self>> {
        let size = memory.size;
        let granularity = memory.properties.granularity(Granularity::Minimum)?;
        ensure!(
            (range.address + offset.min(range.size)).is_multiple_of(granularity),
            InvalidArgument,
            "offset {offset} is no multiple of the granularity {granularity}"
        );
        ensure!(
            offset.checked_add(size).is_some_and(|end| end <= range.size),
            OutOfRange,
            "{size} bytes at offset {offset} do not fit a range of {} bytes",
            range.size
        );
        let mut mapped = range.mapped();
        let before = mapped.range(..offset + size).next_back();
        if let Some((at, there)) = before.filter(|(at, there)| **at + **there > offset) {
            crate::error::fail!(AlreadyExists, "{there} bytes are mapped at offset {at} already");
        }
        // SAFETY: reserved addresses with nothing mapped there, and live memory.
        let code =
            unsafe { (range.driver.api.mem_map)(range.address + offset, size as usize, 0, memory.handle, 0) };
        range.driver.check(code, format_args!("map {size} bytes at offset {offset}"))?;
        mapped.insert(offset, size);
        drop(mapped);
        Ok(Arc::new(Self { range: range.clone(), memory: memory.clone(), offset }))
    }

    /// Its first address.
    pub fn address(&self) -> u64 {
        self.range.address + self.offset
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.memory.size
    }

    /// The memory behind it.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Where in its range it begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Says what a device may do with it.
    pub fn set_access(&self, ordinal: i32, access: Access) -> Result<()> {
        let device = Device::get(ordinal)?;
        if let (Location::Device(owner), true) = (self.memory.properties.location, access != Access::None) {
            ensure!(
                device.can_access(&Device::get(owner)?)?,
                Unsupported,
                "device {ordinal} does not reach memory of device {owner}"
            );
        }
        let flags = match access {
            Access::None => 0,
            Access::Read => 1,
            Access::ReadWrite => 3,
        };
        let description = RawAccess { location: RawLocation { kind: LOCATION_DEVICE, id: ordinal }, flags };
        let driver = self.range.driver;
        // SAFETY: mapped addresses; the description lives through the call.
        let code =
            unsafe { (driver.api.mem_set_access)(self.address(), self.size() as usize, &description, 1) };
        driver.check(code, format_args!("set the access of device {ordinal} to {} bytes", self.size()))
    }

    /// What a device may do with it.
    pub fn access(&self, ordinal: i32) -> Result<Access> {
        let location = RawLocation { kind: LOCATION_DEVICE, id: Device::get(ordinal)?.ordinal() };
        let driver = self.range.driver;
        let mut flags = 0u64;
        // SAFETY: the location and the output live through the call.
        let code = unsafe { (driver.api.mem_get_access)(&mut flags, &location, self.address()) };
        driver.check(code, format_args!("ask the access of device {ordinal}"))?;
        Ok(match flags {
            3 => Access::ReadWrite,
            1 => Access::Read,
            _ => Access::None,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let driver = self.range.driver;
        let mut mapped = self.range.mapped();
        // SAFETY: mapped by this value, and used by nobody any more.
        let unmap = || unsafe { (driver.api.mem_unmap)(self.address(), self.size() as usize) };
        // A failure may be of earlier work, told by a call that did its own: the second one answers for itself, and
        // the driver takes addresses that are not mapped any more.
        let code = if unmap() == 0 { 0 } else { unmap() };
        match driver.check(code, format_args!("unmap {} bytes", self.size())) {
            Ok(()) => drop(mapped.remove(&self.offset)),
            Err(error) => log!(Error, "{error}"),
        }
    }
}

fn host_page() -> u64 {
    rustix::param::page_size() as u64
}
