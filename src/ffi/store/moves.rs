// SPDX-License-Identifier: Apache-2.0
//! Puts and gets.

use std::ffi::c_void;
use std::time::Duration;

use crate::base::{Result, ensure, fail};
use crate::ffi::common::{
    Out, Scope, borrow, call, check_flags, items, kvmem_error, kvmem_status, options, out, read,
    read_nullable, text, timeout,
};
use crate::ffi::layout::kvmem_layout;
use crate::ffi::store::keys::keys;
use crate::ffi::store::kvmem_store;
use crate::ffi::transfer::kvmem_transfer;
use crate::ffi::transfer::options::{kvmem_transfer_options, request};
use crate::store::Key;
use crate::transfer::TransferRequest;
use crate::transfer::stored::{Moved, StoredBlocks};

/// The keys of a put are not of one sequence: none is the parent of the next.
pub const KVMEM_STORE_UNRELATED: u64 = 1;

/// Blocks of a layout of the caller, and their keys in a store. Everything is copied.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_store_blocks {
    /// sizeof(kvmem_store_blocks)
    pub struct_size: usize,
    /// Keys, one after the other, in the order of the sequence. A key is a hash of all that its block depends
    /// on, so that blocks with the same key have the same bytes.
    pub keys: *const c_void,
    /// Bytes of each key, 16 to 64.
    pub key_size: usize,
    /// Number of keys, at least 1.
    pub num_keys: usize,
    /// Block ids in the layout, one for each key. If page_size of the layout is not that of the store: of all
    /// blocks that have tokens of the keys. Each key has the tokens of a slot.
    pub blocks: *const u32,
    /// Number of block ids: num_keys times page_size of the store, divided by that of the layout, rounded up.
    pub num_blocks: usize,
    /// For a put: key of the block before the first one, of key_size bytes; NULL if that begins a sequence.
    /// Each key is the parent of the next one. A block is not evicted before its children.
    pub parent: *const c_void,
    /// KVMEM_STORE_UNRELATED, for a put.
    pub flags: u64,
    /// Returned in the completion.
    pub user_data: u64,
    /// As in kvmem_submit_options. It includes the eviction of other blocks.
    pub run_timeout_ns: u64,
}
options!(kvmem_store_blocks);

/// Stores blocks under their keys, asynchronously, by a transfer.
///
///     status = kvmem_store_put(store, cache, NULL, &blocks, &transfer, &num_moved, &error);
///     if (status == KVMEM_STATUS_OK && transfer) status = kvmem_transfer_wait(transfer, timeout_ns, &error);
///
/// Blocks whose keys are stored, or are being stored by another put, are not moved: what is stored under a
/// key stays. The others are visible when the run has ended with KVMEM_STATUS_OK, and are then as durable as
/// the store promises. If it ends otherwise, none of them is visible; after its timeout they may become so
/// later. Nothing may write to the blocks until the run has ended.
///
/// @param source layout with the element size of the store, in any order and memory. Blocks that are no whole
///         slots, or that direct I/O cannot access, pass through host memory of kvmem
/// @param options queue, ranges and the like; NULL for none. The ranges have all layers, outer slots and
///         heads of the store; 0 if the layout has the same. Blocks that pass through memory of kvmem need a
///         method and flags of 0, except KVMEM_TRANSFER_REPORT_RELEASE
/// @param transfer receives the transfer, whose only run is in flight; the caller destroys it. NULL if
///         nothing is to be moved: then there is no completion. kvmem_transfer_poll, _wait, _cancel and the
///         queue report the run
/// @param num_moved receives the number of blocks that are moved
/// @return KVMEM_STATUS_BUSY: too few blocks can be evicted: the others are written, read or pinned, or
///         precede such blocks. None is evicted
///         KVMEM_STATUS_OUT_OF_RANGE: there are more keys than slots of the quota, or, without a namespace,
///           than slots that are in no quota and not retired; or the layout has no such block
///         KVMEM_STATUS_OUT_OF_MEMORY: with KVMEM_EVICTION_CALLER, too few slots are free; or, in a
///           namespace, too few are left, because slots are retired
///         KVMEM_STATUS_INVALID_ARGUMENT: a key is too short or too long; or the layouts differ
///         KVMEM_STATUS_TIMED_OUT: blocks were not evicted within `run_timeout_ns`
///         KVMEM_STATUS_PERMISSION_DENIED: the store is open for reading
///         KVMEM_STATUS_INVALID_STATE, KVMEM_STATUS_IO: the index cannot be written. Open the store again
///         any status of kvmem_transfer_start
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_store_put(
    store: *mut kvmem_store,
    source: *const kvmem_layout,
    options: *const kvmem_transfer_options,
    blocks: *const kvmem_store_blocks,
    transfer: *mut *mut kvmem_transfer,
    num_moved: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        start(transfer, num_moved, || {
            let (request, what) = (transfer_request(scope, options)?, stored_blocks(&read(blocks)?)?);
            let source = borrow(scope, source).map_err(|error| error.context("source"))?;
            borrow(scope, store)?.put(source, request, &what)
        })
    })
}

/// Moves the blocks of the first keys to a layout, up to the first key that is not stored, asynchronously, by
/// a transfer.
///
///     status = kvmem_store_get(store, cache, NULL, &blocks, &transfer, &num_moved, &error);
///     if (status == KVMEM_STATUS_OK && transfer) status = kvmem_transfer_wait(transfer, timeout_ns, &error);
///
/// Each block is compared with its checksum before the run ends. If blocks are damaged or cannot be read, the
/// run ends with KVMEM_STATUS_CORRUPT, and kvmem_transfer_get_mismatches returns their indices; all others
/// have arrived. These blocks are no longer stored, the store counts and logs them, and does not use their
/// slots again. Blocks that something else overwrites in the destination before they are compared, which
/// may be as soon as they arrive, end the run so, too, and stay stored. For a reader of the store, blocks
/// that its writer replaces meanwhile end the run so, too.
///
/// If a read fails, and the run is cancelled before the blocks are compared, the run ends with
/// KVMEM_STATUS_IO, and kvmem_transfer_get_mismatches returns all indices.
///
/// @param destination as `source` of kvmem_store_put. Nothing else may use the blocks until the run has ended
/// @param options as for kvmem_store_put, without KVMEM_TRANSFER_BY_LAYER: layers would be reported before
///         they are compared. The ranges may have some of the layers, outer slots and heads of the store
/// @param blocks its `parent` and `flags` must be 0
/// @param transfer as for kvmem_store_put; NULL if the first key is not stored
/// @param num_moved receives the number of keys that were found: the key with this index is missing
/// @return KVMEM_STATUS_INVALID_ARGUMENT: a key is too short or too long; or the layouts differ
///         KVMEM_STATUS_BUSY: for a reader, a process opens the store for writing at this moment
///         any status of kvmem_transfer_start
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_store_get(
    store: *mut kvmem_store,
    destination: *const kvmem_layout,
    options: *const kvmem_transfer_options,
    blocks: *const kvmem_store_blocks,
    transfer: *mut *mut kvmem_transfer,
    num_moved: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        start(transfer, num_moved, || {
            let blocks = read(blocks)?;
            let of_puts = [("parent", !blocks.parent.is_null()), ("flags", blocks.flags != 0)];
            if let Some((name, _)) = of_puts.into_iter().find(|(_, is_set)| *is_set) {
                fail!(
                    InvalidArgument,
                    "{name} of kvmem_store_blocks is set, which only a put uses; set it to 0"
                );
            }
            let (request, what) = (transfer_request(scope, options)?, stored_blocks(&blocks)?);
            let destination = borrow(scope, destination).map_err(|error| error.context("destination"))?;
            borrow(scope, store)?.get(destination, request, &what)
        })
    })
}

/// Passes what was started to the caller.
///
/// # Safety
/// Both outputs must be NULL or writable.
unsafe fn start(
    transfer: *mut *mut kvmem_transfer,
    num_moved: *mut usize,
    start: impl FnOnce() -> Result<Moved>,
) -> Result<()> {
    let (transfer, num_moved) = (Out::new(transfer, "transfer")?, out(num_moved, "num_moved")?);
    let moved = start()?;
    if let Some(started) = moved.transfer {
        transfer.set(started);
    }
    num_moved.write(moved.count);
    Ok(())
}

/// # Safety
/// Every pointer in the options must be NULL or valid.
unsafe fn transfer_request<'a>(
    scope: &Scope<'_>,
    options: *const kvmem_transfer_options,
) -> Result<TransferRequest<'a>> {
    let options = read_nullable(options)?;
    Ok(options.map(|options| request(scope, &options)).transpose()?.unwrap_or_default())
}

/// # Safety
/// Every pointer in the options must be NULL or valid.
unsafe fn stored_blocks<'a>(options: &kvmem_store_blocks) -> Result<StoredBlocks<'a>> {
    check_flags("kvmem_store_blocks", options.flags, KVMEM_STORE_UNRELATED)?;
    let are_related = options.flags & KVMEM_STORE_UNRELATED == 0;
    ensure!(
        are_related || options.parent.is_null(),
        InvalidArgument,
        "parent is set, and with KVMEM_STORE_UNRELATED no key has a parent; set it to NULL"
    );
    let keys = keys(options.keys, options.key_size, options.num_keys)?;
    let parent = match options.parent.is_null() {
        true => None,
        false => Some(Key::new(text::bytes(options.parent, options.key_size, "parent")?)?),
    };
    Ok(StoredBlocks {
        keys,
        blocks: items(options.blocks, options.num_blocks, ("blocks", "num_blocks"))?,
        parent,
        are_related,
        user_data: options.user_data,
        timeout: timeout(options.run_timeout_ns).filter(|limit| *limit > Duration::ZERO),
    })
}
