// SPDX-License-Identifier: Apache-2.0
//! The size of a transfer, and the reasons for its method.

use crate::base::error::{Error, Status};
use crate::ffi::common::blob::{self, kvmem_blob};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Out, borrow, destroy};
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::transfer::kvmem_transfer;
use crate::ffi::transfer::method::value_of;
use crate::transfer::Verdict;

/// Properties of a transfer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_transfer_info {
    /// Bytes to move.
    pub bytes: u64,
    /// Pieces: one per block, layer and outer slot; with block tables one per layer, outer slot and span of
    /// tokens that is within one block on both sides.
    pub num_pieces: u64,
    /// Contiguous ranges, after adjacent pieces were merged.
    pub num_moves: u64,
    /// Requests of NIXL, or reads or writes of a file; 0 for other methods.
    pub num_requests: u64,
    /// Nanoseconds of the last run that has ended, from submit to the end; 0 before.
    pub duration_ns: u64,
    /// KVMEM_METHOD_* value.
    pub method: u32,
    /// 0.
    pub reserved: u32,
}

/// Returns the properties of a transfer with the blocks that were prepared or submitted last.
///
/// @param transfer a transfer
/// @param info receives the properties
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_STATE: the transfer has no blocks yet
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_get_info(
    transfer: *const kvmem_transfer,
    info: *mut kvmem_transfer_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let info = out(info, "info")?;
            let transfer = borrow(scope, transfer)?;
            let summary = transfer.summary()?;
            info.write(kvmem_transfer_info {
                bytes: summary.bytes,
                num_pieces: summary.pieces,
                num_moves: summary.moves,
                num_requests: summary.requests,
                duration_ns: u64::try_from(transfer.duration().as_nanos()).unwrap_or(u64::MAX),
                method: value_of(transfer.method()?),
                reserved: 0,
            });
            Ok(())
        })
    }
}

/// Estimate of a transfer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_transfer_explanation {
    /// Contiguous ranges.
    pub num_moves: u64,
    /// Estimated throughput in bytes per second. It follows from
    /// - host copies: rates of the machine for long and for short ranges, which kvmem measures;
    /// - copies by a GPU: its copy rates (kvmem_cuda_get_copy_rates) and the number of contiguous ranges; for
    ///   its kernels also the lengths of the ranges on each side, with costs that were fitted on H200 hosts;
    /// - files, objects and peers: earlier runs of this process by the same method with the same file or
    ///   peer.
    pub bytes_per_second: u64,
    /// KVMEM_METHOD_* value.
    pub method: u32,
    /// 1 if the throughput is a typical value, because nothing was measured yet: 2 GB/s by direct I/O, 5 GB/s
    /// by the page cache, 0.2 GB/s for objects, and for peers what docs/nixl.md assumes for descriptors and
    /// bytes. Otherwise 0.
    pub assumed: u32,
}

/// Returns the method that a transfer uses for the blocks that were prepared or submitted last, its estimated
/// throughput, and why other methods are not used. Moves nothing.
///
/// @param transfer a transfer
/// @param explanation receives the estimate; may be NULL
/// @param text receives text for people: the loops over the moved elements, the bytes that are read in
///         excess, and a line per method that was compared, as docs/transfers.md explains; the caller
///         destroys the blob; may be NULL
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_STATE: the transfer has no blocks yet
///
/// Notes: the first call for a copy between host layouts measures the copy rate of the machine, which takes
/// some milliseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_explain(
    transfer: *const kvmem_transfer,
    explanation: *mut kvmem_transfer_explanation,
    text: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let text = if text.is_null() { None } else { Some(Out::new(text, "text")?) };
            let explained = borrow(scope, transfer)?.explain()?;
            if !explanation.is_null() {
                explanation.write(kvmem_transfer_explanation {
                    num_moves: explained.moves,
                    bytes_per_second: explained.bytes_per_second,
                    method: value_of(explained.method),
                    assumed: explained.assumed.into(),
                });
            }
            if let Some(text) = text {
                text.set(blob::value(explained.text.into_bytes()));
            }
            Ok(())
        })
    }
}

/// The transfer takes the method. The reason is a remark, or empty.
pub const KVMEM_CHOICE_USED: u32 = 1;
/// The method is possible, and its estimate is no better. The reason is empty.
pub const KVMEM_CHOICE_SLOWER: u32 = 2;
/// The method is possible, and is not used for the given reason.
pub const KVMEM_CHOICE_NOT_USED: u32 = 3;
/// The method is not possible, and the reason says why.
pub const KVMEM_CHOICE_IMPOSSIBLE: u32 = 4;

/// A method that was compared with others for a transfer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_method_choice {
    /// Estimated throughput in bytes per second; 0 if unknown.
    pub bytes_per_second: u64,
    /// KVMEM_METHOD_* value.
    pub method: u32,
    /// KVMEM_CHOICE_* value.
    pub choice: u32,
}

/// Returns a method that was compared for a transfer, and why it is not used: what kvmem_transfer_explain
/// reports as text, for programs. Moves nothing.
///
/// @param transfer a transfer
/// @param index 0 for the method that the transfer takes; 1, 2 and so on for the others. Submitting other
///        pairs compares the methods again
/// @param choice receives the method and the outcome
/// @param reason receives the reason as text, which may be empty; the caller destroys the blob; may be NULL
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: fewer methods were compared
///         KVMEM_STATUS_INVALID_STATE: the transfer has no blocks yet
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_get_method_choice(
    transfer: *const kvmem_transfer,
    index: usize,
    choice: *mut kvmem_method_choice,
    reason: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let reason = if reason.is_null() { None } else { Some(Out::new(reason, "reason")?) };
            let choice = out(choice, "choice")?;
            let mut choices = borrow(scope, transfer)?.method_choices()?;
            if index >= choices.len() {
                let message = format!("index is {index}, and {} methods were compared", choices.len());
                return Err(Error::new(Status::OutOfRange, message));
            }
            let found = choices.swap_remove(index);
            choice.write(kvmem_method_choice {
                bytes_per_second: found.bytes_per_second,
                method: value_of(found.method),
                choice: match found.verdict {
                    Verdict::Used => KVMEM_CHOICE_USED,
                    Verdict::Slower => KVMEM_CHOICE_SLOWER,
                    Verdict::NotUsed => KVMEM_CHOICE_NOT_USED,
                    Verdict::Impossible => KVMEM_CHOICE_IMPOSSIBLE,
                },
            });
            if let Some(reason) = reason {
                reason.set(blob::value(found.reason.into_bytes()));
            }
            Ok(())
        })
    }
}

/// Destroys a transfer handle. A run in flight continues, keeps what it uses alive, and reports to its queue.
///
/// @param transfer a transfer that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_destroy(transfer: *mut kvmem_transfer) {
    // SAFETY: by contract.
    unsafe { destroy(transfer) };
}
