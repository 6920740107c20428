// SPDX-License-Identifier: Apache-2.0
//! Regions of files.

use std::ffi::c_char;
use std::os::unix::ffi::OsStrExt;

use crate::base::{Result, ensure, fail};
use crate::ffi::common::{
    blob, borrow, call, call_new, check_flags, kvmem_blob, kvmem_error, kvmem_status, options, read, text,
};
use crate::ffi::region::kvmem_region;
use crate::region::{DirectIo, DiskConfig, OpenMode, Region};

/// Use the page cache, which I/O bypasses by default if possible (O_DIRECT).
pub const KVMEM_DISK_BUFFERED: u64 = 1;
/// Fail if the file system does not support O_DIRECT. Without this flag the page cache is used instead, and
/// the info of the region lacks KVMEM_REGION_DIRECT_IO.
pub const KVMEM_DISK_DIRECT_REQUIRED: u64 = 2;
/// Open the file at `path`, which must exist and not be empty.
pub const KVMEM_DISK_OPEN_EXISTING: u64 = 4;
/// Open the file at `path`, or create it if it is absent or empty.
pub const KVMEM_DISK_OPEN_OR_CREATE: u64 = 8;
/// With KVMEM_DISK_OPEN_EXISTING: open the file for reading. The region can only be the source of transfers.
/// It can be open while a writer has the file open.
pub const KVMEM_DISK_READ_ONLY: u64 = 16;
/// Do not lock the file against other writers: the caller excludes them.
pub const KVMEM_DISK_NO_LOCK: u64 = 32;

/// Options of kvmem_region_create_disk.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_disk_options {
    /// sizeof(kvmem_disk_options)
    pub struct_size: usize,
    /// Path of the file, which is the caller's: kvmem creates it, and deletes it only if the call that
    /// created it fails. NULL for a temporary file, which has no name, and is deleted with the region or the
    /// process.
    pub path: *const c_char,
    /// Bytes, at least 1; 0 with KVMEM_DISK_OPEN_EXISTING for the whole file.
    pub size: u64,
    /// KVMEM_DISK_* flags.
    pub flags: u64,
    /// Directory of a temporary file; NULL for $TMPDIR, or /tmp if that is not set.
    pub directory: *const c_char,
}
options!(kvmem_disk_options);

/// Creates or opens a file of fixed size. Space is reserved and the page cache is bypassed if the file system
/// supports that. A call that fails leaves the file as it was before: absent or empty.
///
/// While the region exists, a named file is locked against other writers: opening it again fails with
/// KVMEM_STATUS_BUSY, in all processes. KVMEM_DISK_READ_ONLY and KVMEM_DISK_NO_LOCK lock nothing.
///
/// @return KVMEM_STATUS_ALREADY_EXISTS: the file exists, and no flag says to open it
///         KVMEM_STATUS_NOT_FOUND: the directory does not exist, or with KVMEM_DISK_OPEN_EXISTING the file
///         KVMEM_STATUS_BUSY: the file is already open for writing
///         KVMEM_STATUS_INVALID_ARGUMENT: the options contradict each other; the path is not a regular file;
///           or the file is empty and KVMEM_DISK_OPEN_EXISTING is set
///         KVMEM_STATUS_OUT_OF_RANGE: the existing file is too small
///         KVMEM_STATUS_OUT_OF_MEMORY: no space, a quota, or RLIMIT_FSIZE; or the file is on tmpfs, and
///           exceeds the memory of the machine or of the control group
///         KVMEM_STATUS_UNSUPPORTED: the file system does not support O_DIRECT, which is required, or locks
///         KVMEM_STATUS_PERMISSION_DENIED, KVMEM_STATUS_IO
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_disk(
    options: *const kvmem_disk_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (region, "region"), |_| {
        let options = read(options)?;
        Ok(Region::disk(&disk_config(&options)?)?.into())
    })
}

/// Returns the absolute path of the file of a disk region.
///
/// @return KVMEM_STATUS_NOT_FOUND: it is not on disk; or is temporary, from a share, renamed or unlinked
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_get_path(
    region: *const kvmem_region,
    path: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (path, "path"), |scope| {
        let found = borrow(scope, region)?.path()?;
        Ok(blob::value(found.as_os_str().as_bytes().to_vec()))
    })
}

/// Waits until the written data of a disk region is durable. Does nothing for other regions.
///
/// @return KVMEM_STATUS_IO, KVMEM_STATUS_OUT_OF_MEMORY: the data is not durable
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_sync(
    region: *const kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, region)?.sync())
}

/// The options of a file as core types.
///
/// # Safety
/// The paths must be NULL or NUL-terminated.
pub(in crate::ffi) unsafe fn disk_config(options: &kvmem_disk_options) -> Result<DiskConfig> {
    let known = KVMEM_DISK_BUFFERED
        | KVMEM_DISK_DIRECT_REQUIRED
        | KVMEM_DISK_OPEN_EXISTING
        | KVMEM_DISK_OPEN_OR_CREATE
        | KVMEM_DISK_READ_ONLY
        | KVMEM_DISK_NO_LOCK;
    check_flags("kvmem_disk_options", options.flags, known)?;
    let has = |flag| options.flags & flag != 0;
    let direct_io = match (has(KVMEM_DISK_BUFFERED), has(KVMEM_DISK_DIRECT_REQUIRED)) {
        (false, false) => DirectIo::Preferred,
        (false, true) => DirectIo::Required,
        (true, false) => DirectIo::Off,
        (true, true) => {
            fail!(InvalidArgument, "KVMEM_DISK_BUFFERED and KVMEM_DISK_DIRECT_REQUIRED exclude each other");
        }
    };
    let opening = match (has(KVMEM_DISK_OPEN_EXISTING), has(KVMEM_DISK_OPEN_OR_CREATE)) {
        (false, false) => OpenMode::Create,
        (true, false) => OpenMode::Existing,
        (false, true) => OpenMode::OpenOrCreate,
        (true, true) => {
            fail!(
                InvalidArgument,
                "KVMEM_DISK_OPEN_EXISTING and KVMEM_DISK_OPEN_OR_CREATE exclude each other"
            );
        }
    };
    ensure!(
        opening == OpenMode::Existing || !has(KVMEM_DISK_READ_ONLY),
        InvalidArgument,
        "KVMEM_DISK_READ_ONLY needs KVMEM_DISK_OPEN_EXISTING: a new file is there to be written"
    );
    let (path, directory) = (text::path(options.path), text::path(options.directory));
    ensure!(
        path.is_none() || directory.is_none(),
        InvalidArgument,
        "path and directory are both given; directory is for a temporary file, which has no path"
    );
    Ok(DiskConfig {
        size: options.size,
        path: path.map(Into::into),
        directory: directory.map(Into::into),
        direct_io,
        opening,
        read_only: has(KVMEM_DISK_READ_ONLY),
        no_lock: has(KVMEM_DISK_NO_LOCK),
        label: None,
    })
}
