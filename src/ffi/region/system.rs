// SPDX-License-Identifier: Apache-2.0
//! Regions of host memory.

use crate::base::{Result, ensure};
use crate::ffi::common::{call_new, check_flags, kvmem_error, kvmem_status, options, read};
use crate::ffi::region::kvmem_region;
use crate::region::{HugePages, NumaPlacement, Region, SystemConfig};

/// Ask the kernel for transparent huge pages for a region of any size, and report their absence:
/// KVMEM_REGION_HUGE_PAGE_FALLBACK. Without this flag kvmem asks for them for regions of at least one huge
/// page (2 MiB on x86-64).
pub const KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES: u64 = 1;
/// Fail if the requested page size is not available. Without this flag smaller pages are used, and the info
/// of the region has KVMEM_REGION_HUGE_PAGE_FALLBACK.
pub const KVMEM_SYSTEM_HUGE_PAGES_REQUIRED: u64 = 2;
/// Bind the memory to `numa_node`.
pub const KVMEM_SYSTEM_NUMA_BIND: u64 = 4;
/// Allocate a memory file, so that other processes can share the region.
pub const KVMEM_SYSTEM_SHAREABLE: u64 = 8;
/// Use ordinary pages only. For memory of which small parts far from each other are accessed: with huge pages
/// the first access to a byte allocates 2 MiB.
pub const KVMEM_SYSTEM_NO_HUGE_PAGES: u64 = 16;
/// With KVMEM_SYSTEM_SHAREABLE: no other process can ever map the memory for writing, whatever it opens. It
/// can be shared with KVMEM_SHARE_READ_ONLY only.
pub const KVMEM_SYSTEM_WRITE_SEALED: u64 = 32;

/// Options of kvmem_region_create_system.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_system_options {
    /// sizeof(kvmem_system_options)
    pub struct_size: usize,
    /// Bytes, at least 1.
    pub size: u64,
    /// KVMEM_SYSTEM_* flags.
    pub flags: u64,
    /// Page size in bytes, from a reserved pool of the system (hugetlbfs), for example 2097152 or 1073741824;
    /// 0 for other pages. /sys/kernel/mm/hugepages lists them. With KVMEM_SYSTEM_NUMA_BIND all pages are
    /// touched before the call returns, because the kernel cannot reserve pages of a node.
    pub huge_page_size: u64,
    /// NUMA node of KVMEM_SYSTEM_NUMA_BIND; 0 without that flag.
    pub numa_node: u32,
    /// Threads that touch all pages before the call returns; 0: on first access.
    pub prefault_threads: u32,
}
options!(kvmem_system_options);

/// Allocates host memory. It is page-aligned and zeroed.
///
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the options contradict each other, or the NUMA node does not exist
///         KVMEM_STATUS_OUT_OF_MEMORY: too little memory of the machine, node or control group (not checked
///           if vm.overcommit_memory is 1), too few huge pages, or RLIMIT_FSIZE forbids a shareable region
///         KVMEM_STATUS_UNSUPPORTED: huge pages are required, and the system does not offer them
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_system(
    options: *const kvmem_system_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (region, "region"), |_| {
        let options = read(options)?;
        Ok(Region::system(&system_config(&options)?)?.into())
    })
}

/// The options of host memory as core types.
pub(in crate::ffi) fn system_config(options: &kvmem_system_options) -> Result<SystemConfig> {
    let known = KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES
        | KVMEM_SYSTEM_HUGE_PAGES_REQUIRED
        | KVMEM_SYSTEM_NUMA_BIND
        | KVMEM_SYSTEM_SHAREABLE
        | KVMEM_SYSTEM_NO_HUGE_PAGES
        | KVMEM_SYSTEM_WRITE_SEALED;
    check_flags("kvmem_system_options", options.flags, known)?;
    let has = |flag| options.flags & flag != 0;
    ensure!(
        has(KVMEM_SYSTEM_SHAREABLE) || !has(KVMEM_SYSTEM_WRITE_SEALED),
        InvalidArgument,
        "KVMEM_SYSTEM_WRITE_SEALED needs KVMEM_SYSTEM_SHAREABLE: other memory cannot be shared"
    );
    let huge_pages = requested_pages(options)?;
    ensure!(
        options.numa_node == 0 || has(KVMEM_SYSTEM_NUMA_BIND),
        InvalidArgument,
        "numa_node is {}, and KVMEM_SYSTEM_NUMA_BIND is not set: set the flag, or set numa_node to 0",
        options.numa_node
    );
    Ok(SystemConfig {
        size: options.size,
        huge_pages,
        huge_pages_required: has(KVMEM_SYSTEM_HUGE_PAGES_REQUIRED),
        numa: has(KVMEM_SYSTEM_NUMA_BIND).then_some(NumaPlacement::Bind(options.numa_node)),
        prefault_threads: options.prefault_threads,
        shareable: has(KVMEM_SYSTEM_SHAREABLE),
        write_sealed: has(KVMEM_SYSTEM_WRITE_SEALED),
    })
}

fn requested_pages(options: &kvmem_system_options) -> Result<HugePages> {
    let has = |flag| options.flags & flag != 0;
    let pages = match (options.huge_page_size, has(KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES)) {
        (0, false) => HugePages::Default,
        (0, true) => HugePages::Transparent,
        (size, _) => HugePages::Reserved(size),
    };
    let asks = pages != HugePages::Default;
    ensure!(
        asks || !has(KVMEM_SYSTEM_HUGE_PAGES_REQUIRED),
        InvalidArgument,
        "KVMEM_SYSTEM_HUGE_PAGES_REQUIRED needs huge_page_size or KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES"
    );
    let refuses = has(KVMEM_SYSTEM_NO_HUGE_PAGES);
    ensure!(
        !(asks && refuses),
        InvalidArgument,
        "KVMEM_SYSTEM_NO_HUGE_PAGES excludes huge_page_size and KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES"
    );
    Ok(if refuses { HugePages::Never } else { pages })
}
