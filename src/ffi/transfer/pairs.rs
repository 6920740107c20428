// SPDX-License-Identifier: Apache-2.0
//! Other blocks in every step: a transfer that is prepared once, and given new pairs with each submission.

use std::ffi::c_void;

use crate::error::Result;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::borrow;
use crate::ffi::common::options::{init, options, read};
use crate::ffi::common::pointer::items;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::text;
use crate::ffi::transfer::kvmem_transfer;
use crate::ffi::transfer::options::{checksums, kvmem_block_pair};
use crate::transfer::{BlockPair, Step};

/// The blocks of the next run of a prepared transfer, and what belongs to them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_submit_options {
    /// sizeof(kvmem_submit_options)
    pub struct_size: usize,
    /// The blocks, in any order; copied. No destination may be named twice.
    pub pairs: *const kvmem_block_pair,
    /// Number of pairs, at least 1.
    pub num_pairs: usize,
    /// Returned in the completion. 0 by default, whatever the transfer was created with.
    pub user_data: u64,
    /// Sent to the remote agent after the last byte has moved; copied. NULL with size 0 for none, not NULL
    /// with size 0 for an empty one. Needs a remote layout.
    pub notification: *const c_void,
    /// Bytes of the notification.
    pub notification_size: usize,
    /// CRC32C of each block after the run, one per pair; copied. NULL for none. See `checksums` of
    /// kvmem_transfer_options.
    pub checksums: *const u32,
}
options!(kvmem_submit_options);

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_submit_options_init(options: *mut kvmem_submit_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Gives a transfer new pairs, and starts it. This is the call for blocks that differ in every step: the
/// layouts, the layers and outer slots, the queue and the flags stay as they were when the transfer was
/// created.
///
///     kvmem_submit_options step;
///     kvmem_submit_options_init(&step, sizeof step);
///     step.pairs = pairs;
///     step.num_pairs = num_pairs;
///     step.user_data = request_id;
///     status = kvmem_transfer_submit_pairs(transfer, &step, &error);
///
/// The number of pairs may change with each call. The path is selected again for the new pairs.
/// kvmem_transfer_get_info and kvmem_transfer_explain then report the new pairs. kvmem_transfer_submit
/// repeats the last pairs, with the same user_data, notification and checksums.
///
/// One run of a transfer is in flight at a time. For several steps at the same time, use as many transfers.
///
/// If this fails, no run has started, and the transfer keeps the pairs that it had.
///
/// @param transfer a transfer
/// @param options the new pairs
/// @return KVMEM_STATUS_OK: the run has started. Poll, wait and the queue report its end
///         KVMEM_STATUS_BUSY: a run is in flight, or another thread is submitting the transfer
///         KVMEM_STATUS_INVALID_ARGUMENT: there is no pair, a destination is named twice, a block is read and
///           written, a notification has no remote agent to go to, or checksums are given for a transfer with
///           KVMEM_TRANSFER_VERIFY
///         KVMEM_STATUS_OUT_OF_RANGE: a layout has no such block
///         KVMEM_STATUS_UNSUPPORTED: no permitted path can move these blocks, or they can't be verified
///         the statuses of kvmem_transfer_create and kvmem_transfer_submit: creating or starting it failed
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_submit_pairs(
    transfer: *mut kvmem_transfer,
    options: *const kvmem_submit_options,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, transfer)?.submit_pairs(step(&read(options)?)?)) }
}

/// The step that options ask for.
///
/// # Safety
/// Every pointer in the options must be NULL or valid.
pub(in crate::ffi) unsafe fn step<'a>(options: &kvmem_submit_options) -> Result<Step<'a>> {
    // SAFETY: the caller's promise, for all below.
    unsafe {
        let message = text::bytes(options.notification, options.notification_size, "notification")?;
        Ok(Step {
            // The core's pair is laid out as C's is, field by field.
            pairs: items(options.pairs.cast::<BlockPair>(), options.num_pairs, "pairs")?,
            user_data: options.user_data,
            notification: (!options.notification.is_null()).then(|| message.to_vec()),
            checksums: checksums(options.checksums, options.num_pairs)?,
        })
    }
}
