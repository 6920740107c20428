// SPDX-License-Identifier: Apache-2.0
//! Stores: statistics, durability, checks, the end.

use std::ffi::c_char;

use crate::ffi::common::{
    blob, borrow, call, call_new, call_out, deadline, destroy, kvmem_blob, kvmem_error, kvmem_status, null,
    text,
};
use crate::ffi::store::kvmem_store;
use crate::ffi::store::open::{KVMEM_DURABILITY_NONE, KVMEM_DURABILITY_RELAXED, KVMEM_DURABILITY_STRICT};
use crate::store::Durability;
use crate::transfer::stored::describe;

/// Properties of a store with all its namespaces, or of one namespace, and what happened since it was opened.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_store_info {
    /// Slots, each for a block; of a namespace those of its quota.
    pub num_slots: u64,
    /// Blocks that are stored.
    pub num_stored: u64,
    /// Slots that are not used again, because their bytes were damaged; 0 for a namespace.
    pub num_retired: u64,
    /// Bytes of a slot.
    pub slot_size: u64,
    /// Keys that gets have found.
    pub num_hits: u64,
    /// Keys of gets that were not found: the first that is not stored, and all after it.
    pub num_misses: u64,
    /// Blocks that the store has evicted.
    pub num_evicted: u64,
    /// Blocks that could not be read, or whose bytes were not those that were stored.
    pub num_damaged: u64,
    /// KVMEM_DURABILITY_* value.
    pub durability: u32,
    /// 0.
    pub reserved: u32,
}

/// Returns the properties of a store. Waits for no file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_store_get_info(
    store: *const kvmem_store,
    info: *mut kvmem_store_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (info, "info"), |scope| {
        let store = borrow(scope, store)?;
        let counts = store.counts();
        Ok(kvmem_store_info {
            num_slots: counts.slots,
            num_stored: counts.stored,
            num_retired: counts.retired,
            slot_size: store.slot_size(),
            num_hits: counts.hits,
            num_misses: counts.misses,
            num_evicted: counts.evicted,
            num_damaged: counts.damaged,
            durability: match store.durability() {
                Durability::Strict => KVMEM_DURABILITY_STRICT,
                Durability::Relaxed => KVMEM_DURABILITY_RELAXED,
                Durability::None => KVMEM_DURABILITY_NONE,
            },
            reserved: 0,
        })
    })
}

/// Makes all blocks durable whose puts have ended, whatever the durability of the store. For a store that is
/// open for reading: reads what was stored since.
///
/// @param timeout_ns if the file system has not responded by then, the work goes on, unless an earlier call
///        still waits for it
/// @return KVMEM_STATUS_TIMED_OUT
///         KVMEM_STATUS_BUSY: for a reader, a process opens the store for writing at this moment
///         KVMEM_STATUS_INVALID_STATE, KVMEM_STATUS_IO, KVMEM_STATUS_OUT_OF_MEMORY: blocks may not be
///           durable. Open the store again
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_store_flush(
    store: *mut kvmem_store,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, store)?.flush(deadline(timeout_ns)))
}

/// Reads all blocks and compares them with their checksums. Removes those that are damaged, and does not use
/// their slots again. The handle of a store reads those of all namespaces, that of a namespace its own, of
/// which it also compares the tags if they are encrypted.
///
/// @param timeout_ns a later call continues where this one has ended
/// @param num_damaged receives the number of blocks that this call has removed
/// @return KVMEM_STATUS_TIMED_OUT: not all blocks were read
///         KVMEM_STATUS_BUSY: another call verifies the store
///         KVMEM_STATUS_PERMISSION_DENIED: the store is open for reading
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_store_verify(
    store: *mut kvmem_store,
    timeout_ns: u64,
    num_damaged: *mut u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (num_damaged, "num_damaged"), |scope| borrow(scope, store)?.verify(deadline(timeout_ns)))
}

/// Returns what a store is and contains, as text for people: its identity, shape, occupancy, age and damage,
/// a line for each. Reads its files, also while a process has it open, and changes nothing.
///
/// @param path folder of the store
/// @return KVMEM_STATUS_NOT_FOUND: there is no store
///         KVMEM_STATUS_CORRUPT, KVMEM_STATUS_VERSION_MISMATCH, KVMEM_STATUS_PERMISSION_DENIED,
///         KVMEM_STATUS_IO
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_store_describe(
    path: *const c_char,
    text: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (text, "text"), |_| {
        let path = text::path(path).ok_or_else(|| null("path"))?;
        Ok(blob::value(describe(path)?.into_bytes()))
    })
}

/// Destroys a store handle. The store is closed when no run of a put or get uses it; until then it cannot be
/// opened again. A handle of a namespace uses the store, too. With KVMEM_DURABILITY_RELAXED, call
/// kvmem_store_flush before: blocks that are not durable are lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_store_destroy(store: *mut kvmem_store) {
    destroy(store);
}
