// SPDX-License-Identifier: Apache-2.0
//! Regions of page-locked host memory.

use std::ffi::c_void;

use crate::base::{Result, ensure};
use crate::ffi::common::{call_new, check_flags, check_reserved, kvmem_error, kvmem_status, options, read};
use crate::ffi::region::kvmem_region;
use crate::region::{PinnedConfig, Region};

/// Use ordinary pages only.
pub const KVMEM_PINNED_NO_HUGE_PAGES: u64 = 1;
/// Bind the memory to `numa_node`.
pub const KVMEM_PINNED_NUMA_BIND: u64 = 2;
/// Allocate a memory file, so that other processes can share the region.
pub const KVMEM_PINNED_SHAREABLE: u64 = 4;
/// With KVMEM_PINNED_SHAREABLE: as KVMEM_SYSTEM_WRITE_SEALED.
pub const KVMEM_PINNED_WRITE_SEALED: u64 = 8;

/// Reports the progress of a long allocation, in bytes. Called on the calling thread after each chunk, and
/// within large chunks after each 512 MiB. Returns 0 to continue; any other value cancels the allocation.
pub type kvmem_progress_callback =
    Option<unsafe extern "C" fn(done: u64, total: u64, user_data: *mut c_void) -> i32>;

/// Options of kvmem_region_create_pinned.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_pinned_options {
    /// sizeof(kvmem_pinned_options)
    pub struct_size: usize,
    /// Bytes, at least 1.
    pub size: u64,
    /// GPU that accesses the memory. Without KVMEM_PINNED_NUMA_BIND, its NUMA node is used while it has free
    /// pages.
    pub device: i32,
    /// Threads that touch the pages; 0 for one per core, at most 8.
    pub threads: u32,
    /// KVMEM_PINNED_* flags.
    pub flags: u64,
    /// NUMA node of KVMEM_PINNED_NUMA_BIND; 0 without that flag.
    pub numa_node: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Bytes per page lock, a multiple of the page size; 0 for 64 GiB. A copy by the driver that crosses two
    /// page locks fails; kvmem splits its own copies there.
    pub chunk_size: u64,
    /// Called between chunks; may be NULL. Not called for a layout.
    pub progress: kvmem_progress_callback,
    /// Passed to progress.
    pub user_data: *mut c_void,
}
options!(kvmem_pinned_options);

/// Allocates page-locked host memory: near the GPU, touched by several threads, page-locked and mapped for
/// all contexts. A failure leaves nothing allocated.
///
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the options contradict each other
///         KVMEM_STATUS_OUT_OF_MEMORY: the machine, the NUMA node or the control group has less memory. This
///           is checked before a page is touched; the message has the bytes requested and available
///         KVMEM_STATUS_CANCELLED: progress returned another value than 0
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_pinned(
    options: *const kvmem_pinned_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (region, "region"), |_| {
        let options = read(options)?;
        let user_data = options.user_data;
        // SAFETY: a callback that does not unwind, by contract.
        let ask = |ask: unsafe extern "C" fn(u64, u64, *mut c_void) -> i32, done, total| unsafe {
            ask(done, total, user_data)
        };
        let mut progress =
            |done, total| options.progress.is_none_or(|callback| ask(callback, done, total) == 0);
        Ok(Region::pinned(&pinned_config(&options)?, &mut progress)?.into())
    })
}

/// The options of pinned memory as core types.
pub(in crate::ffi) fn pinned_config(options: &kvmem_pinned_options) -> Result<PinnedConfig> {
    let known = KVMEM_PINNED_NO_HUGE_PAGES
        | KVMEM_PINNED_NUMA_BIND
        | KVMEM_PINNED_SHAREABLE
        | KVMEM_PINNED_WRITE_SEALED;
    check_flags("kvmem_pinned_options", options.flags, known)?;
    check_reserved("kvmem_pinned_options", options.reserved)?;
    let has = |flag| options.flags & flag != 0;
    ensure!(
        options.numa_node == 0 || has(KVMEM_PINNED_NUMA_BIND),
        InvalidArgument,
        "numa_node is {}, and KVMEM_PINNED_NUMA_BIND is not set: set the flag, or set numa_node to 0",
        options.numa_node
    );
    ensure!(
        has(KVMEM_PINNED_SHAREABLE) || !has(KVMEM_PINNED_WRITE_SEALED),
        InvalidArgument,
        "KVMEM_PINNED_WRITE_SEALED needs KVMEM_PINNED_SHAREABLE: other memory cannot be shared"
    );
    Ok(PinnedConfig {
        size: options.size,
        ordinal: options.device,
        numa_node: has(KVMEM_PINNED_NUMA_BIND).then_some(options.numa_node),
        threads: options.threads,
        chunk: options.chunk_size,
        no_huge_pages: has(KVMEM_PINNED_NO_HUGE_PAGES),
        shareable: has(KVMEM_PINNED_SHAREABLE),
        write_sealed: has(KVMEM_PINNED_WRITE_SEALED),
    })
}
