// SPDX-License-Identifier: Apache-2.0
//! What the check of a run has found.

use crate::base::{Result, error, fail};
use crate::ffi::common::{OutItems, borrow, call_out, kvmem_error, kvmem_status};
use crate::ffi::transfer::kvmem_transfer;

/// Returns which blocks differ after the last run, which has compared them: with KVMEM_SUBMIT_VERIFY, or
/// `checksums` or `epochs` of kvmem_submit_options. Never waits.
///
///     uint64_t different[64];
///     size_t count = 0;
///     if (status == KVMEM_STATUS_CORRUPT || status == KVMEM_STATUS_STALE)
///         status = kvmem_transfer_get_mismatches(transfer, different, 64, &count, &error);
///
/// A mismatch is the index of a pair, or, with block tables, of a moved token, counted from first_token on.
/// They are in ascending order, and all others have arrived. After KVMEM_STATUS_STALE they are the pairs, or
/// the indices of `source_table`, whose blocks have other epochs than expected, and others may not have
/// arrived. After a run that was not compared, or has ended with KVMEM_STATUS_OK, there are none. After a
/// served run that found a damaged chunk, pairs that had not moved by then are mismatches, too. There are
/// none if the peer does not let the blocks be read once more; then the message of the run says so.
///
/// @param capacity the number of pairs or tokens is always enough
/// @return KVMEM_STATUS_BUSY: the run is in flight
///         any status of kvmem_transfer_poll except KVMEM_STATUS_CORRUPT: how the run failed. After
///           KVMEM_STATUS_STALE that is returned only if the peer is stale, rather than blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_get_mismatches(
    transfer: *const kvmem_transfer,
    indices: *mut u64,
    capacity: usize,
    count: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (count, "count"), |scope| {
        let indices = OutItems::new(indices, capacity, ("indices", "capacity"))?;
        ended(borrow(scope, transfer)?.findings(|found| indices.fill(found.mismatches.iter().copied())))
    })
}

/// Returns the checksums that the last run has computed, with KVMEM_SUBMIT_CHECKSUM. Never waits.
///
///     const kvmem_submit_options offload = {.struct_size = sizeof offload, .pairs = pairs, .num_pairs = 2,
///                                           .flags = KVMEM_SUBMIT_CHECKSUM};
///     // after the run
///     status = kvmem_transfer_get_checksums(transfer, checksums, 2, &count, &error);
///
/// They are those of the blocks in the order of the pairs, and can be given to the run that moves the blocks
/// back, as `checksums` of kvmem_submit_options. After a run that has ended with KVMEM_STATUS_CORRUPT because
/// of its comparison, they are those of the destination.
///
/// @param capacity the number of pairs is enough
/// @return KVMEM_STATUS_BUSY: the run is in flight
///         KVMEM_STATUS_INVALID_STATE: the transfer was never submitted, or the last run has computed no
///           checksums: it was submitted without KVMEM_SUBMIT_CHECKSUM, or a damaged chunk has ended it
///         any status of kvmem_transfer_poll except KVMEM_STATUS_CORRUPT: how the run failed
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_get_checksums(
    transfer: *const kvmem_transfer,
    checksums: *mut u32,
    capacity: usize,
    count: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (count, "count"), |scope| {
        let checksums = OutItems::new(checksums, capacity, ("checksums", "capacity"))?;
        let found = borrow(scope, transfer)?.findings(|found| {
            found.checksums.as_ref().map(|computed| checksums.fill(computed.iter().copied()))
        });
        let Some(computed) = ended(found)? else {
            fail!(
                InvalidState,
                "the last run has computed no checksums; submit it with KVMEM_SUBMIT_CHECKSUM"
            )
        };
        Ok(computed)
    })
}

fn ended<T>(found: Result<Option<T>>) -> Result<T> {
    let in_flight = || error!(Busy, "the run is in flight; wait for its end first");
    found?.ok_or_else(in_flight)
}
