// SPDX-License-Identifier: Apache-2.0
//! The size of a transfer, and the reasons for its method.

use std::ffi::c_char;

use crate::ffi::common::{
    OutItems, blob, borrow, call_new, call_out, destroy, kvmem_blob, kvmem_error, kvmem_status, text,
};
use crate::ffi::transfer::kvmem_transfer;
use crate::ffi::transfer::method::value_of;
use crate::transfer::{ComparedMethod, Verdict};

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
    /// Layers of the last run that have moved, counted from the first; 0 before the first run. Their blocks
    /// can be used. Without KVMEM_TRANSFER_BY_LAYER it is 0 until the run has ended. After a failed run it is
    /// the number of layers that had moved.
    pub layers_moved: u64,
    /// KVMEM_METHOD_* value.
    pub method: u32,
    /// 0.
    pub reserved: u32,
}

/// Returns the properties of a transfer with the blocks that were prepared or submitted last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_get_info(
    transfer: *const kvmem_transfer,
    info: *mut kvmem_transfer_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (info, "info"), |scope| {
        let transfer = borrow(scope, transfer)?;
        let summary = transfer.summary()?;
        let layers_moved = transfer.moved_layers()?;
        Ok(kvmem_transfer_info {
            bytes: summary.bytes,
            num_pieces: summary.pieces,
            num_moves: summary.moves,
            num_requests: summary.requests,
            duration_ns: u64::try_from(transfer.duration().as_nanos()).unwrap_or(u64::MAX),
            layers_moved,
            method: value_of(transfer.method()?),
            reserved: 0,
        })
    })
}

/// Returns why a transfer takes its method for the blocks that were prepared or submitted last, as text for
/// people: the loops over elements, the bytes read in excess, the estimate, a line per method that was
/// compared, and after a run the duration of each phase. docs/transfers.md explains them. Moves nothing.
///
/// Notes: the first call for a copy between host layouts, of this or of kvmem_transfer_get_methods, measures
/// the copy rate of the machine, which takes 25 to 70 ms on an idle one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_explain(
    transfer: *const kvmem_transfer,
    text: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (text, "text"), |scope| Ok(blob::value(borrow(scope, transfer)?.explain()?.into_bytes())))
}

/// The transfer takes the method. The reason is a remark, or empty.
pub const KVMEM_CHOICE_USED: u32 = 1;
/// The method is possible, its estimate is no better. The reason is empty.
pub const KVMEM_CHOICE_SLOWER: u32 = 2;
/// The method is not used for the given reason, and is possible as far as is known. If another method was
/// requested, agents of NIXL are not asked what they have.
pub const KVMEM_CHOICE_NOT_USED: u32 = 3;
/// The method is not possible, and the reason says why.
pub const KVMEM_CHOICE_IMPOSSIBLE: u32 = 4;

/// A method that was compared with others for a transfer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_compared_method {
    /// KVMEM_METHOD_* value.
    pub method: u32,
    /// KVMEM_CHOICE_* value.
    pub choice: u32,
    /// Estimated throughput in bytes per second; 0 if unknown. It follows from
    /// - host copies: rates of the machine for long and for short ranges, which kvmem measures;
    /// - copies by a GPU: its copy rates (kvmem_cuda_get_copy_rates) and the number of contiguous ranges; for
    ///   its kernels also the lengths of the ranges on each side, with costs that were fitted on H200 hosts;
    /// - files, objects and peers: earlier runs of this process by the same method with the same file or
    ///   peer.
    pub bytes_per_second: u64,
    /// 1 if the throughput is a typical value, because nothing was measured yet: 2 GB/s by direct I/O, 5 GB/s
    /// by the page cache, 0.2 GB/s for objects, and for peers as docs/nixl.md says. Otherwise 0.
    pub assumed: u32,
    /// 0.
    pub reserved: u32,
    /// Why the method is not used, or a remark on the one that is; may be empty. What does not fit is cut;
    /// kvmem_transfer_explain has all of it.
    pub reason: [c_char; 488],
}

/// Returns the methods that were compared for a transfer, for programs. Moves nothing.
///
///     kvmem_compared_method methods[11];
///     status = kvmem_transfer_get_methods(transfer, methods, 11, &count, &error);
///
/// The first is the method that the transfer takes. With other blocks the methods are compared again.
///
/// @param capacity the number of KVMEM_METHOD_* values is always enough
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_get_methods(
    transfer: *const kvmem_transfer,
    methods: *mut kvmem_compared_method,
    capacity: usize,
    count: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (count, "count"), |scope| {
        let methods = OutItems::new(methods, capacity, ("methods", "capacity"))?;
        let compared = borrow(scope, transfer)?.compared_methods()?;
        Ok(methods.fill(compared.iter().map(to_c)))
    })
}

fn to_c(compared: &ComparedMethod) -> kvmem_compared_method {
    kvmem_compared_method {
        method: value_of(compared.method),
        choice: match compared.verdict {
            Verdict::Used => KVMEM_CHOICE_USED,
            Verdict::Slower => KVMEM_CHOICE_SLOWER,
            Verdict::NotUsed => KVMEM_CHOICE_NOT_USED,
            Verdict::Impossible => KVMEM_CHOICE_IMPOSSIBLE,
        },
        bytes_per_second: compared.bytes_per_second,
        assumed: compared.assumed.into(),
        reserved: 0,
        reason: text::fixed(&compared.reason),
    }
}

/// Destroys a transfer handle. A run in flight continues, keeps what it uses alive, and reports to its queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_destroy(transfer: *mut kvmem_transfer) {
    destroy(transfer);
}
