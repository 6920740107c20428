// SPDX-License-Identifier: Apache-2.0
//! Opening and creating stores.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use crate::base::{Result, ensure, error, fail, lists};
use crate::ffi::common::{
    call_new, check_flags, deadline, ensure_given, items, kvmem_error, kvmem_status, not_one_of, options,
    read, text,
};
use crate::ffi::layout::config::{kvmem_layout_config, shape};
use crate::ffi::region::disk::{
    KVMEM_DISK_BUFFERED, KVMEM_DISK_DIRECT_REQUIRED, KVMEM_DISK_OPEN_EXISTING, KVMEM_DISK_READ_ONLY,
};
use crate::ffi::store::kvmem_store;
use crate::layout::{Arrangement, Dimensions};
use crate::region::DirectIo;
use crate::store::{Access, Durability, Policy};
use crate::transfer::stored::{OpenConfig, OpenStore};

/// What has ended is durable: a put ends after its blocks and the index are on the disk. Puts that end at the
/// same time share the writes of the index.
pub const KVMEM_DURABILITY_STRICT: u32 = 0;
/// Blocks become durable every `interval_ns`, and by kvmem_store_flush. Those that were put since are lost if
/// the process or the machine ends.
pub const KVMEM_DURABILITY_RELAXED: u32 = 1;
/// Blocks survive the process. After a loss of power any may be missing, or damaged, which a get detects.
pub const KVMEM_DURABILITY_NONE: u32 = 2;

/// The store evicts blocks when it needs slots: those without stored children first, the least recently used
/// of them first.
pub const KVMEM_EVICTION_STORE: u32 = 0;
/// The store evicts no block that a handle of it finds. A put fails with KVMEM_STATUS_OUT_OF_MEMORY if there
/// are not enough free slots.
pub const KVMEM_EVICTION_CALLER: u32 = 1;

/// A part of the identity of a store.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_store_value {
    /// Such as "model", "revision" or "dtype"; copied.
    pub name: *const c_char,
    /// Any bytes; copied.
    pub value: *const c_void,
    /// Bytes of the value, at most 2048. Give a hash of longer ones.
    pub value_size: usize,
}

/// Options of kvmem_store_open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_store_options {
    /// sizeof(kvmem_store_options)
    pub struct_size: usize,
    /// Folder of the store. It is created, but not its parents.
    pub path: *const c_char,
    /// Shape of the blocks, which belongs to the identity of the store. num_blocks is the number of slots; 0
    /// for that of an existing store, or for as many as `max_size` has space for. The order begins with B;
    /// NULL for KVMEM_ORDER_FULLY_CONTIGUOUS. All strides are 0, also if layouts in memory have others. An
    /// alignment of 0 is 4096 here, which direct I/O needs: slots of no multiple of that use the page cache.
    pub config: *const kvmem_layout_config,
    /// What the blocks contain. A store with another identity is not opened: the message has each name that
    /// differs, with both values.
    pub identity: *const kvmem_store_value,
    /// Number of values. All names and values together have less than 1 MiB.
    pub num_values: usize,
    /// Bytes of all slots of a new store, if num_blocks of the config is 0. An existing store keeps its size.
    pub max_size: u64,
    /// KVMEM_DURABILITY_* value; 0 for KVMEM_DURABILITY_STRICT.
    pub durability: u32,
    /// KVMEM_EVICTION_* value; 0 for KVMEM_EVICTION_STORE.
    pub eviction: u32,
    /// KVMEM_DISK_OPEN_EXISTING: fail if there is no store. KVMEM_DISK_READ_ONLY, with that: open it for
    /// reading, also while a process writes it; max_size, durability and eviction are then 0.
    /// KVMEM_DISK_BUFFERED, KVMEM_DISK_DIRECT_REQUIRED: how its file of blocks is accessed.
    pub flags: u64,
    /// With KVMEM_DURABILITY_RELAXED: nanoseconds after which blocks become durable. With
    /// KVMEM_DISK_READ_ONLY: after which kvmem_store_contains knows what was stored. 0 for one second.
    pub interval_ns: u64,
}
options!(kvmem_store_options);

/// Opens a store for writing, or creates it; with KVMEM_DISK_READ_ONLY opens one for reading.
///
/// One process writes a store, any number reads it. A process that ends, however it ends, can be followed by
/// another one that writes. A reader gets what is stored, and changes nothing: functions that change the
/// store fail with KVMEM_STATUS_PERMISSION_DENIED.
///
/// A store survives a crash at any point: each key that it has afterwards has exactly its bytes, and with
/// KVMEM_DURABILITY_STRICT no block is missing whose put had ended. docs/store.md has its files and promises.
///
/// @param timeout_ns if the file system has not responded by then, the store is closed when it is open. While
///        an earlier call for the folder still waits for it, nothing is done
/// @return KVMEM_STATUS_BUSY: the store is open for writing in a process, which the message names; or, for a
///           reader, a process opens it for writing at this moment
///         KVMEM_STATUS_INVALID_ARGUMENT: the store has another identity or shape (the message has the names
///           and both values); the order does not begin with B; a stride is given; or
///           KVMEM_DISK_DIRECT_REQUIRED is set and a slot has no multiple of 4096 bytes
///         KVMEM_STATUS_NOT_FOUND: the parent of the folder does not exist, or with KVMEM_DISK_OPEN_EXISTING
///           the store
///         KVMEM_STATUS_CORRUPT: a file of the store is missing, was truncated, or is of another store
///         KVMEM_STATUS_VERSION_MISMATCH: another version of kvmem has written it
///         KVMEM_STATUS_TIMED_OUT
///         any status of kvmem_region_create_disk
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_store_open(
    options: *const kvmem_store_options,
    timeout_ns: u64,
    store: *mut *mut kvmem_store,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (store, "store"), |_| OpenStore::open(config(&read(options)?)?, deadline(timeout_ns)))
}

/// # Safety
/// Every pointer in the options must be NULL or valid.
unsafe fn config(options: &kvmem_store_options) -> Result<OpenConfig> {
    let known =
        KVMEM_DISK_BUFFERED | KVMEM_DISK_DIRECT_REQUIRED | KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_READ_ONLY;
    check_flags("kvmem_store_options", options.flags, known)?;
    let has = [("path", !options.path.is_null()), ("config", !options.config.is_null())];
    ensure_given("kvmem_store_options", &has)?;
    let direct_io = match options.flags & (KVMEM_DISK_BUFFERED | KVMEM_DISK_DIRECT_REQUIRED) {
        0 => DirectIo::Preferred,
        KVMEM_DISK_BUFFERED => DirectIo::Off,
        KVMEM_DISK_DIRECT_REQUIRED => DirectIo::Required,
        _ => {
            return Err(error!(
                InvalidArgument,
                "KVMEM_DISK_BUFFERED and KVMEM_DISK_DIRECT_REQUIRED contradict each other; set one of them"
            ));
        }
    };
    let (dimensions, arrangement) = store_shape(&read(options.config)?, options.max_size)?;
    Ok(OpenConfig {
        path: text::path(options.path).map(Into::into).unwrap_or_default(),
        dimensions,
        arrangement,
        values: values(options)?,
        max_size: options.max_size,
        direct_io,
        must_exist: options.flags & KVMEM_DISK_OPEN_EXISTING != 0,
        policy: policy(options)?,
        interval: interval(options)?,
    })
}

fn policy(options: &kvmem_store_options) -> Result<Policy> {
    let durability = match options.durability {
        KVMEM_DURABILITY_STRICT => Durability::Strict,
        KVMEM_DURABILITY_RELAXED => Durability::Relaxed,
        KVMEM_DURABILITY_NONE => Durability::None,
        other => return Err(not_one_of("durability", other, "KVMEM_DURABILITY_*")),
    };
    let evicts = match options.eviction {
        KVMEM_EVICTION_STORE => true,
        KVMEM_EVICTION_CALLER => false,
        other => return Err(not_one_of("eviction", other, "KVMEM_EVICTION_*")),
    };
    let access = access(options)?;
    Ok(Policy { durability, evicts, access })
}

fn access(options: &kvmem_store_options) -> Result<Access> {
    if options.flags & KVMEM_DISK_READ_ONLY == 0 {
        return Ok(Access::Write);
    }
    ensure!(
        options.flags & KVMEM_DISK_OPEN_EXISTING != 0,
        InvalidArgument,
        "KVMEM_DISK_READ_ONLY needs KVMEM_DISK_OPEN_EXISTING: a new store is there to be written"
    );
    let of_writers = [
        ("durability", u64::from(options.durability)),
        ("eviction", options.eviction.into()),
        ("max_size", options.max_size),
    ];
    if let Some((name, value)) = of_writers.into_iter().find(|(_, value)| *value != 0) {
        fail!(
            InvalidArgument,
            "{name} is {value}, which only the writer of a store chooses; with KVMEM_DISK_READ_ONLY set durability, eviction and max_size to 0"
        );
    }
    Ok(Access::Read)
}

fn interval(options: &kvmem_store_options) -> Result<Duration> {
    ensure!(
        options.interval_ns == 0
            || options.durability == KVMEM_DURABILITY_RELAXED
            || options.flags & KVMEM_DISK_READ_ONLY != 0,
        InvalidArgument,
        "interval_ns is {}, which only KVMEM_DURABILITY_RELAXED and KVMEM_DISK_READ_ONLY use; set it to 0",
        options.interval_ns
    );
    Ok(match options.interval_ns {
        0 => Duration::from_secs(1),
        given => Duration::from_nanos(given),
    })
}

/// The shape of the blocks, with the defaults of a store. The number of blocks may be 0.
///
/// # Safety
/// As for [`shape`].
unsafe fn store_shape(config: &kvmem_layout_config, max_size: u64) -> Result<(Dimensions, Arrangement)> {
    ensure!(
        config.num_blocks == 0 || max_size == 0,
        InvalidArgument,
        "num_blocks is {} and max_size is {max_size}; set only one of the two",
        config.num_blocks
    );
    let with_defaults = kvmem_layout_config {
        num_blocks: config.num_blocks.max(1),
        order: match config.order.is_null() {
            true => c"BLONHC".as_ptr(),
            false => config.order,
        },
        alignment: if config.alignment == 0 { 4096 } else { config.alignment },
        ..*config
    };
    let (dimensions, arrangement) = shape(&with_defaults)?;
    Ok((Dimensions { num_blocks: config.num_blocks, ..dimensions }, arrangement))
}

/// # Safety
/// As for [`config`].
unsafe fn values(options: &kvmem_store_options) -> Result<Vec<(String, Vec<u8>)>> {
    let values = items(options.identity, options.num_values, ("identity", "num_values"))?;
    let value = |(index, value): (usize, &kvmem_store_value)| {
        let name = text::required(value.name, &format!("identity[{index}].name"))?;
        let bytes = text::bytes(value.value, value.value_size, &format!("identity[{index}].value"))?;
        Ok((name.to_string(), lists::copied(bytes)?))
    };
    values.iter().enumerate().map(value).collect()
}
