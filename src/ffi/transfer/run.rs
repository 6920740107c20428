// SPDX-License-Identifier: Apache-2.0
//! Runs of transfers.

use crate::base::Result;
use crate::ffi::common::guard::{call, call_status};
use crate::ffi::common::{
    KVMEM_STATUS_IN_PROGRESS, KVMEM_STATUS_OK, Scope, borrow, call_new, kvmem_error, kvmem_status, read,
    read_nullable, timeout,
};
use crate::ffi::layout::kvmem_layout;
use crate::ffi::transfer::kvmem_transfer;
use crate::ffi::transfer::options::{kvmem_transfer_options, request};
use crate::ffi::transfer::submit::{kvmem_submit_options, step};
use crate::transfer::Transfer;

/// Creates a transfer between two layouts. Moves nothing: kvmem_transfer_submit gets the blocks of a run.
///
/// A token keeps its elements, and may change its block, layers, outer slots and heads. The layouts may
/// differ in kind, order, strides, alignment, tier and num_blocks; elements that are stored in another order
/// are transposed. The layouts must be equal in dtype_width and in the number of elements per head; in
/// num_heads, num_layers and outer_dim if no range is given; and in page_size if runs move pairs rather than
/// block tables. A layout with num_heads 0 has as many heads as the other one. Both layouts stay in use until
/// the transfer is destroyed and its last run has ended.
///
/// The fastest method by estimation is used for the blocks of each run; kvmem_transfer_explain returns it,
/// and docs/transfers.md lists all methods.
///
/// @param options what is moved of each block, and how; NULL for whole blocks by the fastest method
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the layouts differ (the message has the field); the layouts have
///           different agents; or heads are selected, and a layout does not have num_heads
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such layer, outer slot or head
///         KVMEM_STATUS_NOT_FOUND: a name of `parts` is not that of a part of both layouts
///         KVMEM_STATUS_PERMISSION_DENIED: the destination can only be read
///         KVMEM_STATUS_UNSUPPORTED: no method connects the layouts (the message has an alternative), or the
///           requested method is not possible
///         KVMEM_STATUS_INVALID_STATE: the method needs an agent, and a layout has none
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_create(
    source: *const kvmem_layout,
    destination: *const kvmem_layout,
    options: *const kvmem_transfer_options,
    transfer: *mut *mut kvmem_transfer,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (transfer, "transfer"), |scope| created(scope, source, destination, options))
}

/// Creates a transfer and starts its first run, in one call.
///
/// If blocks move between the same layouts repeatedly, kvmem_transfer_submit of one transfer is faster: it
/// reuses the parts of the plan that depend on the layouts.
///
/// @param transfer receives the transfer, whose run is in flight; the caller destroys it. If the call fails,
///         no run has started, and the queue receives no completion
/// @return any status of kvmem_transfer_create and kvmem_transfer_submit
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_start(
    source: *const kvmem_layout,
    destination: *const kvmem_layout,
    options: *const kvmem_transfer_options,
    first: *const kvmem_submit_options,
    transfer: *mut *mut kvmem_transfer,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (transfer, "transfer"), |scope| {
        let step = step(&read(first)?)?;
        let created = created(scope, source, destination, options)?;
        created.submit(Some(step))?;
        Ok(created)
    })
}

/// Creates a transfer.
///
/// # Safety
/// Every pointer, also in the options, must be NULL or valid.
unsafe fn created(
    scope: &Scope<'_>,
    source: *const kvmem_layout,
    destination: *const kvmem_layout,
    options: *const kvmem_transfer_options,
) -> Result<Transfer> {
    let options = read_nullable(options)?;
    let source = borrow(scope, source).map_err(|error| error.context("source"))?;
    let destination = borrow(scope, destination).map_err(|error| error.context("destination"))?;
    let request = options.map(|options| request(scope, &options)).transpose()?;
    Transfer::create(source, destination, request.unwrap_or_default())
}

/// Returns the state of the last run. Never waits.
///
/// @return KVMEM_STATUS_OK: all blocks have moved
///         KVMEM_STATUS_IN_PROGRESS: the run is in flight
///         KVMEM_STATUS_CANCELLED: the run was cancelled before all its parts had started
///         KVMEM_STATUS_TIMED_OUT: the run was not complete after `run_timeout_ns`, or made no progress with
///           a peer for `stall_timeout_ns`. Submit fails with KVMEM_STATUS_BUSY while memory is in use
///         KVMEM_STATUS_CORRUPT: all blocks have moved, and a checksum differs
///         KVMEM_STATUS_IO: reading or writing a file failed, for example past the end of a truncated file
///         KVMEM_STATUS_OUT_OF_MEMORY: the file system is full, or no thread for I/O or verification starts
///         KVMEM_STATUS_PEER_LOST: the process of the peer has ended. Requests that NIXL cannot cancel use
///           their memory until NIXL releases them; until then submit fails with KVMEM_STATUS_BUSY
///         KVMEM_STATUS_NOT_FOUND: an object that is read, or its bucket, does not exist
///         any other status: how the run failed. Any part of the destination may have been written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_poll(
    transfer: *const kvmem_transfer,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_status(error, |scope| {
        let over = borrow(scope, transfer)?.poll()?;
        Ok(over.map_or(KVMEM_STATUS_IN_PROGRESS, |()| KVMEM_STATUS_OK))
    })
}

/// Waits for the end of the last run.
///
/// @return any status of kvmem_transfer_poll, and
///         KVMEM_STATUS_TIMED_OUT: the run is still in flight, and kvmem_transfer_poll returns
///           KVMEM_STATUS_IN_PROGRESS; or the run has ended with this status
///
/// Notes: the waiting thread takes part in a copy between host layouts, and checks the timeout after each
/// MiB. With KVMEM_TIMEOUT_FOREVER, and for a run without `run_timeout_ns`, it also makes the NIXL calls of a
/// run over NIXL, if no other thread makes them: such a call may not return. Otherwise the thread of the
/// agent makes them, and the wait ends in time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_wait(
    transfer: *const kvmem_transfer,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, transfer)?.wait(timeout(timeout_ns)))
}

/// Cancels the parts of the last run that have not started. Never waits.
///
/// The run ends with KVMEM_STATUS_CANCELLED, or as usual if all parts had started. Poll, wait and the queue
/// report the end. Started parts complete and use their memory until then: copies on a stream, a chunk of a
/// host copy, requests in the kernel or NIXL. Any part of the destination blocks may have been written.
///
/// @param transfer a transfer; cancelling again, or after the end of the run, does nothing
/// @return KVMEM_STATUS_OK: the status of the run reports the outcome
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_cancel(
    transfer: *mut kvmem_transfer,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, transfer)?.cancel())
}
