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

/// Open for reading, even if writing is granted.
pub const KVMEM_OPEN_READ_ONLY: u64 = 1;
/// Page-lock host memory for `device`, which makes it pinned memory. Memory that can only be read needs a GPU
/// with CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED; other GPUs fail with KVMEM_STATUS_UNSUPPORTED.
/// No effect on files.
pub const KVMEM_OPEN_PIN: u64 = 2;
/// Map the memory of a layout, or fail: do not use NIXL.
pub const KVMEM_OPEN_MAPPED_ONLY: u64 = 4;
/// Access a layout by NIXL, even if its memory can be mapped.
pub const KVMEM_OPEN_REMOTE: u64 = 8;
/// Register a mapped layout with `agent`.
pub const KVMEM_OPEN_REGISTER: u64 = 16;
/// Open GPU memory for the GPU `device`, whose kernels then access it over NVLink or PCIe. Without this flag
/// it is opened for the GPU that it is located on, and kernels of other GPUs fail to access it. Plain device
/// memory is opened for one GPU at a time. Elastic memory, and memory that an engine mapped, stays open for
/// its own GPU too; kvmem opens it for another GPU when a transfer first runs there, which delays the
/// creation of that transfer (on an H200 0.3 ms per extent of 64 MiB, 20 ms per extent of 1 GiB). No effect
/// on host memory, files, and memory of this process.
pub const KVMEM_OPEN_FOR_DEVICE: u64 = 32;
/// Open for reading and writing, or fail with KVMEM_STATUS_PERMISSION_DENIED. Without this flag and
/// KVMEM_OPEN_READ_ONLY the region gets all granted rights, and the flags of its info have
/// KVMEM_REGION_READ_ONLY if it can only be read.
pub const KVMEM_OPEN_READ_WRITE: u64 = 64;
/// Map reserved huge pages (`huge_page_size` of kvmem_system_options). The owner and every importer with
/// write access can remove such pages, and this process then ends with SIGBUS when it accesses them. Without
/// this flag such memory fails with KVMEM_STATUS_UNSUPPORTED.
pub const KVMEM_OPEN_TRUST_OWNER: u64 = 128;
/// Open elastic memory, and memory that an engine mapped, for every GPU of this process that can access its
/// GPU, for engines whose kernels use it on several GPUs. Takes as long per GPU as KVMEM_OPEN_FOR_DEVICE. No
/// effect on other memory. Not together with KVMEM_OPEN_FOR_DEVICE.
pub const KVMEM_OPEN_FOR_ALL_DEVICES: u64 = 256;

/// Options of kvmem_share_open_region and kvmem_share_open_layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_open_options {
    /// sizeof(kvmem_open_options)
    pub struct_size: usize,
    /// KVMEM_OPEN_* flags; 0 maps the memory with all granted rights.
    pub flags: u64,
    /// Agent that accesses a layout by NIXL if it cannot be mapped, or that registers it; may be NULL.
    pub agent: *mut kvmem_agent,
    /// GPU of KVMEM_OPEN_PIN and KVMEM_OPEN_FOR_DEVICE, in the order of CUDA_VISIBLE_DEVICES of this process;
    /// 0 without those flags.
    pub device: i32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_open_options);

/// Sets options to their defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_open_options_init(options: *mut kvmem_open_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Opens the region of a share. In the process that created the share this is the region itself. A region
/// that is opened twice in another process is mapped once.
///
/// kvmem does not trust the bytes: it queries size, device and kind of the memory from the kernel and the
/// driver. A GPU is found by its UUID, whatever its ordinal is here. New transfers of elastic extents that
/// the owner has decommitted fail with KVMEM_STATUS_STALE. Memory of an owner that has ended stays readable;
/// see kvmem_region_check_owner.
///
/// @param share a share of a region
/// @param options how to open it; NULL for the defaults
/// @param region receives the region; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the share is of a layout
///         KVMEM_STATUS_PERMISSION_DENIED: KVMEM_OPEN_READ_WRITE is set, and less is granted
///         KVMEM_STATUS_NOT_FOUND: this process cannot use the GPU
///         KVMEM_STATUS_PEER_LOST: the owner has freed the device memory, or has ended
///         KVMEM_STATUS_STALE: extents by fabric handle, or plain device memory, were freed and allocated
///           again
///         KVMEM_STATUS_UNSUPPORTED: the memory belongs to another machine; it has reserved huge pages
///           (KVMEM_OPEN_TRUST_OWNER); the GPU cannot page-lock memory that can only be read, or cannot
///           access the memory; fabric handles do not work here; or the driver cannot open an IPC handle of
///           another PID namespace
///         KVMEM_STATUS_CORRUPT: the memory is not what the bytes say, or opening its control block would
///           block
///         KVMEM_STATUS_OUT_OF_MEMORY: also with KVMEM_OPEN_PIN, if pages that the owner has not touched
///           cannot be allocated
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
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

/// Opens the layout of a share: mapped if that is possible, otherwise by NIXL if there is an agent, in both
/// cases as a whole. Its info has the locality, and the log has the reason if it is not mapped
/// (KVMEM_LOG_INFO).
///
/// @param share a share of a layout
/// @param options how to open it; NULL for the defaults
/// @param layout receives the layout; the caller destroys it
/// @return any status of kvmem_share_open_region; for a layout that is opened by NIXL, any status of
///         kvmem_agent_load_remote_metadata and kvmem_layout_import
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
