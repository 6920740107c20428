// SPDX-License-Identifier: Apache-2.0
//! Opening a share.

use crate::base::{Result, ensure, fail};
use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::{
    Out, Scope, borrow, borrow_nullable, call, check_flags, check_reserved, kvmem_error, kvmem_status, null,
    options, read_nullable,
};
use crate::ffi::layout::kvmem_layout;
use crate::ffi::region::kvmem_region;
use crate::ffi::share::kvmem_share;
use crate::region::{Access, DeviceUsers};
use crate::share::{OpenOptions, Reach};

/// Open for reading only, even if write access is granted.
pub const KVMEM_OPEN_READ_ONLY: u64 = 1;
/// Page-lock host memory for the GPU `device`. The region is then pinned memory. Read-only memory can be
/// locked only for a GPU that has CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED; for others, opening
/// fails with KVMEM_STATUS_UNSUPPORTED. No effect on files and GPU memory.
pub const KVMEM_OPEN_PIN: u64 = 2;
/// Layouts: map the memory or fail, rather than use NIXL.
pub const KVMEM_OPEN_MAPPED_ONLY: u64 = 4;
/// Layouts: use NIXL, even if the memory can be mapped. Needs `agent`.
pub const KVMEM_OPEN_REMOTE: u64 = 8;
/// Layouts: register the mapped memory with `agent`.
pub const KVMEM_OPEN_REGISTER: u64 = 16;
/// Open GPU memory for kernels of the GPU `device`, which access it over NVLink or PCIe. Without this flag,
/// the memory is opened for the GPU that it is located on, and kernels of other GPUs fail to access it. Plain
/// device memory is opened for one GPU at a time. Elastic memory, and memory that an engine mapped, stays
/// open for its own GPU too. kvmem opens it for another GPU when a transfer there gets its first blocks,
/// which delays that call: on an H200, by 0.3 ms per extent of 64 MiB and 20 ms per extent of 1 GiB.
/// No effect on host memory, files, and memory of this process.
pub const KVMEM_OPEN_FOR_DEVICE: u64 = 32;
/// Open for reading and writing, and fail with KVMEM_STATUS_PERMISSION_DENIED unless write access is granted.
/// Without this flag and KVMEM_OPEN_READ_ONLY, the region has all granted rights (see
/// KVMEM_REGION_READ_ONLY).
pub const KVMEM_OPEN_READ_WRITE: u64 = 64;
/// Map host memory that other processes can take away: reserved huge pages (`huge_page_size` of
/// kvmem_system_options), and adopted memory files that can be truncated (see kvmem_region_adopt_memfd). The
/// owner, and every importer with write access, can remove such pages. If this process then touches them, it
/// ends with SIGBUS. Without this flag, such memory fails with KVMEM_STATUS_UNSUPPORTED.
pub const KVMEM_OPEN_TRUST_OWNER: u64 = 128;
/// Open elastic memory, and memory that an engine mapped, for every GPU of this process that can access the
/// GPU it is located on: for an engine whose own kernels use it on several GPUs. Each GPU takes as long as
/// with KVMEM_OPEN_FOR_DEVICE. No effect on other memory. Excludes KVMEM_OPEN_FOR_DEVICE.
pub const KVMEM_OPEN_FOR_ALL_DEVICES: u64 = 256;

/// Options of kvmem_share_open_region and kvmem_share_open_layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_open_options {
    /// sizeof(kvmem_open_options)
    pub struct_size: usize,
    /// KVMEM_OPEN_* flags; 0 maps the memory with all granted rights.
    pub flags: u64,
    /// Agent that registers the layout, or accesses it through NIXL; NULL for none.
    pub agent: *mut kvmem_agent,
    /// The GPU of KVMEM_OPEN_PIN and KVMEM_OPEN_FOR_DEVICE. Must be 0 without these flags.
    pub device: i32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_open_options);

/// Opens the region of a share.
///
/// In the process that created the share, returns the original region. In other processes, the memory is
/// mapped once per access right and GPU, however often it is opened, and unmapped with the last region.
///
/// kvmem does not trust the bytes of the share: it queries sizes, GPU and kind of memory from the kernel and
/// the driver. The GPU is identified by its UUID, so its ordinal may differ from the owner's.
///
/// If the owner decommits elastic extents later, new transfers of them fail with KVMEM_STATUS_STALE. If the
/// owner ends, the memory stays readable, and kvmem_region_check_owner returns KVMEM_STATUS_PEER_LOST.
///
/// @return KVMEM_STATUS_CORRUPT: the memory is not as described, or opening its control block would block
///         KVMEM_STATUS_VERSION_MISMATCH: this library does not read this version of the control block
///         KVMEM_STATUS_PERMISSION_DENIED: KVMEM_OPEN_READ_WRITE is set, and write access is not granted
///         KVMEM_STATUS_NOT_FOUND: this process cannot use the GPU, or owned the region and has freed it
///         KVMEM_STATUS_PEER_LOST: the owner has freed the device memory, or has ended
///         KVMEM_STATUS_UNSUPPORTED: the memory is on another machine, or was shared before this one was
///           restarted; it has pages that other processes can remove (KVMEM_OPEN_TRUST_OWNER); the GPU cannot
///           page-lock read-only memory, or cannot access the memory; fabric handles do not work here; or the
///           driver does not open an IPC handle of another PID namespace
///         KVMEM_STATUS_STALE: device memory, or an extent by fabric handle, was reallocated since
///         KVMEM_STATUS_OUT_OF_MEMORY: with KVMEM_OPEN_PIN also for pages that the owner has not touched
///         KVMEM_STATUS_INVALID_ARGUMENT: the share is of a layout, flags exclude each other, or `agent` or
///           flags of layouts are set
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_open_region(
    share: *const kvmem_share,
    options: *const kvmem_open_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let (region, options) = (Out::new(region, "region")?, read_nullable(options)?);
        options.as_ref().map_or(Ok(()), ensure_for_region)?;
        region.set(borrow(scope, share)?.open_region(&opening(scope, options)?)?.into());
        Ok(())
    })
}

/// Opens the layout of a share: maps its memory, or accesses it through NIXL.
///
/// By default the memory is mapped. If that is not possible, the layout is accessed through NIXL. This needs
/// an agent, a share that carries NIXL metadata, and no KVMEM_OPEN_READ_ONLY. `locality` of kvmem_layout_info
/// returns which of the two was chosen. The log says why the memory was not mapped (KVMEM_LOG_INFO).
///
/// A layout is mapped or accessed through NIXL as a whole. Its regions have one tier and device, and a
/// transfer uses one method, so no region is mapped unless all can be.
///
/// @return any status of kvmem_share_open_region; for access through NIXL, any status of
///         kvmem_agent_load_remote_metadata and kvmem_layout_import; and
///         KVMEM_STATUS_INVALID_ARGUMENT: the share is of a region, or KVMEM_OPEN_REMOTE has no agent
///         KVMEM_STATUS_UNSUPPORTED: the share carries no memory, and NIXL is not to be used; or
///           KVMEM_OPEN_REMOTE is set, and the share carries no NIXL metadata or KVMEM_OPEN_READ_ONLY is set
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_open_layout(
    share: *const kvmem_share,
    options: *const kvmem_open_options,
    layout: *mut *mut kvmem_layout,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let (layout, options) = (Out::new(layout, "layout")?, read_nullable(options)?);
        layout.set(borrow(scope, share)?.open_layout(&opening(scope, options)?)?.into());
        Ok(())
    })
}

/// Fails for what only layouts use.
fn ensure_for_region(options: &kvmem_open_options) -> Result<()> {
    let of_layouts = KVMEM_OPEN_MAPPED_ONLY | KVMEM_OPEN_REMOTE | KVMEM_OPEN_REGISTER;
    ensure!(
        options.flags & of_layouts == 0 && options.agent.is_null(),
        InvalidArgument,
        "agent, KVMEM_OPEN_MAPPED_ONLY, KVMEM_OPEN_REMOTE and KVMEM_OPEN_REGISTER are for layouts; omit them, and register the \
         region with kvmem_region_register"
    );
    Ok(())
}

/// The options as core types.
///
/// # Safety
/// The agent must be NULL or live.
pub(in crate::ffi) unsafe fn opening(
    scope: &Scope<'_>,
    options: Option<kvmem_open_options>,
) -> Result<OpenOptions> {
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
    check_reserved("kvmem_open_options", options.reserved)?;
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
        "device is {}, and no flag uses it: set KVMEM_OPEN_PIN or KVMEM_OPEN_FOR_DEVICE, or set device to 0",
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
    let agent = unsafe { borrow_nullable(scope, options.agent) }.map_err(|error| error.context("agent"))?;
    let agent = agent.map(|agent| agent.agent.clone());
    if has(KVMEM_OPEN_REGISTER) && agent.is_none() {
        return Err(null("agent").context("KVMEM_OPEN_REGISTER needs an agent"));
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
