// SPDX-License-Identifier: Apache-2.0
//! Keys of a store: looked up, removed, pinned, listed.

use std::ffi::c_void;

use crate::base::{Result, ensure};
use crate::ffi::common::{
    OutItems, borrow, call, call_on, call_out, deadline, kvmem_error, kvmem_status, out, text,
};
use crate::ffi::store::kvmem_store;
use crate::store::{Entry, Key, Keys, NewBlock};

/// Returns for each of some keys whether it is stored. Waits for no file, and changes nothing, also not what
/// is evicted next.
///
/// @param keys keys, one after the other
/// @param key_size bytes of each key, 16 to 64
/// @param num_keys number of keys, at least 1
/// @param found receives 1 for each key that is stored, otherwise 0
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_store_contains(
    store: *const kvmem_store,
    keys: *const c_void,
    key_size: usize,
    num_keys: usize,
    found: *mut u8,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_on(store, error, |store| {
        let keys = self::keys(keys, key_size, num_keys)?;
        let mut found = OutItems::new(found, num_keys, ("found", "num_keys"))?;
        store.contains(keys, |is_stored| found.push(is_stored.into()));
        Ok(())
    })
}

/// Removes blocks. Keys that are not stored are no error.
///
/// @param keys keys, one after the other
/// @param key_size bytes of each key, 16 to 64
/// @param num_keys number of keys, at least 1
/// @param timeout_ns if the file system has not responded by then, the blocks are removed later, unless an
///        earlier call still waits for it
/// @param num_removed receives the number of blocks that were stored
/// @return KVMEM_STATUS_BUSY: a get reads one of the blocks; none is removed
///         KVMEM_STATUS_PERMISSION_DENIED: the store is open for reading
///         KVMEM_STATUS_TIMED_OUT
///         KVMEM_STATUS_OUT_OF_MEMORY: the file system is full. The blocks are removed in this process, and
///           in the index with the next change that can be written
///         KVMEM_STATUS_INVALID_STATE, KVMEM_STATUS_IO: the index cannot be written. The blocks are removed
///           in this process only
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_store_remove(
    store: *mut kvmem_store,
    keys: *const c_void,
    key_size: usize,
    num_keys: usize,
    timeout_ns: u64,
    num_removed: *mut u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (num_removed, "num_removed"), |scope| {
        borrow(scope, store)?.remove(self::keys(keys, key_size, num_keys)?, deadline(timeout_ns))
    })
}

/// Protects blocks from eviction, until kvmem_store_unpin, or until the store is closed.
///
/// @param keys keys, one after the other
/// @param key_size bytes of each key, 16 to 64
/// @param num_keys number of keys, at least 1
/// @param num_found receives the number of keys that are stored; the others are no error
/// @return KVMEM_STATUS_PERMISSION_DENIED: the store is open for reading
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_store_pin(
    store: *mut kvmem_store,
    keys: *const c_void,
    key_size: usize,
    num_keys: usize,
    num_found: *mut u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    pin(store, (keys, key_size, num_keys), num_found, error, true)
}

/// Ends the protection of blocks from eviction, however often they were pinned.
///
/// @param keys keys, one after the other
/// @param key_size bytes of each key, 16 to 64
/// @param num_keys number of keys, at least 1
/// @param num_found receives the number of keys that are stored; the others are no error
/// @return KVMEM_STATUS_PERMISSION_DENIED: the store is open for reading
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_store_unpin(
    store: *mut kvmem_store,
    keys: *const c_void,
    key_size: usize,
    num_keys: usize,
    num_found: *mut u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    pin(store, (keys, key_size, num_keys), num_found, error, false)
}

/// Protects blocks from eviction, or no longer.
///
/// # Safety
/// As for kvmem_store_pin.
unsafe fn pin(
    store: *mut kvmem_store,
    (keys, key_size, num_keys): (*const c_void, usize, usize),
    num_found: *mut u64,
    error: *mut *mut kvmem_error,
    is_pinned: bool,
) -> kvmem_status {
    call_out(error, (num_found, "num_found"), |scope| {
        borrow(scope, store)?.pin(self::keys(keys, key_size, num_keys)?, is_pinned)
    })
}

/// A block in a store.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_store_entry {
    /// Key, followed by zeros.
    pub key: [u8; 64],
    /// Key of the block before it, followed by zeros.
    pub parent: [u8; 64],
    /// Bytes of the key.
    pub key_size: u32,
    /// Bytes of the parent's key; 0 if it has none.
    pub parent_size: u32,
    /// CRC32C, as kvmem_layout_checksum computes it; in an encrypted namespace that of the encrypted bytes.
    pub checksum: u32,
    /// 1 if it is pinned, otherwise 0.
    pub is_pinned: u32,
    /// Its block id in the file of the store.
    pub slot: u64,
}

/// Returns stored blocks, in the order of their slots.
///
///     kvmem_store_entry entries[64];
///     size_t count = 0;
///     uint64_t slot = 0;
///     do {
///         status = kvmem_store_list(store, slot, entries, 64, &count, &error);
///         if (count > 0) slot = entries[count - 1].slot + 1;
///     } while (status == KVMEM_STATUS_OK && count == 64);
///
/// @param first_slot blocks in slots below that are left out
/// @param entries receives the blocks
/// @param capacity elements of entries, at least 1
/// @param count receives the number of blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_store_list(
    store: *const kvmem_store,
    first_slot: u64,
    entries: *mut kvmem_store_entry,
    capacity: usize,
    count: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let count = out(count, "count")?;
        ensure!(capacity > 0, InvalidArgument, "capacity is 0; give an array of at least one element");
        let mut entries = OutItems::new(entries, capacity, ("entries", "capacity"))?;
        borrow(scope, store)?
            .list(first_slot, capacity, |found, block| entries.push(entry(found, &block)))?;
        count.write(capacity - entries.left());
        Ok(())
    })
}

fn entry(found: &Entry, block: &NewBlock) -> kvmem_store_entry {
    let padded = |key: Option<&Key>| {
        let mut bytes = [0; 64];
        let key = key.map_or(&[][..], Key::bytes);
        bytes[..key.len()].copy_from_slice(key);
        (bytes, key.len() as u32)
    };
    let ((key, key_size), (parent, parent_size)) = (padded(Some(&block.key)), padded(block.parent.as_ref()));
    kvmem_store_entry {
        key,
        parent,
        key_size,
        parent_size,
        checksum: found.checksum,
        is_pinned: found.is_pinned.into(),
        slot: found.slot.into(),
    }
}

/// Keys of the caller.
///
/// # Safety
/// `keys` must be NULL or readable for all keys through the call.
pub(super) unsafe fn keys<'a>(keys: *const c_void, key_size: usize, num_keys: usize) -> Result<Keys<'a>> {
    ensure!(num_keys > 0, InvalidArgument, "num_keys is 0; give at least one key");
    ensure!(!keys.is_null(), InvalidArgument, "keys is NULL, and num_keys is {num_keys}");
    // Checked before the product of the two.
    Keys::new(&[], key_size)?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { text::bytes(keys, key_size.saturating_mul(num_keys), "keys")? };
    Keys::new(bytes, key_size)
}
