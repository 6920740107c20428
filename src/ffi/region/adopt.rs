// SPDX-License-Identifier: Apache-2.0
//! Taking memory of the caller's into use.

use std::ffi::c_void;

use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::Out;
use crate::ffi::common::handle::UserData;
use crate::ffi::common::options::check_flags;
use crate::ffi::common::options::init;
use crate::ffi::common::options::options;
use crate::ffi::common::options::read;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::region::kvmem_region;
use crate::region::{Access, AdoptedMemory, DeviceMemory, Region, ReleaseCallback};

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

/// Takes memory of a GPU that is the caller's into use, such as a tensor. It is never freed by kvmem. The
/// driver is asked whether all of it is memory of that GPU; it may span several allocations and VMM mappings.
///
/// Memory goes with the context that it was allocated in: destroy the region before that context is destroyed
/// or reset. After that, transfers, checksums, shares and registrations of it fail with
/// KVMEM_STATUS_INVALID_STATE before anything is touched. A transfer in flight fails, and may destroy the
/// GPU's primary context. Handles are destroyed as always, and release is called.
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

pub(super) fn access(flags: u64) -> Access {
    if flags & KVMEM_ADOPT_READ_ONLY != 0 { Access::Read } else { Access::ReadWrite }
}

pub(super) fn release_once(
    release: unsafe extern "C" fn(*mut c_void),
    user_data: UserData,
) -> ReleaseCallback {
    Box::new(move || {
        let user_data = &user_data;
        // SAFETY: a callback that does not unwind, by contract.
        unsafe { release(user_data.0) };
    })
}
