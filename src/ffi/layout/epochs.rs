// SPDX-License-Identifier: Apache-2.0
//! Epochs of blocks.

use std::sync::Arc;

use crate::ffi::common::{OutItems, borrow, borrow_nullable, call, items, kvmem_error, kvmem_status};
use crate::ffi::layout::kvmem_layout;
use crate::ffi::region::kvmem_region;

/// Gives each block an epoch, so that transfers from the layout, also in other processes, detect blocks that
/// this process has reused meanwhile.
///
///     status = kvmem_layout_create_epochs(layout, NULL, &error);
///     // when block 7 is freed or before it is filled again, and before it is published
///     const uint32_t block = 7;
///     uint64_t epoch = 0;
///     status = kvmem_layout_raise_epochs(layout, &block, 1, &epoch, &error);
///
/// The owner publishes the epoch of a block with its id, after the block is filled, and raises it before the
/// next byte of another use is written. A reader sets the published epochs in kvmem_submit_options. Export or
/// share the layout after this call, and get the metadata of its agent after it. Epochs of a part are not
/// those of the layout that it was combined to.
///
/// @param table region of host memory whose first 8 bytes per block become the epochs, in the order of block
///        ids, with the contents that it has. The caller may raise them itself, by an atomic increment and a
///        fence behind it. NULL: kvmem allocates a table of zeros
/// @return KVMEM_STATUS_ALREADY_EXISTS: the layout has epochs
///         KVMEM_STATUS_UNSUPPORTED: the layout or the region belongs to another process, or the region is
///           not host memory
///         KVMEM_STATUS_OUT_OF_RANGE: the region is too small
///         KVMEM_STATUS_INVALID_ARGUMENT: the region is not aligned to 8 bytes, or overlaps the blocks
///         KVMEM_STATUS_PERMISSION_DENIED: the region is read-only
///         any status of kvmem_region_register, if the layout has an agent
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_create_epochs(
    layout: *mut kvmem_layout,
    table: *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let table = borrow_nullable(scope, table)?.map(|table| Arc::clone(table));
        borrow(scope, layout)?.create_epochs(table)
    })
}

/// Adds 1 to the epochs of some blocks. Each read that expects their epochs before ends with
/// KVMEM_STATUS_STALE, unless it has ended. Never waits.
///
/// After the call, this process may write to the blocks, also by a GPU or another device.
///
/// @param blocks block ids; one that occurs twice is raised twice: its first epoch in `epochs` is over
/// @param epochs receives the new epochs, in the order of the ids; may be NULL
/// @return KVMEM_STATUS_OUT_OF_RANGE: there is no such block; no epoch was raised
///         KVMEM_STATUS_INVALID_STATE: the layout has no epochs
///         KVMEM_STATUS_UNSUPPORTED, KVMEM_STATUS_PERMISSION_DENIED: the layout belongs to another process
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_raise_epochs(
    layout: *const kvmem_layout,
    blocks: *const u32,
    num_blocks: usize,
    epochs: *mut u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let wanted = if epochs.is_null() { 0 } else { num_blocks };
        let epochs = OutItems::new(epochs, wanted, ("epochs", "num_blocks"))?;
        let raised =
            borrow(scope, layout)?.raise_epochs(items(blocks, num_blocks, ("blocks", "num_blocks"))?)?;
        epochs.fill(raised.into_iter());
        Ok(())
    })
}

/// Returns the current epochs of some blocks. Never waits.
///
/// The owner publishes them. They prove nothing to a reader: another use of a block may have begun.
///
/// @param blocks block ids
/// @param epochs receives the epochs, in the order of the ids
/// @return KVMEM_STATUS_OUT_OF_RANGE: there is no such block
///         KVMEM_STATUS_INVALID_STATE: the layout has no epochs
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_epochs(
    layout: *const kvmem_layout,
    blocks: *const u32,
    num_blocks: usize,
    epochs: *mut u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let epochs = OutItems::new(epochs, num_blocks, ("epochs", "num_blocks"))?;
        let current =
            borrow(scope, layout)?.read_epochs(items(blocks, num_blocks, ("blocks", "num_blocks"))?)?;
        epochs.fill(current.into_iter());
        Ok(())
    })
}
