// SPDX-License-Identifier: Apache-2.0
//! Submitting a transfer with new pairs, for engines that move other blocks in every step.

use std::ffi::c_void;

use crate::base::error::Result;
use crate::base::lists;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::borrow;
use crate::ffi::common::options::{options, read};
use crate::ffi::common::pointer::items;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::text;
use crate::ffi::transfer::kvmem_transfer;
use crate::ffi::transfer::options::{checksums, kvmem_block_pair, kvmem_block_table, limit, tables};
use crate::nixl::service_mail::ensure_sendable;
use crate::transfer::{BlockPair, Step};

/// Options of kvmem_transfer_submit_pairs: the blocks of the next run.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_submit_options {
    /// sizeof(kvmem_submit_options)
    pub struct_size: usize,
    /// Blocks, in any order; copied. Each destination may occur once. NULL if block tables are given.
    pub pairs: *const kvmem_block_pair,
    /// Number of pairs, at least 1; 0 if block tables are given.
    pub num_pairs: usize,
    /// Returned in the completion; 0 by default, whatever the transfer was created with.
    pub user_data: u64,
    /// Message to the remote agent; copied. NULL with size 0 for none; not NULL with size 0 for an empty one.
    /// Requires a remote layout. Sent after the last byte has moved and, if the run is verified, has been
    /// found right. A run that fails sends none, unless its deadline passes while the message is sent.
    pub notification: *const c_void,
    /// Bytes of the notification.
    pub notification_size: usize,
    /// Expected CRC32C of each block after the run, one per pair; copied. NULL for none. See `checksums` of
    /// kvmem_transfer_options.
    pub checksums: *const u32,
    /// Blocks and tokens in the source; NULL if pairs are given.
    pub source_table: *const kvmem_block_table,
    /// Blocks and tokens in the destination; NULL if pairs are given. No token may occur twice.
    pub destination_table: *const kvmem_block_table,
    /// Number of tokens that are moved by block tables, at least 1; 0 if pairs are given.
    pub num_tokens: u64,
    /// Nanoseconds that runs with these blocks may take; 0 for `timeout_ns` of the transfer;
    /// KVMEM_TIMEOUT_FOREVER for no limit. See `timeout_ns` of kvmem_transfer_options.
    pub timeout_ns: u64,
}
options!(kvmem_submit_options);

/// Starts a run of a transfer with new pairs or block tables. This is the call for blocks that differ in
/// every step: layouts, layers, outer slots, heads, queue and flags stay as they were when the transfer was
/// created.
///
///     const kvmem_submit_options step = {
///         .struct_size = sizeof step, .pairs = pairs, .num_pairs = num_pairs, .user_data = request_id,
///     };
///     status = kvmem_transfer_submit_pairs(transfer, &step, &error);
///
/// The number of pairs or tokens may change with each call, and so may the choice of pairs or tables. The
/// method is selected again for the new blocks; kvmem_transfer_get_info and kvmem_transfer_explain report
/// them. kvmem_transfer_submit repeats the last blocks, with the same user_data, notification, checksums and
/// limit. A transfer has one run in flight at a time; use as many transfers as there are steps at the same
/// time.
///
/// If the call fails, no run has started, and the transfer keeps its previous blocks.
///
/// @param transfer a transfer
/// @param options the new pairs or block tables
/// @return KVMEM_STATUS_OK: the run has started
///         KVMEM_STATUS_BUSY: a run of this transfer is in flight, or has ended and still uses its memory; or
///           one of another transfer or request has ended, as at its timeout_ns, and may still write to these
///           blocks. BUSY has precedence over other statuses
///         KVMEM_STATUS_INVALID_ARGUMENT: there are neither pairs nor tables, or both; a destination occurs
///           twice; memory is both read and written; pairs are given, and block sizes differ; a notification
///           has no remote agent; or checksums are set for a transfer with KVMEM_TRANSFER_VERIFY
///         KVMEM_STATUS_OUT_OF_RANGE: a layout has no such block, or a table is too short for the tokens
///         KVMEM_STATUS_UNSUPPORTED: no permitted method can move these blocks, they cannot be verified, or
///           tokens have separate regions, as for kvmem_transfer_create
///         any other status of kvmem_transfer_submit
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_submit_pairs(
    transfer: *mut kvmem_transfer,
    options: *const kvmem_submit_options,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, transfer)?.submit_pairs(step(&read(options)?)?)) }
}

/// The step as core types.
///
/// # Safety
/// Every pointer in the options must be NULL or valid.
pub(in crate::ffi) unsafe fn step<'a>(options: &kvmem_submit_options) -> Result<Step<'a>> {
    // SAFETY: the caller's promise, for all below.
    unsafe {
        let message = text::bytes(options.notification, options.notification_size, "notification")?;
        ensure_sendable(message)?;
        Ok(Step {
            // The pair of the core has the layout of C's pair, field by field.
            pairs: items(options.pairs.cast::<BlockPair>(), options.num_pairs, "pairs")?,
            tables: tables(
                [options.source_table, options.destination_table],
                options.num_tokens,
                options.num_pairs,
            )?,
            user_data: options.user_data,
            notification: (!options.notification.is_null()).then(|| lists::copied(message)).transpose()?,
            checksums: checksums(options.checksums, options.num_pairs)?,
            timeout: limit(options.timeout_ns),
        })
    }
}
