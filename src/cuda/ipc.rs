// SPDX-License-Identifier: Apache-2.0
//! Legacy IPC: 64 bytes identify an allocation of another process, which is opened as a whole.
//!
//! However often a process opens an allocation, the driver maps it once per device. So does this file: it counts the opens
//! of a handle and closes it once, so that the driver never sees two opens by kvmem. A kernel can access memory that was
//! opened in a context of its own device, so memory is opened for the device that will use it.
#![allow(unsafe_code)]

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::codes::{
    ALREADY_MAPPED, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, NOT_PERMITTED, has_code,
};
use super::context::{Context, ContextIdentity};
use super::deferred::Deferred;
use super::device::Device;
use super::driver_structs::RawIpcHandle;
use super::ending::released;
use super::memory;
use crate::base::{Error, Keyed, Mutex, Result, Status, ensure};

/// CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only flag.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

pub type IpcHandle = [u8; 64];

/// The properties of an allocation that another process needs.
#[derive(Clone)]
pub struct IpcExport {
    /// Identifies the allocation that contains the exported address.
    pub handle: IpcHandle,
    /// Its first address in this process.
    pub base: u64,
    /// Its size in bytes. The handle gives access to all of them.
    pub base_size: u64,
    /// The offset of the exported address.
    pub offset: u64,
    /// The driver's number for the allocation, in this process.
    pub buffer_id: u64,
    pub device: Device,
}

/// Creates a handle for the allocation that contains an address. The allocation must exist as long as importers use it.
pub fn export(address: u64) -> Result<IpcExport> {
    let device = memory::owner_of(address)?;
    let context = Context::retain(device)?;
    let (base, base_size) = memory::range_in(&context, address)?;
    Ok(IpcExport {
        handle: handle_of(&context, address)?,
        base,
        base_size,
        offset: address - base,
        buffer_id: memory::buffer_id(address)?,
        device,
    })
}

fn handle_of(context: &Context, address: u64) -> Result<IpcHandle> {
    let driver = context.driver();
    let _entered = context.enter()?;
    let mut handle = RawIpcHandle([0; 64]);
    // SAFETY: a current context; the output lives through the call.
    let result = unsafe { driver.api.ipc_get_mem_handle.call(&mut handle, address) };
    driver.check(result, format_args!("get an IPC handle of the memory at {address:#x}")).map_err(|error| {
        if !has_code(&error, &[INVALID_VALUE]) {
            return error;
        }
        let message = "only memory of cuMemAlloc has one: export VMM memory as a file descriptor, memory of a pool by \
                       its pool, and memory of another process in that process";
        error.context(message).with_status(Status::Unsupported)
    })?;
    Ok(handle.0)
}

/// The device that memory is located on, and the device whose kernels access it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DevicePair {
    /// The ordinal of the device that it is located on.
    pub owner: i32,
    /// The ordinal of the device that it is opened for.
    pub user: i32,
}

impl DevicePair {
    /// Memory that its own device accesses.
    pub fn on(ordinal: i32) -> Self {
        Self { owner: ordinal, user: ordinal }
    }

    /// Fails if the device cannot access the memory. The driver would fail later, with a less specific error.
    fn check_reach(self) -> Result<()> {
        let Self { owner, user } = self;
        ensure!(
            Device::get(user)?.can_access(&Device::get(owner)?)?,
            Unsupported,
            "memory of device {owner} cannot be opened for device {user}: device {user} cannot access it. Open it for \
             device {owner}; the driver then copies between the devices"
        );
        Ok(())
    }
}

/// An allocation of another process, mapped here. It is closed when the last mapping of it has been dropped, and the device has
/// finished its work: the driver waits for it.
pub struct IpcMapping(Deferred<Mapping>);

/// What shows the owner that the memory is in use here. It is dropped after the memory was closed, which CUDA demands before the
/// owner frees it.
pub type InUse = Arc<dyn Any + Send + Sync>;

/// One use of an open handle.
struct Mapping {
    key: Key,
    address: u64,
    size: u64,
    identity: ContextIdentity,
    _in_use: Option<InUse>,
}

/// A handle, and the devices for which it is open: the driver counts opens per device.
type Key = (DevicePair, IpcHandle);

/// One open of a handle by the driver, and how many mappings use it.
struct OpenAllocation {
    context: Arc<Context>,
    address: u64,
    /// 0 until it is known.
    size: u64,
    /// The exporter's number for the allocation, if the share contains it.
    buffer_id: Option<u64>,
    /// The driver's number for it in this process, once it is known.
    own_id: Option<u64>,
    users: usize,
}

/// The handles that are open for a device in this process. The lock is held while the driver opens or closes, so that the two never
/// overlap.
type Openings = Mutex<HashMap<Key, OpenAllocation>>;

/// Those for one device, so that a device that waits delays no other.
fn openings_for(user: i32) -> Arc<Openings> {
    static OPENINGS: Keyed<i32, Openings> = Keyed::new();
    OPENINGS.get(user)
}

impl IpcMapping {
    /// Opens a handle in the context of the device that will use the memory.
    ///
    /// The driver reuses the bytes of handles: a stale handle opens a later allocation. `buffer_id` is the exporter's number
    /// for the allocation, which is never reused. The driver of this process has other numbers, but the exporter's shows
    /// whether a handle that is open already still identifies the same allocation.
    pub fn open(
        place: DevicePair,
        handle: &IpcHandle,
        buffer_id: Option<u64>,
        in_use: Option<InUse>,
    ) -> Result<Arc<Self>> {
        place.check_reach()?;
        let context = Arc::new(Context::retain(Device::get(place.user)?)?);
        let key = (place, *handle);
        let of_device = openings_for(place.user);
        // Dropped after the lock. The driver has closed everything in a context that was reset.
        let mut lost = None;
        let mut openings = of_device.lock();
        let new = || Ok(OpenAllocation::new(context.clone(), open(&context, handle)?, buffer_id));
        let opening = match openings.entry(key) {
            Entry::Vacant(none) => none.insert(new()?),
            Entry::Occupied(known) if known.get().context.identity() == context.identity() => {
                known.into_mut()
            }
            Entry::Occupied(mut known) => {
                lost = Some(known.insert(new()?));
                known.into_mut()
            }
        };
        opening.serve_one_more(buffer_id)?;
        let looked = opening.look(place);
        // Dropped after a failure: closed when the device has finished its work, as at the end of a region.
        let mapping = opening.mapping(key, in_use);
        drop(openings);
        drop(lost);
        looked.map(|()| Arc::new(mapping))
    }

    pub fn identity(&self) -> ContextIdentity {
        self.0.identity
    }

    /// Its first byte here.
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// Its size in bytes, according to the driver of this process.
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// The device that it is located on, and the device for which it is open.
    pub fn place(&self) -> DevicePair {
        self.0.key.0
    }

    /// The address of a part of it. Fails if the part exceeds the memory that the driver has mapped.
    pub fn part(&self, offset: u64, size: u64) -> Result<u64> {
        ensure!(
            offset.checked_add(size).is_some_and(|end| end <= self.size()),
            OutOfRange,
            "{size} bytes at offset {offset} exceed the {} bytes that the driver maps for this handle",
            self.size()
        );
        Ok(self.address() + offset)
    }

    /// Fails unless the allocation has the size that its exporter reported. A later allocation with the same handle seldom
    /// has.
    pub fn check_size(&self, reported: u64) -> Result<()> {
        ensure!(
            self.size() == reported,
            Stale,
            "the handle opens {} bytes, its exporter reported {reported}: the exported memory was freed, and other memory \
             allocated",
            self.size()
        );
        Ok(())
    }
}

impl OpenAllocation {
    /// Without users.
    fn new(context: Arc<Context>, address: u64, buffer_id: Option<u64>) -> Self {
        Self { context, address, size: 0, buffer_id, own_id: None, users: 0 }
    }

    /// Finds the size and the driver's number, unless they are known. Fails if it is not a whole allocation of the expected device.
    ///
    /// For memory that is opened for another device, CUDA's documentation does not say whether the ordinal is that of the
    /// owner or of the other device, so both are accepted. If it is that of the other device, a wrong owner is not detected
    /// here.
    fn look(&mut self, place: DevicePair) -> Result<()> {
        if self.own_id.is_some() {
            return Ok(());
        }
        let (base, size) = memory::range_in(&self.context, self.address)?;
        let found = memory::ordinal_of(self.address)?;
        let DevicePair { owner, user } = place;
        ensure!(
            found == owner || found == user,
            InvalidArgument,
            "the handle identifies memory of device {found}, not of device {owner}: open it as memory of device {found}"
        );
        ensure!(
            base == self.address,
            Cuda,
            "the driver maps the handle at {:#x}, inside an allocation at {base:#x}",
            self.address
        );
        (self.size, self.own_id) = (size, Some(memory::buffer_id(self.address)?));
        Ok(())
    }

    fn serve_one_more(&mut self, buffer_id: Option<u64>) -> Result<()> {
        if let (Some(opened), Some(wanted)) = (self.buffer_id, buffer_id) {
            ensure!(
                opened == wanted,
                Stale,
                "the handle is open here as buffer {opened} of its process, and identifies buffer {wanted} now, so that \
                 process has freed the memory: destroy all regions that were opened by the handle, then open it again. Those \
                 that were destroyed are closed when the GPU has finished its work"
            );
        }
        self.buffer_id = self.buffer_id.or(buffer_id);
        self.users += 1;
        Ok(())
    }

    fn mapping(&self, key: Key, in_use: Option<InUse>) -> IpcMapping {
        let (address, size, identity) = (self.address, self.size, self.context.identity());
        let mapping = Mapping { key, address, size, identity, _in_use: in_use };
        IpcMapping(Deferred::new(&self.context, mapping, 0))
    }

    /// Not retried: a second close could close an open by other code of this process.
    fn close(&self) -> Result<()> {
        let driver = self.context.driver();
        self.context.free(|| {
            memory::ensure_exists(self.address, self.own_id)?;
            // SAFETY: opened by this value, and no longer in use.
            let result = unsafe { driver.api.ipc_close_mem_handle.call(self.address) };
            driver.check(result, format_args!("close the IPC mapping of {} bytes", self.size))
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let of_device = openings_for(self.key.0.user);
        let mut openings = of_device.lock();
        let Some(opening) = openings.get_mut(&self.key) else { return };
        if opening.context.identity() != self.identity {
            // Its context was reset, and the handle was opened again.
            return;
        }
        opening.users -= 1;
        if opening.users > 0 {
            return;
        }
        let closed = opening.close();
        let last = openings.remove(&self.key);
        // Dropping it may release its context, which is slow. All handles of the device share the lock.
        drop(openings);
        drop(last);
        released(closed);
    }
}

fn open(context: &Context, handle: &IpcHandle) -> Result<u64> {
    let driver = context.driver();
    let entered = context.enter()?;
    let mut address = 0;
    // SAFETY: a current context; the output lives through the call.
    let result = entered.call(|| unsafe {
        driver.api.ipc_open_mem_handle.call(&mut address, RawIpcHandle(*handle), LAZY_ENABLE_PEER_ACCESS)
    })?;
    let ordinal = context.device().ordinal();
    driver.check(result, format_args!("open an IPC handle on device {ordinal}")).map_err(explain)?;
    Ok(address)
}

/// Adds the cause and advice. Drivers return different codes for an invalid handle.
fn explain(error: Error) -> Error {
    let (message, status) = if has_code(&error, &[INVALID_CONTEXT]) {
        let message = "this process exported the handle itself: use the address that it was exported with";
        (message, Status::InvalidArgument)
    } else if has_code(&error, &[ALREADY_MAPPED]) {
        let message = "the driver has mapped the memory in this process for another GPU, and maps it once: open it for \
                       that GPU, or destroy the regions opened for that GPU first; the memory of those is closed when that \
                       GPU has finished its work";
        (message, Status::Unsupported)
    } else if has_code(&error, &[INVALID_DEVICE]) {
        ("the handle identifies memory of a GPU that this process may not use", Status::NotFound)
    } else if has_code(&error, &[INVALID_VALUE, INVALID_HANDLE, NOT_PERMITTED]) {
        let message = "the handle identifies no memory that can be opened here: the memory was freed, its process has \
                       ended or has another PID namespace, or the bytes are not a handle";
        (message, Status::InvalidArgument)
    } else {
        return error;
    };
    error.context(message).with_status(status)
}
