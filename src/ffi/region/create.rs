// SPDX-License-Identifier: Apache-2.0
//! Making regions: one options struct and one function a tier.

use std::ffi::{c_char, c_void};

use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::Out;
use crate::ffi::common::options::{init, options, read};
use crate::ffi::common::status::kvmem_status;
use crate::ffi::region::config::{device_config, disk_config, elastic_config, pinned_config, system_config};
use crate::ffi::region::info::kvmem_region;
use crate::region::{DeviceMemory, Region};

/// Ask the kernel for transparent huge pages.
pub const KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES: u64 = 1;
/// Fail rather than take smaller pages than asked for. Without it the region is made of what there is, and
/// its info says so.
pub const KVMEM_SYSTEM_HUGE_PAGES_REQUIRED: u64 = 2;
/// Bind the memory to `numa_node`.
pub const KVMEM_SYSTEM_NUMA_BIND: u64 = 4;
/// Make it of a memory file, so that it can be shared with other processes.
pub const KVMEM_SYSTEM_SHAREABLE: u64 = 8;

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
    /// With KVMEM_SYSTEM_NUMA_BIND all of them are touched before the call returns: the kernel reserves none of
    /// a particular node.
    pub huge_page_size: u64,
    /// The node KVMEM_SYSTEM_NUMA_BIND means; 0 without that flag.
    pub numa_node: u32,
    /// Threads that touch every page before the call returns; 0: each page comes with its first use.
    pub prefault_threads: u32,
}
options!(kvmem_system_options);

/// Do not bypass the page cache.
pub const KVMEM_DISK_BUFFERED: u64 = 1;
/// Fail if the file system does not support O_DIRECT. Without this flag I/O then goes through the page
/// cache, and the region's info has no KVMEM_REGION_DIRECT_IO.
pub const KVMEM_DISK_DIRECT_REQUIRED: u64 = 2;
/// Open the file at `path`, which must exist and not be empty, instead of creating it.
pub const KVMEM_DISK_OPEN_EXISTING: u64 = 4;
/// Open the file at `path` if it exists, and create it if not. An empty file is treated as a new one.
pub const KVMEM_DISK_OPEN_OR_CREATE: u64 = 8;
/// With KVMEM_DISK_OPEN_EXISTING: open the file for reading. The region can only be a source of transfers,
/// and it can be open beside a writer.
pub const KVMEM_DISK_READ_ONLY: u64 = 16;
/// Do not lock the file against other writers: the caller keeps them apart.
pub const KVMEM_DISK_NO_LOCK: u64 = 32;

/// How to create or open a file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_disk_options {
    /// sizeof(kvmem_disk_options)
    pub struct_size: usize,
    /// KVMEM_DISK_* flags.
    pub flags: u64,
    /// Bytes, at least 1; 0 with KVMEM_DISK_OPEN_EXISTING for the whole file. In a layout's options 0.
    pub size: u64,
    /// The caller's file. kvmem creates it and never deletes it, unless the call that created it fails.
    /// NULL for a temporary file, which has no name and is deleted with the region, or with the process.
    pub path: *const c_char,
    /// Directory of a temporary file; NULL for $TMPDIR, or /tmp if that is not set.
    pub directory: *const c_char,
}
options!(kvmem_disk_options);

/// Ordinary pages only.
pub const KVMEM_PINNED_NO_HUGE_PAGES: u64 = 1;
/// Bind the memory to `numa_node`.
pub const KVMEM_PINNED_NUMA_BIND: u64 = 2;
/// Make it of a memory file, so that it can be shared with other processes.
pub const KVMEM_PINNED_SHAREABLE: u64 = 4;

/// Asked after each chunk of a long allocation, within large chunks after each 512 MiB, on the calling
/// thread, with the bytes done and the bytes in all. Answers 0 to go on; any other value cancels. Must not
/// unwind.
pub type kvmem_progress_callback =
    Option<unsafe extern "C" fn(done: u64, total: u64, user_data: *mut c_void) -> i32>;

/// How to allocate page-locked host memory. All zeroes but struct_size and size is a good start.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_pinned_options {
    /// sizeof(kvmem_pinned_options)
    pub struct_size: usize,
    /// KVMEM_PINNED_* flags.
    pub flags: u64,
    /// Bytes, at least 1. In a layout's options 0: the layout says.
    pub size: u64,
    /// Bytes of one page lock, a multiple of the page size; 0 for 64 GiB. A copy of the driver's that
    /// reaches over the end of one fails; kvmem's own are cut there.
    pub chunk_size: u64,
    /// Who is asked between chunks; may be NULL. Not called for a layout.
    pub progress: kvmem_progress_callback,
    /// Handed to progress.
    pub user_data: *mut c_void,
    /// The GPU it serves: without KVMEM_PINNED_NUMA_BIND its pages come from that GPU's NUMA node while
    /// there are any.
    pub device: i32,
    /// The node KVMEM_PINNED_NUMA_BIND means; 0 without that flag.
    pub numa_node: u32,
    /// Threads that touch the pages; 0 for one a core, up to 8.
    pub threads: u32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_pinned_options);

/// How to allocate memory of a GPU.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_device_options {
    /// sizeof(kvmem_device_options)
    pub struct_size: usize,
    /// Must be 0.
    pub flags: u64,
    /// Bytes, at least 1. In a layout's options 0: the layout says.
    pub size: u64,
    /// The GPU, as CUDA_VISIBLE_DEVICES orders them.
    pub device: i32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_device_options);

/// Extents can be shared by fabric handle (KVMEM_SHARE_FABRIC), beside file descriptors. It can't be added
/// later.
pub const KVMEM_ELASTIC_FABRIC: u64 = 1;

/// How to reserve memory of a GPU that grows and shrinks.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_elastic_options {
    /// sizeof(kvmem_elastic_options)
    pub struct_size: usize,
    /// KVMEM_ELASTIC_FABRIC, or 0: extents can be shared by file descriptor where the GPU has them.
    pub flags: u64,
    /// The most bytes there may be; rounded up to whole extents. In a layout's options 0: the layout says.
    pub size: u64,
    /// Bytes of an extent, a multiple of the recommended granularity; 0 for 64 MiB. Growth costs by the
    /// extent. In a layout's options 0: the layout says.
    pub extent_size: u64,
    /// The GPU, as CUDA_VISIBLE_DEVICES orders them.
    pub device: i32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_elastic_options);

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
pub unsafe extern "C" fn kvmem_pinned_options_init(options: *mut kvmem_pinned_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_device_options_init(options: *mut kvmem_device_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_elastic_options_init(options: *mut kvmem_elastic_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Allocates host memory: page-aligned and zeroed.
///
/// @param options what to allocate
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK;
///         KVMEM_STATUS_INVALID_ARGUMENT: the options contradict each other, or the NUMA node does not exist;
///         KVMEM_STATUS_OUT_OF_MEMORY: more than the machine, the node or the control group can hold, unless
///         vm.overcommit_memory is 1; too few huge pages; RLIMIT_FSIZE with KVMEM_SYSTEM_SHAREABLE;
///         KVMEM_STATUS_UNSUPPORTED: huge pages are required, and the system does not offer them
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_system(
    options: *const kvmem_system_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (region, options) = unsafe { (Out::new(region)?, read(options)?) };
        region.set(Region::system(&system_config(&options)?)?.into());
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Creates or opens a file of fixed size. Its space is reserved and the page cache bypassed if the file
/// system supports it.
///
/// While the region exists, the file at a path is locked against other writers: opening it again fails with
/// KVMEM_STATUS_BUSY, in this process and in others. KVMEM_DISK_READ_ONLY needs no lock; KVMEM_DISK_NO_LOCK
/// takes none.
///
/// @param options what to create or open
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK;
///         KVMEM_STATUS_ALREADY_EXISTS: the file exists, and no flag says to open it;
///         KVMEM_STATUS_NOT_FOUND: its directory, or with KVMEM_DISK_OPEN_EXISTING the file, does not exist;
///         KVMEM_STATUS_BUSY: the file is open for writing already;
///         KVMEM_STATUS_INVALID_ARGUMENT: the options contradict each other, the path is not of a
///         regular file, or the existing file is empty and KVMEM_DISK_OPEN_EXISTING is given;
///         KVMEM_STATUS_OUT_OF_RANGE: the existing file is too small;
///         KVMEM_STATUS_OUT_OF_MEMORY: no space, a quota, RLIMIT_FSIZE, or no file descriptor;
///         KVMEM_STATUS_UNSUPPORTED: O_DIRECT is required, or the file is to be locked, and the file system
///         does not support it;
///         KVMEM_STATUS_PERMISSION_DENIED; KVMEM_STATUS_IO.
///         A call that fails removes the file that it created
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
        region.set(Region::disk(&unsafe { disk_config(&options) }?)?.into());
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Allocates host memory that GPUs reach by DMA: placed near the GPU, touched by several threads,
/// page-locked for all contexts and mapped.
///
/// @param options what to allocate
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is
///         not there; KVMEM_STATUS_INVALID_ARGUMENT for options that can't be; KVMEM_STATUS_OUT_OF_MEMORY,
///         also where the machine, the NUMA node it is bound to or the process's control group can't have
///         as much, which is asked before a page is touched, and then with the bytes asked and had;
///         KVMEM_STATUS_CANCELLED when progress said so; KVMEM_STATUS_CUDA. A failure leaves nothing
///         allocated
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_pinned(
    options: *const kvmem_pinned_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (region, options) = unsafe { (Out::new(region)?, read(options)?) };
        let user_data = options.user_data;
        // SAFETY: a callback that does not unwind, by contract.
        let ask = |ask: unsafe extern "C" fn(u64, u64, *mut c_void) -> i32, done, total| unsafe {
            ask(done, total, user_data)
        };
        let mut progress =
            |done, total| options.progress.is_none_or(|callback| ask(callback, done, total) == 0);
        region.set(Region::pinned(&pinned_config(&options)?, &mut progress)?.into());
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Allocates memory of a GPU. Its content is undefined.
///
/// @param options what to allocate
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is
///         not there; KVMEM_STATUS_OUT_OF_MEMORY with the bytes asked, free and of the GPU;
///         KVMEM_STATUS_INVALID_ARGUMENT; KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_device(
    options: *const kvmem_device_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (region, options) = unsafe { (Out::new(region)?, read(options)?) };
        region.set(Region::device(DeviceMemory::allocate(&device_config(&options)?)?).into());
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Reserves addresses of a GPU for memory that grows and shrinks. Nothing has memory yet:
/// kvmem_region_commit gives it.
///
/// @param options what to reserve
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is
///         not there, and for more than 16,777,216 extents; KVMEM_STATUS_INVALID_ARGUMENT, also for an
///         extent that is no multiple of the granularity, and a size that no address space has;
///         KVMEM_STATUS_OUT_OF_MEMORY where as many addresses are not free, or the host has no memory or
///         file descriptor for the control block, of 64 bytes and 4 an extent; KVMEM_STATUS_UNSUPPORTED for
///         a GPU without virtual memory management, and for KVMEM_ELASTIC_FABRIC where the driver, asked to
///         create and export some memory so, does not; KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_elastic(
    options: *const kvmem_elastic_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (region, options) = unsafe { (Out::new(region)?, read(options)?) };
        region.set(Region::elastic(&elastic_config(&options)?)?.into());
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}
