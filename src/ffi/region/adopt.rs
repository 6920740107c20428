// SPDX-License-Identifier: Apache-2.0
//! Adopting memory of the caller.

use std::ffi::c_void;

use crate::base::ensure;
use crate::ffi::common::{UserData, call_new, check_flags, kvmem_error, kvmem_status, options, read};
use crate::ffi::region::kvmem_region;
use crate::region::{Access, AdoptedDevice, AdoptedMemory, Region, ReleaseCallback};

/// Reports that kvmem no longer uses adopted memory, so that it can be freed. Called once, unless the call
/// that adopts it fails.
///
/// kvmem calls it on a dedicated thread, one release callback at a time. It may call any function of kvmem
/// and may block. It is called after the last handle, layout, registration, share and transfer that uses the
/// memory was destroyed or has ended, often after that function has returned.
///
/// Notes: callbacks pending at process exit may not be called. A forked child calls none of its parent's.
pub type kvmem_release_callback = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// Adopt host memory for reading. It may be mapped without PROT_WRITE. The region can only be the source of
/// transfers, and cannot be registered with an agent.
pub const KVMEM_ADOPT_READ_ONLY: u64 = 1;
/// kvmem_region_adopt_memfd: do not seal the file with F_SEAL_SHRINK.
pub const KVMEM_ADOPT_KEEP_SEALS: u64 = 2;

/// Memory of the caller to adopt.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_adopt_options {
    /// sizeof(kvmem_adopt_options)
    pub struct_size: usize,
    /// First byte. Host memory must be mapped with PROT_READ, and with PROT_WRITE unless
    /// KVMEM_ADOPT_READ_ONLY is set. It must stay mapped until release is called.
    pub address: *mut c_void,
    /// Bytes, at least 1.
    pub size: u64,
    /// KVMEM_ADOPT_READ_ONLY or 0.
    pub flags: u64,
    /// Called when kvmem no longer uses the memory; may be NULL.
    pub release: kvmem_release_callback,
    /// Passed to release.
    pub user_data: *mut c_void,
}
options!(kvmem_adopt_options);

/// Adopts host memory of the caller. kvmem never frees it.
///
/// If all of the memory is page-locked when a transfer gets its first blocks (cuMemHostRegister,
/// cuMemHostAlloc), GPUs use the page locks. There may be several, and a block may span two. If only a part
/// is page-locked, none is used. Page locks must not change while a transfer of the memory exists.
///
/// @return KVMEM_STATUS_INVALID_ARGUMENT: a part is not mapped, or lacks PROT_READ or PROT_WRITE
///         KVMEM_STATUS_IO, KVMEM_STATUS_NOT_FOUND: the kernel's list of mappings cannot be read
///
/// Notes: the check reads /proc/self/maps, which takes about a microsecond per mapping of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_adopt_host(
    options: *const kvmem_adopt_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (region, "region"), |_| {
        let options = read(options)?;
        ensure!(
            options.flags & KVMEM_ADOPT_KEEP_SEALS == 0,
            InvalidArgument,
            "flags contains KVMEM_ADOPT_KEEP_SEALS, a flag of kvmem_region_adopt_memfd; memory adopted by address has no seals"
        );
        check_flags("kvmem_adopt_options", options.flags, KVMEM_ADOPT_READ_ONLY)?;
        let access = access(options.flags);
        let release = options.release.map(|release| release_once(release, UserData(options.user_data)));
        let memory = AdoptedMemory::new(options.address as usize, options.size, access, release)?;
        Ok(Region::new(memory).into())
    })
}

/// Adopts GPU memory of the caller, such as a tensor. kvmem never frees it.
///
/// The driver confirms that all of it is memory of that GPU, and that the GPU may read and write it, or only
/// read it with KVMEM_ADOPT_READ_ONLY. It may span several allocations and VMM mappings. Adopt it again after
/// the access of a mapping has been reduced.
///
/// @param options the memory; its address is a device pointer
/// @return KVMEM_STATUS_INVALID_ARGUMENT: it is host, managed or freed memory, or of another GPU
///         KVMEM_STATUS_PERMISSION_DENIED: the GPU may not access it, or only read it
///         KVMEM_STATUS_OUT_OF_RANGE: the memory ends before the range
///
/// Notes: the memory is gone when its context is destroyed or reset; destroy the region before that.
/// Otherwise, transfers, checksums, shares and registrations of the region fail with
/// KVMEM_STATUS_INVALID_STATE before anything is accessed. A transfer in flight fails, and may destroy the
/// primary context of the GPU. Handles can be destroyed as usual, and release is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_adopt_device(
    options: *const kvmem_adopt_options,
    device: i32,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (region, "region"), |_| {
        let options = read(options)?;
        check_flags("kvmem_adopt_options", options.flags, KVMEM_ADOPT_READ_ONLY)?;
        let release = options.release.map(|release| release_once(release, UserData(options.user_data)));
        let memory =
            AdoptedDevice::new(options.address as u64, options.size, device, access(options.flags), release)?;
        Ok(Region::new(memory).into())
    })
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
        // SAFETY: by contract, a function that may be called once with this value.
        unsafe { release(user_data.0) };
    })
}
