// SPDX-License-Identifier: Apache-2.0
//! Regions.

use std::ffi::{c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::error::kvmem_error;
use super::guard::call;
use super::handle::{Handle, Out, borrow, destroy, opaque, out};
use super::options::{check_flags, init, options, read};
use super::status::kvmem_status;
use super::text;
use crate::error::{Error, Result, Status, ensure};
use crate::region::{
    AdoptedMemory, Backing, DirectIo, DiskConfig, HugePages, Region, Release, SystemConfig, Tier,
};

/// A span of memory on one tier. Views, registrations, layouts and transfers hold the region they lie in, so handles
/// may be destroyed in any order: the memory goes with the last holder.
///
/// Threads: all functions on one region may run at once, except kvmem_region_destroy.
pub struct kvmem_region {
    handle: Handle<Arc<Region>>,
}
opaque!(kvmem_region, Arc<Region>, "region");

/// Host memory.
pub const KVMEM_TIER_SYSTEM: u32 = 1;
/// A file.
pub const KVMEM_TIER_DISK: u32 = 2;

/// kvmem allocated it.
pub const KVMEM_ORIGIN_ALLOCATED: u32 = 1;
/// It is the caller's.
pub const KVMEM_ORIGIN_ADOPTED: u32 = 2;
/// It is a part of another region.
pub const KVMEM_ORIGIN_VIEW: u32 = 3;

/// Ask the kernel for transparent huge pages.
pub const KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES: u64 = 1;
/// Fail rather than take smaller pages than asked for. Without it the region is made of what there is, and its info
/// says so.
pub const KVMEM_SYSTEM_HUGE_PAGES_REQUIRED: u64 = 2;
/// Bind the memory to `numa_node`.
pub const KVMEM_SYSTEM_NUMA_BIND: u64 = 4;

/// How to allocate host memory. All zeroes but struct_size and size is a good start.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_system_options {
    /// sizeof(kvmem_system_options)
    pub struct_size: usize,
    /// KVMEM_SYSTEM_* flags.
    pub flags: u64,
    /// Bytes, at least 1. In a layout's options 0: the layout says.
    pub size: u64,
    /// 2097152 or 1073741824 for pages of that size from the system's reserved pool (hugetlbfs); 0 for none.
    pub huge_page_size: u64,
    /// The node KVMEM_SYSTEM_NUMA_BIND means; 0 without that flag.
    pub numa_node: u32,
    /// Threads that touch every page before the call returns; 0: each page comes with its first use.
    pub prefault_threads: u32,
}
options!(kvmem_system_options);

/// Do not bypass the page cache.
pub const KVMEM_DISK_BUFFERED: u64 = 1;
/// Fail where the file system has no O_DIRECT. Without it the file is buffered there, and its info says so.
pub const KVMEM_DISK_DIRECT_REQUIRED: u64 = 2;
/// Use the file at `path`, which must be there, rather than make it.
pub const KVMEM_DISK_OPEN_EXISTING: u64 = 4;

/// How to make or open a file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_disk_options {
    /// sizeof(kvmem_disk_options)
    pub struct_size: usize,
    /// KVMEM_DISK_* flags.
    pub flags: u64,
    /// Bytes, at least 1; 0 with KVMEM_DISK_OPEN_EXISTING for the whole file. In a layout's options 0.
    pub size: u64,
    /// The caller's file. It is made if it is not there yet, and never deleted by kvmem. NULL for a temporary file,
    /// which has no name and is gone with the region, or with the process.
    pub path: *const c_char,
    /// Where a temporary file lies; NULL for $TMPDIR, else /tmp.
    pub directory: *const c_char,
}
options!(kvmem_disk_options);

/// Called once, on any thread, when nothing uses adopted memory any more. Must not unwind.
pub type kvmem_release_callback = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// Memory of the caller's to use.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_adopt_options {
    /// sizeof(kvmem_adopt_options)
    pub struct_size: usize,
    /// Must be 0.
    pub flags: u64,
    /// The first byte. All of the memory must be mapped, and stay so until release is called.
    pub address: *mut c_void,
    /// Bytes, at least 1.
    pub size: u64,
    /// Who learns that nothing uses the memory any more; may be NULL.
    pub release: kvmem_release_callback,
    /// Handed to release.
    pub user_data: *mut c_void,
}
options!(kvmem_adopt_options);

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_system_options_init(options: *mut kvmem_system_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_disk_options_init(options: *mut kvmem_disk_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_adopt_options_init(options: *mut kvmem_adopt_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Allocates host memory: page-aligned and zeroed.
///
/// @param options what to allocate
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for options that can't be, or a NUMA node that is not
///         there; KVMEM_STATUS_OUT_OF_MEMORY; KVMEM_STATUS_UNSUPPORTED for huge pages that are required and not
///         offered
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_system(
    options: *const kvmem_system_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (region, options) = unsafe { (Out::new(region)?, read(options)?) };
        region.set(Region::system(&system_config(&options)?)?);
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Makes or opens a file of fixed size, with its space reserved and the page cache bypassed where the file system
/// has it.
///
/// @param options what to make or open
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_ALREADY_EXISTS when the file is there; KVMEM_STATUS_NOT_FOUND when its
///         folder, or with KVMEM_DISK_OPEN_EXISTING the file, is not; KVMEM_STATUS_INVALID_ARGUMENT for something
///         that is no file; KVMEM_STATUS_OUT_OF_RANGE for an existing file that is too small;
///         KVMEM_STATUS_OUT_OF_MEMORY without space; KVMEM_STATUS_UNSUPPORTED without O_DIRECT where that is
///         required; KVMEM_STATUS_PERMISSION_DENIED; KVMEM_STATUS_IO. A file that could not be made is not left
///         behind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_disk(
    options: *const kvmem_disk_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (region, options) = unsafe { (Out::new(region)?, read(options)?) };
        // SAFETY: by contract.
        region.set(Region::disk(&unsafe { disk_config(&options) }?)?);
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Takes host memory of the caller's into use. It is never freed by kvmem.
///
/// @param options the memory
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for memory that is not mapped; then release is not called
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_adopt_host(
    options: *const kvmem_adopt_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (region, options) = unsafe { (Out::new(region)?, read(options)?) };
        check_flags("kvmem_adopt_options", options.flags, 0)?;
        let release = options.release.map(|release| release_once(release, UserData(options.user_data)));
        region.set(Region::adopt(AdoptedMemory::new(options.address as usize, options.size, release)?));
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Makes a part of a region a region of its own. It keeps its parent.
///
/// @param region the parent
/// @param offset where in the parent it begins, in bytes
/// @param size its bytes, at least 1
/// @param view gets the part; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE when it does not fit; KVMEM_STATUS_INVALID_ARGUMENT when empty
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_view(
    region: *const kvmem_region,
    offset: u64,
    size: u64,
    view: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let view = Out::new(view)?;
            view.set(Region::view(borrow(scope, region)?, offset, size)?);
            Ok(())
        })
    }
}

/// Disk: I/O bypasses the page cache.
pub const KVMEM_REGION_DIRECT_IO: u64 = 1;
/// Disk: the space is reserved.
pub const KVMEM_REGION_PREALLOCATED: u64 = 2;
/// Disk: the file has no name and goes with the region.
pub const KVMEM_REGION_TEMPORARY: u64 = 4;
/// System: the pages are smaller than asked for.
pub const KVMEM_REGION_HUGE_PAGE_FALLBACK: u64 = 8;

/// What a region is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_region_info {
    /// The first byte: a host address, or an offset in the file.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// System: the size of the pages it is mapped with. Others: the system's page size.
    pub page_size: u64,
    /// System: bytes that lie on transparent huge pages now, as the kernel counts them.
    pub transparent_huge_bytes: u64,
    /// Disk: what offsets, sizes and memory addresses of I/O must be multiples of. Others: 1.
    pub alignment: u64,
    /// KVMEM_REGION_* flags.
    pub flags: u64,
    /// A KVMEM_TIER_* value.
    pub tier: u32,
    /// A KVMEM_ORIGIN_* value.
    pub origin: u32,
    /// The GPU it lies on; -1 for none.
    pub device_id: i32,
    /// The NUMA node it is bound to; -1 for none.
    pub numa_node: i32,
    /// Disk: the open file, valid as long as the region and not to be closed. Others: -1.
    pub fd: i32,
    /// Agents it is registered with; kvmem_region_get_agent names them.
    pub registration_count: u32,
}

/// Tells what a region is.
///
/// @param region a region
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_get_info(
    region: *const kvmem_region,
    info: *mut kvmem_region_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let info = out(info, "info")?;
            info.write(describe(borrow(scope, region)?));
            Ok(())
        })
    }
}

/// The path of a disk region's file.
///
/// @param region a region
/// @param buffer gets the path and its NUL; may be NULL with capacity 0, to ask the size alone
/// @param capacity bytes of the buffer
/// @param size gets the bytes the path needs with its NUL, also when the buffer is too small
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND when there is no file or it has no name;
///         KVMEM_STATUS_OUT_OF_RANGE when the buffer is too small
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_get_path(
    region: *const kvmem_region,
    buffer: *mut c_char,
    capacity: usize,
    size: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let answer = text::Answer::new(buffer, capacity, size)?;
            let nameless = || Error::new(Status::NotFound, "the region has no file with a name");
            let path = borrow(scope, region)?.path().ok_or_else(nameless)?;
            answer.set(path.as_os_str().as_bytes())
        })
    }
}

/// The name of an agent a region is registered with.
///
/// @param region a region
/// @param index which one, below the info's registration_count
/// @param buffer gets the name and its NUL; may be NULL with capacity 0, to ask the size alone
/// @param capacity bytes of the buffer
/// @param size gets the bytes the name needs with its NUL, also when the buffer is too small
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND past the last; KVMEM_STATUS_OUT_OF_RANGE when the buffer is too
///         small
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_get_agent(
    region: *const kvmem_region,
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
    size: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let answer = text::Answer::new(buffer, capacity, size)?;
            let registrations = borrow(scope, region)?.registrations();
            let past = || {
                let message =
                    format!("there is no registration {index}, the region has {}", registrations.len());
                Error::new(Status::NotFound, message)
            };
            let registration = registrations.get(index).ok_or_else(past)?;
            answer.set(registration.agent().name().as_bytes())
        })
    }
}

/// Waits until what was written to a disk region is on the medium. Other regions have nothing to do.
///
/// @param region a region
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_IO or KVMEM_STATUS_OUT_OF_MEMORY when the data is not safe
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_sync(
    region: *const kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, region)?.sync()) }
}

/// Gives up a region. Its memory goes when nothing holds it any more.
///
/// @param region a region, used by nobody through this handle any more; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_destroy(region: *mut kvmem_region) {
    // SAFETY: by contract.
    unsafe { destroy(region) };
}

/// Options as the core has them.
pub(super) fn system_config(options: &kvmem_system_options) -> Result<SystemConfig> {
    let known =
        KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES | KVMEM_SYSTEM_HUGE_PAGES_REQUIRED | KVMEM_SYSTEM_NUMA_BIND;
    check_flags("kvmem_system_options", options.flags, known)?;
    let has = |flag| options.flags & flag != 0;
    let huge_pages = match (options.huge_page_size, has(KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES)) {
        (0, false) => HugePages::None,
        (0, true) => HugePages::Transparent,
        (size @ (0x20_0000 | 0x4000_0000), _) => HugePages::Reserved(size),
        (size, _) => {
            let message = format!("huge_page_size is {size}; it is 0, 2097152 or 1073741824");
            return Err(Error::new(Status::InvalidArgument, message));
        }
    };
    ensure!(
        huge_pages != HugePages::None || !has(KVMEM_SYSTEM_HUGE_PAGES_REQUIRED),
        InvalidArgument,
        "huge pages are required, but none are asked for"
    );
    ensure!(
        options.numa_node == 0 || has(KVMEM_SYSTEM_NUMA_BIND),
        InvalidArgument,
        "numa_node is {}, which means nothing without KVMEM_SYSTEM_NUMA_BIND",
        options.numa_node
    );
    Ok(SystemConfig {
        size: options.size,
        huge_pages,
        huge_pages_required: has(KVMEM_SYSTEM_HUGE_PAGES_REQUIRED),
        numa_node: has(KVMEM_SYSTEM_NUMA_BIND).then_some(options.numa_node),
        prefault_threads: options.prefault_threads,
    })
}

/// Options as the core has them.
///
/// # Safety
/// The paths must be NULL or NUL-terminated.
pub(super) unsafe fn disk_config(options: &kvmem_disk_options) -> Result<DiskConfig> {
    let known = KVMEM_DISK_BUFFERED | KVMEM_DISK_DIRECT_REQUIRED | KVMEM_DISK_OPEN_EXISTING;
    check_flags("kvmem_disk_options", options.flags, known)?;
    let has = |flag| options.flags & flag != 0;
    let direct_io = match (has(KVMEM_DISK_BUFFERED), has(KVMEM_DISK_DIRECT_REQUIRED)) {
        (false, false) => DirectIo::Preferred,
        (false, true) => DirectIo::Required,
        (true, false) => DirectIo::Off,
        (true, true) => {
            let message = "KVMEM_DISK_BUFFERED and KVMEM_DISK_DIRECT_REQUIRED exclude each other";
            return Err(Error::new(Status::InvalidArgument, message));
        }
    };
    // SAFETY: the caller's promise.
    let (path, directory) = unsafe { (text::path(options.path), text::path(options.directory)) };
    ensure!(
        path.is_none() || directory.is_none(),
        InvalidArgument,
        "a file with a path lies where that says; directory is for temporary ones"
    );
    Ok(DiskConfig {
        size: options.size,
        path: path.map(Into::into),
        directory: directory.map(Into::into),
        direct_io,
        open_existing: has(KVMEM_DISK_OPEN_EXISTING),
    })
}

struct UserData(*mut c_void);
// SAFETY: the caller promises that the callback may run on any thread with it.
unsafe impl Send for UserData {}
// SAFETY: see above.
unsafe impl Sync for UserData {}

fn release_once(release: unsafe extern "C" fn(*mut c_void), user_data: UserData) -> Release {
    Box::new(move || {
        let user_data = &user_data;
        // SAFETY: a callback that does not unwind, by contract.
        unsafe { release(user_data.0) };
    })
}

fn describe(region: &Region) -> kvmem_region_info {
    let mut info = kvmem_region_info {
        address: region.address(),
        size: region.size(),
        page_size: rustix::param::page_size() as u64,
        transparent_huge_bytes: 0,
        alignment: region.io_alignment(),
        flags: 0,
        tier: tier(region.tier()),
        origin: KVMEM_ORIGIN_ALLOCATED,
        device_id: -1,
        numa_node: -1,
        fd: region.fd().unwrap_or(-1),
        registration_count: region.registrations().len() as u32,
    };
    match region.root() {
        Backing::System(memory) => {
            info.page_size = memory.page_size();
            info.transparent_huge_bytes = memory.transparent_huge_bytes();
            info.numa_node = memory.numa_node().map_or(-1, |node| node as i32);
            info.flags |= if memory.fell_back() { KVMEM_REGION_HUGE_PAGE_FALLBACK } else { 0 };
        }
        Backing::Disk(file) => {
            info.flags |= if file.is_direct() { KVMEM_REGION_DIRECT_IO } else { 0 };
            info.flags |= if file.is_preallocated() { KVMEM_REGION_PREALLOCATED } else { 0 };
            info.flags |= if file.path().is_none() { KVMEM_REGION_TEMPORARY } else { 0 };
        }
        Backing::Adopted(_) => info.origin = KVMEM_ORIGIN_ADOPTED,
        Backing::View { .. } => {}
    }
    if matches!(region.backing(), Backing::View { .. }) {
        info.origin = KVMEM_ORIGIN_VIEW;
    }
    info
}

/// A tier as C has it.
pub(super) fn tier(tier: Tier) -> u32 {
    match tier {
        Tier::System => KVMEM_TIER_SYSTEM,
        Tier::Disk => KVMEM_TIER_DISK,
    }
}
