// SPDX-License-Identifier: Apache-2.0
//! Options of new regions, checked and as the core has them.

use super::options::check_flags;
use super::region_create::*;
use super::text;
use crate::error::{Error, Result, Status, ensure};
use crate::region::{
    DeviceConfig, DirectIo, DiskConfig, ElasticConfig, HugePages, NumaPlacement, OpenMode, PinnedConfig,
    SystemConfig,
};

/// Those of host memory.
pub(super) fn system_config(options: &kvmem_system_options) -> Result<SystemConfig> {
    let known = KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES
        | KVMEM_SYSTEM_HUGE_PAGES_REQUIRED
        | KVMEM_SYSTEM_NUMA_BIND
        | KVMEM_SYSTEM_SHAREABLE;
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
        numa: has(KVMEM_SYSTEM_NUMA_BIND).then_some(NumaPlacement::Bind(options.numa_node)),
        prefault_threads: options.prefault_threads,
        shareable: has(KVMEM_SYSTEM_SHAREABLE),
    })
}

/// Those of a file.
///
/// # Safety
/// The paths must be NULL or NUL-terminated.
pub(super) unsafe fn disk_config(options: &kvmem_disk_options) -> Result<DiskConfig> {
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
            let message = "KVMEM_DISK_BUFFERED and KVMEM_DISK_DIRECT_REQUIRED exclude each other";
            return Err(Error::new(Status::InvalidArgument, message));
        }
    };
    let opening = match (has(KVMEM_DISK_OPEN_EXISTING), has(KVMEM_DISK_OPEN_OR_CREATE)) {
        (false, false) => OpenMode::Create,
        (true, false) => OpenMode::Existing,
        (false, true) => OpenMode::OpenOrCreate,
        (true, true) => {
            let message = "KVMEM_DISK_OPEN_EXISTING and KVMEM_DISK_OPEN_OR_CREATE exclude each other";
            return Err(Error::new(Status::InvalidArgument, message));
        }
    };
    ensure!(
        opening == OpenMode::Existing || !has(KVMEM_DISK_READ_ONLY),
        InvalidArgument,
        "KVMEM_DISK_READ_ONLY needs KVMEM_DISK_OPEN_EXISTING: a new file is there to be written"
    );
    // SAFETY: the caller's promise.
    let (path, directory) = unsafe { (text::path(options.path), text::path(options.directory)) };
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

/// Those of pinned memory.
pub(super) fn pinned_config(options: &kvmem_pinned_options) -> Result<PinnedConfig> {
    let known = KVMEM_PINNED_NO_HUGE_PAGES | KVMEM_PINNED_NUMA_BIND | KVMEM_PINNED_SHAREABLE;
    check_flags("kvmem_pinned_options", options.flags, known)?;
    ensure!(options.reserved == 0, InvalidArgument, "reserved is {}, it must be 0", options.reserved);
    let has = |flag| options.flags & flag != 0;
    ensure!(
        options.numa_node == 0 || has(KVMEM_PINNED_NUMA_BIND),
        InvalidArgument,
        "numa_node is {}, which means nothing without KVMEM_PINNED_NUMA_BIND",
        options.numa_node
    );
    Ok(PinnedConfig {
        size: options.size,
        ordinal: options.device,
        numa_node: has(KVMEM_PINNED_NUMA_BIND).then_some(options.numa_node),
        threads: options.threads,
        chunk: options.chunk_size,
        no_huge_pages: has(KVMEM_PINNED_NO_HUGE_PAGES),
        shareable: has(KVMEM_PINNED_SHAREABLE),
    })
}

/// Those of a GPU's memory.
pub(super) fn device_config(options: &kvmem_device_options) -> Result<DeviceConfig> {
    check_flags("kvmem_device_options", options.flags, 0)?;
    ensure!(options.reserved == 0, InvalidArgument, "reserved is {}, it must be 0", options.reserved);
    Ok(DeviceConfig { size: options.size, ordinal: options.device })
}

/// Those of elastic memory.
pub(super) fn elastic_config(options: &kvmem_elastic_options) -> Result<ElasticConfig> {
    check_flags("kvmem_elastic_options", options.flags, KVMEM_ELASTIC_FABRIC)?;
    ensure!(options.reserved == 0, InvalidArgument, "reserved is {}, it must be 0", options.reserved);
    Ok(ElasticConfig {
        size: options.size,
        extent_size: options.extent_size,
        alignment: 0,
        ordinal: options.device,
        fabric: options.flags & KVMEM_ELASTIC_FABRIC != 0,
    })
}
