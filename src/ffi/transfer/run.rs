// SPDX-License-Identifier: Apache-2.0
//! Runs of transfers.

use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::{call, call_status};
use crate::ffi::common::handle::{Out, borrow};
use crate::ffi::common::options::read;
use crate::ffi::common::status::{KVMEM_STATUS_IN_PROGRESS, KVMEM_STATUS_OK, kvmem_status};
use crate::ffi::common::time::timeout;
use crate::ffi::layout::kvmem_layout;
use crate::ffi::transfer::kvmem_transfer;
use crate::ffi::transfer::options::{kvmem_transfer_options, request};
use crate::transfer::Transfer;

/// Checks, plans and prepares a transfer; moves nothing.
///
/// Blocks keep their content and may change their ids, layers and outer slots their numbers, and the two
/// layouts may be of different kinds and alignments. Blocks must be alike in page_size, inner_dim,
/// dtype_width, and in num_heads where both say it; in num_layers and outer_dim where no range is given.
/// Paths: host to host by memcpy; GPU memory and host or GPU memory by the CUDA driver, a kernel, or both,
/// whichever is expected to be fastest: kvmem_transfer_explain tells. Host and disk by io_uring where the
/// file is open for direct I/O and the kernel lets us, else by threads; NIXL's POSIX backend where `path`
/// asks for it, and an agent knows both layouts. GPU memory and disk through page-locked host memory; by NIXL
/// where an agent with a GDS backend knows both layouts, cuFile may not pass bytes through host memory, a
/// small transfer of its own was seen to work, and moves are large or flags leave no other way. Where `path`
/// asks for NIXL there cuFile may do as it likes, unless a flag says otherwise. Any memory and remote by
/// NIXL.
///
/// A transfer to disk is over when all bytes are written: with direct I/O to the device, else to the page
/// cache. kvmem_region_sync then makes them durable. A file that was cut short since its region was made ends
/// a transfer from it with KVMEM_STATUS_IO, and one there is no room for a transfer to it with
/// KVMEM_STATUS_OUT_OF_MEMORY.
///
/// What copies on a GPU need is made for the first of them, which takes longer, and kept as long as one of
/// the GPU's layouts.
///
/// @param source where the blocks come from
/// @param destination where they go
/// @param options which blocks
/// @param transfer gets the transfer; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for blocks that differ (with the field), a
///         destination named twice, memory that is read and written, also where a share of it is open more
///         than once (but not where the caller has mapped it a second time, and adopted that, nor where one
///         side is memory of a peer, which does not say what of it is mapped here), two agents, spans that
///         direct I/O does not take, or a staging_size too small for a piece;
///         KVMEM_STATUS_PERMISSION_DENIED for a destination that can only be read;
///         KVMEM_STATUS_OUT_OF_RANGE for a block, layer or outer slot that is not there;
///         KVMEM_STATUS_UNSUPPORTED for a pair of layouts without a path (with the way round it), or whose
///         path was refused by a flag, or can't be the one asked for, or that can't be verified;
///         KVMEM_STATUS_INVALID_STATE for a layout that no agent knows where NIXL is needed, and for memory
///         or page locks whose context was reset or destroyed; KVMEM_STATUS_STALE for a peer that was
///         invalidated
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_create(
    source: *const kvmem_layout,
    destination: *const kvmem_layout,
    options: *const kvmem_transfer_options,
    transfer: *mut *mut kvmem_transfer,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let (transfer, options) = (Out::new(transfer)?, read(options)?);
            let source = borrow(scope, source).map_err(|error| error.context("source"))?;
            let destination = borrow(scope, destination).map_err(|error| error.context("destination"))?;
            transfer.set(Transfer::create(source, destination, request(scope, &options)?)?);
            Ok(())
        })
    }
}

/// Starts a transfer; after it is over, starts it again. A host copy of up to 64 KiB is done when this
/// returns, unless it is verified.
///
/// If this fails, no run has started: the queue gets no completion, and poll and wait report the run before.
///
/// @param transfer a transfer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK once it is started: poll, wait and the queue report its end; KVMEM_STATUS_BUSY
///         while it is in flight; KVMEM_STATUS_INVALID_STATE for elastic blocks without memory, and if the
///         GPU was reset since the transfer was created; KVMEM_STATUS_STALE when its peer was invalidated;
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread that watches copies on GPUs could not be started
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_submit(
    transfer: *mut kvmem_transfer,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, transfer)?.submit()) }
}

/// Returns the state of the last run.
///
/// @param transfer a transfer
/// @param error gets the failure of the run; may be NULL
/// @return KVMEM_STATUS_OK when all bytes have moved; KVMEM_STATUS_IN_PROGRESS; KVMEM_STATUS_INVALID_STATE
///         before the first submit; or how it failed: then any part of the destination blocks may have been
///         written. KVMEM_STATUS_CORRUPT when all has moved, and blocks are not what `checksums` or
///         KVMEM_TRANSFER_VERIFY asks for; KVMEM_STATUS_CANCELLED when it was cancelled before all of it had
///         begun;
///         KVMEM_STATUS_OUT_OF_MEMORY: a thread for its I/O or verification could not be started;
///         KVMEM_STATUS_PEER_LOST when the peer's process has ended. Requests that NIXL cannot cancel keep
///         their memory until NIXL releases it. Until then submit fails with KVMEM_STATUS_BUSY
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_poll(
    transfer: *const kvmem_transfer,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call_status(error, |scope| {
            let over = borrow(scope, transfer)?.poll()?;
            Ok(over.map_or(KVMEM_STATUS_IN_PROGRESS, |()| KVMEM_STATUS_OK))
        })
    }
}

/// Waits for the last run. For a host copy, the waiting thread copies too, and checks the timeout after each
/// MiB. With more than 50 ms left it also makes the NIXL calls of a transfer over NIXL, in steps of up to 16
/// MiB, if no other thread makes them.
///
/// @param transfer a transfer
/// @param timeout_ns nanoseconds to wait, or KVMEM_TIMEOUT_FOREVER
/// @param error gets the failure of the run or of the wait; may be NULL
/// @return as kvmem_transfer_poll, but KVMEM_STATUS_TIMED_OUT while it is still in flight
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_wait(
    transfer: *const kvmem_transfer,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, transfer)?.wait(timeout(timeout_ns))) }
}

/// Cancels the parts of the last run that have not started. Never waits.
///
/// Started parts complete and keep their memory until then: copies on a stream, a chunk of a host copy, reads
/// and writes that the kernel has, requests that NIXL has. The run ends with KVMEM_STATUS_CANCELLED, or with
/// its normal status if all parts had started. Poll, wait and the queue report the end. Any part of the
/// destination blocks may have been written. May be called any number of times; does nothing after the end.
///
/// @param transfer a transfer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK: the run's own status reports the outcome; KVMEM_STATUS_INVALID_STATE before the
///         first submit
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_cancel(
    transfer: *mut kvmem_transfer,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, transfer)?.cancel()) }
}
