// SPDX-License-Identifier: Apache-2.0
//! What a transfer does, and why it takes its path.

use crate::ffi::common::blob::{self, kvmem_blob};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Out, borrow, destroy};
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::transfer::kvmem_transfer;
use crate::ffi::transfer::path::value_of;

/// What a transfer does.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_transfer_info {
    /// Bytes it moves.
    pub bytes: u64,
    /// (block, layer, outer) units these are.
    pub num_pieces: u64,
    /// Stretches of memory these are after neighbours were joined.
    pub num_moves: u64,
    /// NIXL requests, or reads or writes of a file; 0 for others.
    pub num_requests: u64,
    /// Nanoseconds its last finished run took, from submit to the end; 0 before.
    pub duration_ns: u64,
    /// A KVMEM_PATH_* value.
    pub path: u32,
    /// 0.
    pub reserved: u32,
}

/// Tells what a transfer does.
///
/// @param transfer a transfer
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
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
            let summary = transfer.summary();
            info.write(kvmem_transfer_info {
                bytes: summary.bytes,
                num_pieces: summary.pieces,
                num_moves: summary.moves,
                num_requests: summary.requests,
                duration_ns: u64::try_from(transfer.duration().as_nanos()).unwrap_or(u64::MAX),
                path: value_of(transfer.path()),
                reserved: 0,
            });
            Ok(())
        })
    }
}

/// What is expected of a transfer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_transfer_explanation {
    /// Stretches of memory it moves.
    pub num_moves: u64,
    /// Bytes a second that it is expected to move. Of GPU copies by the figures of the GPU
    /// (kvmem_cuda_get_copy_rates); of host copies by how fast this machine copies, which the first question
    /// measures within some milliseconds; of files and peers by what this process has moved on the same path
    /// from or to the same file or peer, lately and above all in large runs. Before the first, what is usual
    /// is assumed: 2 GB/s by direct I/O, 5 GB/s by the page cache, 5 GB/s between host memory and a peer's,
    /// 0.5 GB/s where one of them is a GPU's.
    pub bytes_per_second: u64,
    /// A KVMEM_PATH_* value.
    pub path: u32,
    /// 1 where bytes_per_second is assumed, not measured; else 0.
    pub assumed: u32,
}

/// Tells which path a transfer takes, what is expected of it, and why it takes no other. Moves nothing.
///
/// @param transfer a transfer
/// @param explanation gets the figures; may be NULL
/// @param text gets a blob of text for people, a line for each path that was weighed; the caller destroys it;
///             may be NULL
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK
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
            let text = if text.is_null() { None } else { Some(Out::new(text)?) };
            let explained = borrow(scope, transfer)?.explain();
            if !explanation.is_null() {
                explanation.write(kvmem_transfer_explanation {
                    num_moves: explained.moves,
                    bytes_per_second: explained.bytes_per_second,
                    path: value_of(explained.path),
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

/// Destroys a transfer handle. A run in flight continues, holds what it needs, and still reports to its
/// queue.
///
/// @param transfer a transfer that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_destroy(transfer: *mut kvmem_transfer) {
    // SAFETY: by contract.
    unsafe { destroy(transfer) };
}
