// SPDX-License-Identifier: Apache-2.0
//! Legacy IPC: 64 bytes name an allocation of another process's, which is opened as a whole.
//!
//! The driver maps an allocation once for each device of a process that opens it, however often it is opened, and so do
//! we: openings are counted here and closed once, so that the driver never sees two of ours at once. A kernel reaches
//! what was opened in a context of its own device; so memory of one device is opened for the one that will use it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::codes::{
    ALREADY_MAPPED, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, NOT_PERMITTED, has_code,
};
use super::context::{Context, ContextIdentity};
use super::device::Device;
use super::memory;
use super::raw::RawIpcHandle;
use crate::error::{Error, Result, Status, ensure};
use crate::log::log;
use crate::sync::{Mutex, MutexGuard};

/// CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only value there is.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

/// The 64 bytes.
pub type IpcHandle = [u8; 64];

/// An allocation as another process needs it told.
#[derive(Clone)]
pub struct IpcExport {
    /// Names the base allocation, whatever address in it was asked for.
    pub handle: IpcHandle,
    /// Where the base allocation begins in this process.
    pub base: u64,
    /// Its bytes: all of them can be reached through the handle.
    pub base_size: u64,
    /// Where in it the address lies that was asked for.
    pub offset: u64,
    /// The driver's number for the allocation, in this process.
    pub buffer_id: u64,
    /// The device it lies on.
    pub device: Device,
}

/// A handle for the allocation around an address, which must live as long as others use it.
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
    let answer = unsafe { driver.api.ipc_get_mem_handle.call(&mut handle, address) };
    driver.check(answer, format_args!("get an IPC handle of the memory at {address:#x}")).map_err(|error| {
        if !has_code(&error, &[INVALID_VALUE]) {
            return error;
        }
        let message = "only memory of cuMemAlloc has one: export memory that was mapped apart as a file descriptor, \
                       memory of a pool by its pool, and memory of another process from there";
        error.context(message).with_status(Status::Unsupported)
    })?;
    Ok(handle.0)
}

/// Where memory lies, and whose kernels are to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DevicePair {
    /// The ordinal of the device it lies on.
    pub owner: i32,
    /// The ordinal of the device that it is opened for.
    pub user: i32,
}

impl DevicePair {
    /// On a device, and for that one.
    pub fn on(ordinal: i32) -> Self {
        Self { owner: ordinal, user: ordinal }
    }

    /// Refuses a device that does not reach the memory: its driver would, later and with fewer words.
    fn check_reach(self) -> Result<()> {
        let Self { owner, user } = self;
        ensure!(
            Device::get(user)?.can_access(&Device::get(owner)?)?,
            Unsupported,
            "memory of device {owner} can't be opened for device {user}, which does not reach it: open it for device \
             {owner}, and let the driver copy"
        );
        Ok(())
    }
}

/// An allocation of another process's, mapped here. Closed with the last of its kind.
pub struct IpcMapping {
    key: Key,
    address: u64,
    size: u64,
    identity: ContextIdentity,
}

/// Where a handle is open. The driver counts for each device apart.
type Key = (DevicePair, IpcHandle);

/// One opening of the driver's, and how many of ours it serves.
struct OpenAllocation {
    context: Context,
    address: u64,
    size: u64,
    /// The exporter's number for the allocation, where that has told it.
    buffer_id: Option<u64>,
    /// The driver's number for it here, once that has told it.
    own_id: Option<u64>,
    users: usize,
}

/// What is open in this process: opening and closing are done with the lock held, so that one never meets the other.
static OPENINGS: Mutex<BTreeMap<Key, OpenAllocation>> = Mutex::new(BTreeMap::new());

fn openings() -> MutexGuard<'static, BTreeMap<Key, OpenAllocation>> {
    OPENINGS.lock()
}

impl IpcMapping {
    /// Opens a handle in the context of the device that is to use the memory.
    ///
    /// The bytes of a handle are used again: a stale one opens whatever was allocated there since. `buffer_id` is the
    /// exporter's number for the allocation, which is never used again. It means nothing to the driver here, which
    /// has numbers of its own; but it tells whether a handle that is open already still names what was opened.
    pub fn open(place: DevicePair, handle: &IpcHandle, buffer_id: Option<u64>) -> Result<Arc<Self>> {
        place.check_reach()?;
        let context = Context::retain(Device::get(place.user)?)?;
        let key = (place, *handle);
        let mut openings = openings();
        if let Some(opening) = openings.get_mut(&key)
            && opening.context.identity() == context.identity()
        {
            opening.serve_one_more(buffer_id)?;
            return Ok(Arc::new(opening.mapping(key)));
        }
        let opening = OpenAllocation::new(context, key, buffer_id)?;
        let mapping = opening.mapping(key);
        // An opening of a context that was reset is closed already.
        let lost = openings.insert(key, opening);
        drop(openings);
        drop(lost);
        Ok(Arc::new(mapping))
    }

    /// The context that it goes with.
    pub fn identity(&self) -> ContextIdentity {
        self.identity
    }

    /// Its first byte here.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its bytes, as the driver here says.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where it lies, and for whom it is open.
    pub fn place(&self) -> DevicePair {
        self.key.0
    }

    /// The address of a part of it; refused where the part ends past what the driver has mapped.
    pub fn part(&self, offset: u64, size: u64) -> Result<u64> {
        ensure!(
            offset.checked_add(size).is_some_and(|end| end <= self.size),
            OutOfRange,
            "{size} bytes at offset {offset} reach past the {} bytes that the driver has of this handle",
            self.size
        );
        Ok(self.address + offset)
    }

    /// Checks that the allocation is as large as its exporter said it was: another one of the same handle seldom is.
    pub fn check_size(&self, told: u64) -> Result<()> {
        ensure!(
            self.size == told,
            Stale,
            "the handle opens {} bytes where its exporter had {told}: that memory was freed and other allocated",
            self.size
        );
        Ok(())
    }
}

impl OpenAllocation {
    fn new(context: Context, (place, handle): Key, buffer_id: Option<u64>) -> Result<Self> {
        let address = open(&context, &handle)?;
        let mut opening = Self { context, address, size: 0, buffer_id, own_id: None, users: 1 };
        match opening.look(place) {
            Ok((size, own_id)) => (opening.size, opening.own_id) = (size, Some(own_id)),
            Err(error) => {
                // Nothing is logged with the lock held: both failures are told.
                return Err(match opening.close() {
                    Ok(()) => error,
                    Err(closing) => error.context(closing),
                });
            }
        }
        Ok(opening)
    }

    /// What the driver says of it: its bytes and its number, if it is a whole allocation of the device it is said to lie on.
    ///
    /// Of memory that is opened for another device the ordinal may be told of where it lies or of where it is open; the
    /// documentation says neither, and a pair of GPUs has to show it. Either is taken for what was asked, so that in the
    /// second case a wrong owner is not noticed here.
    fn look(&self, place: DevicePair) -> Result<(u64, u64)> {
        let (base, size) = memory::range_in(&self.context, self.address)?;
        let found = memory::ordinal_of(self.address)?;
        let DevicePair { owner, user } = place;
        ensure!(
            found == owner || found == user,
            InvalidArgument,
            "the handle names memory of device {found}, not of device {owner}: open it as memory of device {found}"
        );
        ensure!(
            base == self.address,
            Cuda,
            "the driver maps the handle at {:#x}, inside an allocation at {base:#x}",
            self.address
        );
        Ok((size, memory::buffer_id(self.address)?))
    }

    fn serve_one_more(&mut self, buffer_id: Option<u64>) -> Result<()> {
        if let (Some(opened), Some(wanted)) = (self.buffer_id, buffer_id) {
            ensure!(
                opened == wanted,
                Stale,
                "the handle is open here as buffer {opened} of its process, which has freed that memory if the handle \
                 is of buffer {wanted} now: give up all that was opened by it, then open it again"
            );
        }
        self.buffer_id = self.buffer_id.or(buffer_id);
        self.users += 1;
        Ok(())
    }

    fn mapping(&self, key: Key) -> IpcMapping {
        IpcMapping { key, address: self.address, size: self.size, identity: self.context.identity() }
    }

    /// Not tried again when it fails: a second close could be of an opening that is somebody else's in this process.
    fn close(&self) -> Result<()> {
        let driver = self.context.driver();
        self.context.free(|| {
            memory::ensure_exists(self.address, self.own_id)?;
            // SAFETY: opened by this value, and used by nobody any more.
            let answer = unsafe { driver.api.ipc_close_mem_handle.call(self.address) };
            driver.check(answer, format_args!("close the IPC mapping of {} bytes", self.size))
        })
    }
}

impl Drop for IpcMapping {
    fn drop(&mut self) {
        let mut openings = openings();
        let Some(opening) = openings.get_mut(&self.key) else { return };
        if opening.context.identity() != self.identity {
            // It went with its context, and the handle was opened again since.
            return;
        }
        opening.users -= 1;
        if opening.users > 0 {
            return;
        }
        let closed = opening.close();
        let last = openings.remove(&self.key);
        // Dropping the opening may release its context, which takes long. All openings share the lock.
        drop(openings);
        drop(last);
        if let Err(error) = closed {
            log!(Error, "{error}");
        }
    }
}

fn open(context: &Context, handle: &IpcHandle) -> Result<u64> {
    let driver = context.driver();
    let _entered = context.enter()?;
    let mut address = 0;
    // SAFETY: a current context; the output lives through the call.
    let answer = unsafe {
        driver.api.ipc_open_mem_handle.call(&mut address, RawIpcHandle(*handle), LAZY_ENABLE_PEER_ACCESS)
    };
    let ordinal = context.device().ordinal();
    driver.check(answer, format_args!("open an IPC handle on device {ordinal}")).map_err(explain)?;
    Ok(address)
}

/// Drivers differ in what they answer for a handle that names nothing: all of it is the caller's to mend.
fn explain(error: Error) -> Error {
    let (message, status) = if has_code(&error, &[INVALID_CONTEXT]) {
        let message = "this process exported the handle itself, and has the memory already: use the address it was \
                       exported by";
        (message, Status::InvalidArgument)
    } else if has_code(&error, &[ALREADY_MAPPED]) {
        let message = "the driver has the memory mapped in this process for another GPU, and maps it once: open it for \
                       that GPU, or give up what was opened there first";
        (message, Status::Unsupported)
    } else if has_code(&error, &[INVALID_DEVICE]) {
        ("the handle names memory of a GPU that this process may not use", Status::NotFound)
    } else if has_code(&error, &[INVALID_VALUE, INVALID_HANDLE, NOT_PERMITTED]) {
        let message = "the handle names nothing that can be opened here: its memory was freed, its process has ended \
                       or is of another PID namespace, or the bytes are no handle";
        (message, Status::InvalidArgument)
    } else {
        return error;
    };
    error.context(message).with_status(status)
}
