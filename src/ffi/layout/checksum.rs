// SPDX-License-Identifier: Apache-2.0
//! Checksums of blocks.

use crate::error::ensure;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::borrow;
use crate::ffi::common::pointer::{check_items, items};
use crate::ffi::common::status::kvmem_status;
use crate::ffi::layout::kvmem_layout;
use crate::transfer::checksum;

/// Computes the CRC32C (Castagnoli, as of iSCSI) of blocks: of each block's bytes, layer after layer, and in
/// a layer one outer slot after the other; padding has no part in it. Blocks of the same content have the
/// same checksum whatever kind, alignment or tier their layouts are of. Nobody may write to the blocks
/// meanwhile.
///
/// Host memory is read by threads where it lies, several of them where that is worth it, and GPU memory by a
/// kernel on its GPU. Blocks of files, and those of GPU memory that was opened for another GPU, are brought
/// to host memory before, 16 MiB or one block at a time. Returns when all is done; what is on streams of the
/// caller's must be over before.
///
/// @param layout a layout that is not remote
/// @param blocks block ids, in any order
/// @param num_blocks how many, at least 1
/// @param checksums gets one for each, in the order of the ids; untouched on failure
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer or no blocks;
///         KVMEM_STATUS_OUT_OF_RANGE for a block that is not there; KVMEM_STATUS_UNSUPPORTED for a remote
///         layout: its owner can compute them; KVMEM_STATUS_INVALID_STATE for elastic blocks without memory,
///         and for adopted memory of a GPU that went with its context; or how reading a file or GPU memory
///         failed
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_checksum(
    layout: *const kvmem_layout,
    blocks: *const u32,
    num_blocks: usize,
    checksums: *mut u32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            ensure!(num_blocks > 0, InvalidArgument, "num_blocks is 0; there is nothing to checksum");
            check_items(checksums, num_blocks, "checksums")?;
            let blocks = items(blocks, num_blocks, "blocks")?;
            let computed = checksum::of_blocks(borrow(scope, layout)?, blocks)?;
            std::ptr::copy_nonoverlapping(computed.as_ptr(), checksums, computed.len());
            Ok(())
        })
    }
}
