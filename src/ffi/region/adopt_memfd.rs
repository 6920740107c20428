// SPDX-License-Identifier: Apache-2.0
//! Adopting a part of a memory file of the caller.

use std::ffi::c_void;

use super::adopt::{
    KVMEM_ADOPT_KEEP_SEALS, KVMEM_ADOPT_READ_ONLY, access, kvmem_release_callback, release_once,
};
use super::kvmem_region;
use crate::ffi::common::{
    UserData, call_new, check_flags, check_reserved, ensure_given, kvmem_error, kvmem_status, open_fd,
    options, read,
};
use crate::region::{AdoptedFileConfig, AdoptedMemory, Region};

/// Part of a memory file to adopt.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_adopt_memfd_options {
    /// sizeof(kvmem_adopt_memfd_options)
    pub struct_size: usize,
    /// File from memfd_create, or on tmpfs or hugetlbfs, open with O_RDWR, or with O_RDONLY for
    /// KVMEM_ADOPT_READ_ONLY. kvmem opens it again, so the caller may close it after the call. Not 0, which
    /// is a field that was not set: duplicate a file that is open as fd 0 (dup).
    pub fd: i32,
    /// Must be 0.
    pub reserved: u32,
    /// Offset in the file in bytes, a multiple of its page size.
    pub offset: u64,
    /// Bytes, at least 1. The part must be within the file.
    pub size: u64,
    /// KVMEM_ADOPT_* flags.
    pub flags: u64,
    /// Address at which the caller has mapped this part of the file with MAP_SHARED. It must stay mapped
    /// until release is called. NULL: kvmem maps it, and unmaps it before it calls release.
    pub address: *mut c_void,
    /// Called when kvmem no longer uses the memory; may be NULL.
    pub release: kvmem_release_callback,
    /// Passed to release.
    pub user_data: *mut c_void,
}
options!(kvmem_adopt_memfd_options);

/// Adopts a part of a memory file of the caller, so that it can be shared with other processes.
///
/// The region is host memory like that of kvmem_region_adopt_host. kvmem_share_create_region and
/// kvmem_share_create_layout share it: importers map the same pages.
///
/// kvmem adds F_SEAL_SHRINK to the file, which then cannot be truncated: a process that accesses memory past
/// the end of a file gets SIGBUS. With KVMEM_ADOPT_KEEP_SEALS, and for a file that cannot be sealed (created
/// without MFD_ALLOW_SEALING, on tmpfs or hugetlbfs, or open with O_RDONLY), importers must trust all its
/// writers (KVMEM_OPEN_TRUST_OWNER). Do not truncate such a file while the region or an importer uses it.
///
/// @return KVMEM_STATUS_INVALID_ARGUMENT: fd is 0, not open, not open as the flags require, or not a memory
///           file; the file is sealed against writing; the offset is not a multiple of the page size; or the
///           memory at the address is not this part of the file, or lacks PROT_READ or PROT_WRITE
///         KVMEM_STATUS_OUT_OF_RANGE: the part is not within the file
///         KVMEM_STATUS_OUT_OF_MEMORY: no address space or huge pages
///         KVMEM_STATUS_BUSY: a process has a lease on the file (F_SETLEASE)
///         KVMEM_STATUS_IO, KVMEM_STATUS_NOT_FOUND: the kernel's list of mappings cannot be read
///
/// Notes: importers receive the file, and can access all of it, whatever part was adopted and shared. Any
/// process that can open the file for writing can change the bytes, whatever a share grants.
/// memfd_create creates files of mode 0777: change it to 0600 by fchmod before the memory is shared for
/// reading with processes of another user.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_adopt_memfd(
    options: *const kvmem_adopt_memfd_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (region, "region"), |_| {
        let options = read(options)?;
        let known = KVMEM_ADOPT_READ_ONLY | KVMEM_ADOPT_KEEP_SEALS;
        check_flags("kvmem_adopt_memfd_options", options.flags, known)?;
        let given = [("fd", options.fd != 0), ("size", options.size != 0)];
        ensure_given("kvmem_adopt_memfd_options", &given).map_err(|error| match options.fd {
            0 => error.followed_by("duplicate a file that is open as fd 0 (dup)"),
            _ => error,
        })?;
        check_reserved("kvmem_adopt_memfd_options", options.reserved)?;
        let release = options.release.map(|release| release_once(release, UserData(options.user_data)));
        let config = AdoptedFileConfig {
            file: open_fd(options.fd)?,
            offset: options.offset,
            size: options.size,
            address: options.address as usize,
            access: access(options.flags),
            keep_seals: options.flags & KVMEM_ADOPT_KEEP_SEALS != 0,
        };
        Ok(Region::new(AdoptedMemory::from_file(&config, release)?).into())
    })
}
