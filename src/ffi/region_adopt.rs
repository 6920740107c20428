// SPDX-License-Identifier: Apache-2.0
//! Taking memory of the caller's into use.

use std::ffi::c_void;

use super::error::kvmem_error;
use super::guard::call;
use super::handle::{Out, UserData};
use super::options::{check_flags, init, options, read};
use super::region::kvmem_region;
use super::status::kvmem_status;
use super::vmm_handles::open_fd;
use crate::error::ensure;
use crate::region::{Access, AdoptedFileConfig, AdoptedMemory, DeviceMemory, Region, ReleaseCallback};

/// Reports that kvmem no longer uses adopted memory, so that it can be freed. Called once. Must not unwind.
///
/// kvmem calls it on a thread that does nothing else but call release callbacks, one at a time. It may call
/// every function of kvmem and may block: only further release callbacks wait for it. It is called after
/// the last handle, layout, registration, share and transfer that uses the memory was destroyed or has
/// ended, often after the destroying function returned. Callbacks still due when the process ends may not
/// be called. A forked child calls none of its parent's release callbacks.
pub type kvmem_release_callback = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// Host memory: adopt it to be read only. It may be mapped without PROT_WRITE; the region can only be a
/// source of transfers, and cannot be registered with an agent.
pub const KVMEM_ADOPT_READ_ONLY: u64 = 1;

/// Memory of the caller's to use.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_adopt_options {
    /// sizeof(kvmem_adopt_options)
    pub struct_size: usize,
    /// KVMEM_ADOPT_* flags; 0 for memory of a GPU.
    pub flags: u64,
    /// The first byte. Host memory: all of it must be mapped with PROT_READ. Without KVMEM_ADOPT_READ_ONLY it
    /// must also be mapped with PROT_WRITE. It must stay mapped until release is called.
    pub address: *mut c_void,
    /// Bytes, at least 1.
    pub size: u64,
    /// Called when kvmem no longer uses the memory; may be NULL.
    pub release: kvmem_release_callback,
    /// Passed to release.
    pub user_data: *mut c_void,
}
options!(kvmem_adopt_options);

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_adopt_options_init(options: *mut kvmem_adopt_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Adopts host memory of the caller. kvmem never frees it.
///
/// The kernel's list of mappings (/proc/self/maps) is read to check how the memory is mapped, which takes
/// about a microsecond for each mapping of the process.
///
/// If all of it is page-locked when a transfer is created (cuMemHostRegister, cuMemHostAlloc), GPUs use the
/// page locks. The memory may have several page locks, and a block may span two of them. If only a part is
/// page-locked, the memory is used as memory that is not. Page locks must stay as they are while a transfer
/// of the memory exists.
///
/// @param options the memory
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK;
///         KVMEM_STATUS_INVALID_ARGUMENT: some of the memory is not mapped, or lacks PROT_READ or PROT_WRITE;
///         KVMEM_STATUS_IO or KVMEM_STATUS_NOT_FOUND: the list cannot be read;
///         KVMEM_STATUS_OUT_OF_MEMORY: no file descriptor for the list, or no thread for the release
///         callback. After a failure, release is not called
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_adopt_host(
    options: *const kvmem_adopt_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (region, options) = unsafe { (Out::new(region)?, read(options)?) };
        check_flags("kvmem_adopt_options", options.flags, KVMEM_ADOPT_READ_ONLY)?;
        let access = access(options.flags);
        let release = options.release.map(|release| release_once(release, UserData(options.user_data)));
        let memory = AdoptedMemory::new(options.address as usize, options.size, access, release)?;
        region.set(Region::adopt(memory).into());
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// kvmem_region_adopt_file: does not add F_SEAL_SHRINK to the file's seals.
pub const KVMEM_ADOPT_KEEP_SEALS: u64 = 2;

/// A part of a memory file to adopt.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_adopt_file_options {
    /// sizeof(kvmem_adopt_file_options)
    pub struct_size: usize,
    /// KVMEM_ADOPT_* flags.
    pub flags: u64,
    /// Where in the file the memory starts, in bytes: a multiple of the page size of the file.
    pub offset: u64,
    /// Bytes, at least 1. The part must be within the file.
    pub size: u64,
    /// Where the caller has mapped this part of the file with MAP_SHARED. It must stay mapped until release is
    /// called. NULL: kvmem maps it, and unmaps it before it calls release.
    pub address: *mut c_void,
    /// Called when kvmem no longer uses the memory; may be NULL.
    pub release: kvmem_release_callback,
    /// Passed to release.
    pub user_data: *mut c_void,
    /// The file: one of memfd_create, or a file on tmpfs or hugetlbfs. Open with O_RDWR, or with O_RDONLY for
    /// KVMEM_ADOPT_READ_ONLY. kvmem keeps an open of its own, so the caller may close it after the call.
    pub fd: i32,
    /// 0.
    pub reserved: u32,
}
options!(kvmem_adopt_file_options);

/// Fills options with defaults. The caller sets fd and size.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_adopt_file_options_init(
    options: *mut kvmem_adopt_file_options,
    struct_size: usize,
) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Adopts a part of a memory file of the caller, so that it can be shared with other processes.
///
/// The region is host memory like that of kvmem_region_adopt_host. kvmem_share_create_region and
/// kvmem_share_create_layout share it: importers map the same pages.
///
/// kvmem adds F_SEAL_SHRINK to the file, which then cannot be truncated any more: a process that touches memory
/// behind the end of a file gets SIGBUS. With KVMEM_ADOPT_KEEP_SEALS, and for a file that cannot be sealed
/// (created without MFD_ALLOW_SEALING, on tmpfs or hugetlbfs, or open with O_RDONLY), importers must trust all
/// processes that may write the file, by KVMEM_OPEN_TRUST_OWNER. Do not truncate such a file while the region
/// or an importer uses it.
///
/// Any process that has the file descriptor or may open the file can change the bytes, whatever a share grants.
/// memfd_create creates files of mode 0777; fchmod them to 0600 before memory is shared to be read only with
/// processes of another user.
///
/// @param options the memory
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK.
///         KVMEM_STATUS_INVALID_ARGUMENT: the file descriptor is not open, not open as flags need it, or not of
///         a memory file; the file is sealed against writing; the offset is no multiple of the page size; or the
///         memory at the address is not this part of the file, or lacks PROT_READ or PROT_WRITE.
///         KVMEM_STATUS_OUT_OF_RANGE: the part is not within the file.
///         KVMEM_STATUS_OUT_OF_MEMORY: no address space, huge pages or file descriptor, or no thread for the
///         release callback.
///         KVMEM_STATUS_BUSY: a process holds a lease on the file (F_SETLEASE).
///         KVMEM_STATUS_IO or KVMEM_STATUS_NOT_FOUND: the list of mappings (/proc/self/maps) cannot be read.
///         After a failure, release is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_adopt_file(
    options: *const kvmem_adopt_file_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (region, options) = unsafe { (Out::new(region)?, read(options)?) };
        let known = KVMEM_ADOPT_READ_ONLY | KVMEM_ADOPT_KEEP_SEALS;
        check_flags("kvmem_adopt_file_options", options.flags, known)?;
        ensure!(options.reserved == 0, InvalidArgument, "reserved is {}, it must be 0", options.reserved);
        let release = options.release.map(|release| release_once(release, UserData(options.user_data)));
        let config = AdoptedFileConfig {
            // SAFETY: the caller keeps it open during the call, by contract.
            file: unsafe { open_fd(options.fd) }?,
            offset: options.offset,
            size: options.size,
            address: options.address as usize,
            access: access(options.flags),
            keep_seals: options.flags & KVMEM_ADOPT_KEEP_SEALS != 0,
        };
        region.set(Region::adopt(AdoptedMemory::of_file(&config, release)?).into());
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

fn access(flags: u64) -> Access {
    if flags & KVMEM_ADOPT_READ_ONLY != 0 { Access::Read } else { Access::ReadWrite }
}

/// Takes memory of a GPU that is the caller's into use, such as a tensor. It is never freed by kvmem. The
/// driver is asked whether all of it is memory of that GPU; it may span several allocations and VMM mappings.
///
/// Memory goes with the context that it was allocated in: destroy the region before that context is destroyed
/// or reset. After that, transfers, checksums, shares and registrations of it fail with
/// KVMEM_STATUS_INVALID_STATE before anything is touched. A transfer in flight fails, and may destroy the GPU's
/// primary context. Handles are destroyed as always, and release is called.
///
/// @param options the memory; its address is a device pointer
/// @param device the GPU it lies on, as CUDA_VISIBLE_DEVICES orders them
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_INVALID_ARGUMENT for host memory,
///         managed memory, memory that was freed, or memory of another GPU;
///         KVMEM_STATUS_OUT_OF_RANGE: the memory ends before the range;
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread for the release callback could not be started.
///         Release is not called after a failure
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_adopt_device(
    options: *const kvmem_adopt_options,
    device: i32,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (region, options) = unsafe { (Out::new(region)?, read(options)?) };
        check_flags("kvmem_adopt_options", options.flags, 0)?;
        let release = options.release.map(|release| release_once(release, UserData(options.user_data)));
        let memory = DeviceMemory::adopt(options.address as u64, options.size, device, release)?;
        region.set(Region::device(memory).into());
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

fn release_once(release: unsafe extern "C" fn(*mut c_void), user_data: UserData) -> ReleaseCallback {
    Box::new(move || {
        let user_data = &user_data;
        // SAFETY: a callback that does not unwind, by contract.
        unsafe { release(user_data.0) };
    })
}
