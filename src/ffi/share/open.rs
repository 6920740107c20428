// SPDX-License-Identifier: Apache-2.0
//! Opening a share.

use crate::error::{Result, ensure, fail};
use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::Out;
use crate::ffi::common::handle::borrow;
use crate::ffi::common::handle::borrow_nullable;
use crate::ffi::common::options::check_flags;
use crate::ffi::common::options::init;
use crate::ffi::common::options::options;
use crate::ffi::common::options::read_nullable;
use crate::ffi::common::pointer::null;
use crate::ffi::common::scope::Scope;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::layout::kvmem_layout;
use crate::ffi::region::kvmem_region;
use crate::ffi::share::kvmem_share;
use crate::region::{Access, DeviceUsers};
use crate::share::{OpenOptions, Reach};

/// Open for reading only, even if writing is granted.
pub const KVMEM_OPEN_READ_ONLY: u64 = 1;
/// Page-lock host memory, for `device`: it is pinned memory then. What may only be read can be locked for a
/// GPU that has CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED: KVMEM_STATUS_UNSUPPORTED for another.
/// No effect on files.
pub const KVMEM_OPEN_PIN: u64 = 2;
/// Map the memory of a layout or fail: do not turn to NIXL.
pub const KVMEM_OPEN_MAPPED_ONLY: u64 = 4;
/// Reach a layout by NIXL, also where its memory could be mapped.
pub const KVMEM_OPEN_REMOTE: u64 = 8;
/// Register a mapped layout with `agent`.
pub const KVMEM_OPEN_REGISTER: u64 = 16;
/// Open memory of a GPU for the GPU `device` to use: its kernels then read and write it, over NVLink or PCIe.
/// Without it, the memory is opened for the GPU that it is located on, and kernels of another GPU fail to
/// access it. Elastic memory, and memory that an engine has mapped, stays open for its own GPU too. kvmem
/// opens it for another GPU when a transfer first runs there, which delays the creation of that transfer: 0.3
/// ms per extent of 64 MiB, 20 ms per extent of 1 GiB on an H200. Plain device memory is opened for one GPU
/// at a time. No effect on host memory, on files, and on memory of this process.
pub const KVMEM_OPEN_FOR_DEVICE: u64 = 32;
/// Open to read and write: KVMEM_STATUS_PERMISSION_DENIED where less is granted. Without it, and without
/// KVMEM_OPEN_READ_ONLY, the region gets all granted rights; KVMEM_REGION_READ_ONLY is set in its flags if
/// it may only be read.
pub const KVMEM_OPEN_READ_WRITE: u64 = 64;
/// Map reserved huge pages (`huge_page_size` of kvmem_system_options). The owner, and every importer that may
/// write, can take them away again, and this process then ends with SIGBUS when it touches the memory.
/// Without the flag such memory fails with KVMEM_STATUS_UNSUPPORTED.
pub const KVMEM_OPEN_TRUST_OWNER: u64 = 128;
/// Open elastic memory, and memory that an engine has mapped, for every GPU of this process that can access
/// the GPU it is located on: for an engine whose own kernels use it on several GPUs. Takes as long for each
/// GPU as KVMEM_OPEN_FOR_DEVICE does. No effect on other memory. Not together with KVMEM_OPEN_FOR_DEVICE.
pub const KVMEM_OPEN_FOR_ALL_DEVICES: u64 = 256;

/// How to open a share. All zeroes but struct_size maps the memory with all that is granted.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_open_options {
    /// sizeof(kvmem_open_options)
    pub struct_size: usize,
    /// KVMEM_OPEN_* flags.
    pub flags: u64,
    /// Who reaches a layout by NIXL where it can't be mapped, or registers it; may be NULL.
    pub agent: *mut kvmem_agent,
    /// The GPU that KVMEM_OPEN_PIN and KVMEM_OPEN_FOR_DEVICE mean, as CUDA_VISIBLE_DEVICES orders them here;
    /// 0 without those flags.
    pub device: i32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_open_options);

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_open_options_init(options: *mut kvmem_open_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Opens the region that a share is of. In the process that shares it this is the region itself; opened twice
/// in another process it is mapped once.
///
/// kvmem does not trust the bytes: it queries sizes, device and kind of memory from the kernel and the
/// driver. A device is found by its UUID, whatever its ordinal is here. Extents of elastic memory that their
/// owner decommits later answer KVMEM_STATUS_STALE to new transfers; memory whose owner has ended stays
/// readable, and kvmem_region_check_owner tells.
///
/// @param share a share of a region
/// @param options how to open it; NULL for all that is granted
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK, or
///         - KVMEM_STATUS_CORRUPT: the memory is not what the bytes say, or opening its control block would
///           wait.
///         - KVMEM_STATUS_PERMISSION_DENIED: KVMEM_OPEN_READ_WRITE, and less is granted.
///         - KVMEM_STATUS_NOT_FOUND: this process does not see the GPU.
///         - KVMEM_STATUS_PEER_LOST: the owner has freed the device memory, or has ended.
///         - KVMEM_STATUS_UNSUPPORTED: the memory is of another machine; it has reserved huge pages
///           (KVMEM_OPEN_TRUST_OWNER); the GPU can't page-lock what may only be read, or does not reach the
///           memory; fabric handles do not work here; or the driver does not open an IPC handle from another
///           PID namespace.
///         - KVMEM_STATUS_STALE: extents by fabric handle, or plain device memory, were freed and given anew
///           since.
///         - KVMEM_STATUS_OUT_OF_MEMORY: also with KVMEM_OPEN_PIN, if there is no room for pages that the
///           owner has not touched.
///         - KVMEM_STATUS_INVALID_ARGUMENT: the share is of a layout.
///         - KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_open_region(
    share: *const kvmem_share,
    options: *const kvmem_open_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let (region, options) = (Out::new(region)?, read_nullable(options)?);
            region.set(borrow(scope, share)?.open_region(&opening(scope, options)?)?.into());
            Ok(())
        })
    }
}

/// Opens the layout that a share is of: mapped where that is possible, else reached by NIXL if there is an
/// agent, in either case whole. Its regions are of one tier and device and a transfer of it goes one way, so
/// no part is mapped where another can't be. Its info says which it is (locality), the log why it is not
/// mapped (KVMEM_LOG_INFO).
///
/// @param share a share of a layout
/// @param options how to open it; NULL for all that is granted
/// @param layout gets the layout; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return as kvmem_share_open_region; for a layout reached by NIXL as kvmem_agent_load_remote_metadata and
///         kvmem_layout_import
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_open_layout(
    share: *const kvmem_share,
    options: *const kvmem_open_options,
    layout: *mut *mut kvmem_layout,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let (layout, options) = (Out::new(layout)?, read_nullable(options)?);
            layout.set(borrow(scope, share)?.open_layout(&opening(scope, options)?)?);
            Ok(())
        })
    }
}

unsafe fn opening(scope: &Scope<'_>, options: Option<kvmem_open_options>) -> Result<OpenOptions> {
    let Some(options) = options else { return Ok(OpenOptions::default()) };
    let known = KVMEM_OPEN_READ_ONLY
        | KVMEM_OPEN_PIN
        | KVMEM_OPEN_MAPPED_ONLY
        | KVMEM_OPEN_REMOTE
        | KVMEM_OPEN_REGISTER
        | KVMEM_OPEN_FOR_DEVICE
        | KVMEM_OPEN_READ_WRITE
        | KVMEM_OPEN_TRUST_OWNER
        | KVMEM_OPEN_FOR_ALL_DEVICES;
    check_flags("kvmem_open_options", options.flags, known)?;
    ensure!(options.reserved == 0, InvalidArgument, "reserved is {}, it must be 0", options.reserved);
    let has = |flag| options.flags & flag != 0;
    let reach = match (has(KVMEM_OPEN_MAPPED_ONLY), has(KVMEM_OPEN_REMOTE)) {
        (false, false) => Reach::Auto,
        (true, false) => Reach::Mapped,
        (false, true) => Reach::Remote,
        (true, true) => {
            fail!(InvalidArgument, "KVMEM_OPEN_MAPPED_ONLY and KVMEM_OPEN_REMOTE exclude each other")
        }
    };
    ensure!(
        options.device == 0 || has(KVMEM_OPEN_PIN) || has(KVMEM_OPEN_FOR_DEVICE),
        InvalidArgument,
        "device is {}, which means nothing without KVMEM_OPEN_PIN or KVMEM_OPEN_FOR_DEVICE",
        options.device
    );
    let users = match (has(KVMEM_OPEN_FOR_DEVICE), has(KVMEM_OPEN_FOR_ALL_DEVICES)) {
        (false, false) => DeviceUsers::Owner,
        (true, false) => DeviceUsers::Device(options.device),
        (false, true) => DeviceUsers::All,
        (true, true) => fail!(
            InvalidArgument,
            "KVMEM_OPEN_FOR_DEVICE and KVMEM_OPEN_FOR_ALL_DEVICES exclude each other: give one of them"
        ),
    };
    let access = match (has(KVMEM_OPEN_READ_ONLY), has(KVMEM_OPEN_READ_WRITE)) {
        (false, false) => None,
        (true, false) => Some(Access::Read),
        (false, true) => Some(Access::ReadWrite),
        (true, true) => {
            fail!(InvalidArgument, "KVMEM_OPEN_READ_ONLY and KVMEM_OPEN_READ_WRITE exclude each other")
        }
    };
    // SAFETY: NULL or a live agent, by contract.
    let agent = unsafe { borrow_nullable(scope, options.agent) }?.map(|agent| agent.agent.clone());
    if has(KVMEM_OPEN_REGISTER) && agent.is_none() {
        return Err(null("agent").context("KVMEM_OPEN_REGISTER needs one"));
    }
    Ok(OpenOptions {
        access,
        pin: has(KVMEM_OPEN_PIN).then_some(options.device),
        users,
        reach,
        agent,
        register: has(KVMEM_OPEN_REGISTER),
        trust_owner: has(KVMEM_OPEN_TRUST_OWNER),
    })
}
