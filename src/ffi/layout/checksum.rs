// SPDX-License-Identifier: Apache-2.0
//! Checksums of blocks.

use crate::base::ensure;
use crate::ffi::common::{OutItems, borrow, call, deadline, items, kvmem_error, kvmem_status};
use crate::ffi::layout::kvmem_layout;
use crate::transfer::checksum;

/// Computes the CRC32C (Castagnoli, as in iSCSI) of blocks.
///
/// A checksum is of the elements of a block in the order of layers, outer slots, tokens and heads, without
/// padding. Blocks with the same content have the same checksum, whatever the kind, order, alignment or tier
/// of their layouts. In a layout with parts it is of all parts, in the order of their names. Nothing may
/// write to the blocks during the call: work on streams of the caller must have completed before.
///
/// @param blocks block ids, in any order
/// @param num_blocks number of block ids, at least 1
/// @param timeout_ns the call waits at most 200 ms longer
/// @param checksums receives one checksum per block, in the order of the ids; unchanged after a failure
/// @return KVMEM_STATUS_OUT_OF_RANGE: there is no such block
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote, and its owner can compute them
///         KVMEM_STATUS_INVALID_STATE: an elastic block has no memory; the context of adopted GPU memory was
///           destroyed; or a layout of objects or block storage has no agent
///         KVMEM_STATUS_TIMED_OUT: not all checksums were computed after `timeout_ns`; for objects, the
///           message has the first object that was being read and its store
///         any other status: how reading a file or GPU memory failed
///
/// Notes: host memory is read in place, by several threads if that is faster, and GPU memory by a kernel on
/// its GPU. Blocks of files, and of GPU memory that was opened for another GPU, are first copied to host
/// memory, 16 MiB or one block at a time; so are those of objects and block storage, by NIXL. After a
/// timeout, the buffer and what it holds of the layout are released when the read ends, and the layout if a
/// kernel reads it: keep adopted memory until its release callback. Blocks of the host that are read in place
/// are checked against the limit every 64 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_checksum(
    layout: *const kvmem_layout,
    blocks: *const u32,
    num_blocks: usize,
    timeout_ns: u64,
    checksums: *mut u32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        ensure!(num_blocks > 0, InvalidArgument, "num_blocks is 0; there is nothing to checksum");
        let checksums = OutItems::new(checksums, num_blocks, ("checksums", "num_blocks"))?;
        let blocks = items(blocks, num_blocks, ("blocks", "num_blocks"))?;
        let computed = checksum::of_blocks(borrow(scope, layout)?, blocks, deadline(timeout_ns))?;
        checksums.fill(computed.into_iter());
        Ok(())
    })
}
