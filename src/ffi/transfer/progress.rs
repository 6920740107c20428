// SPDX-License-Identifier: Apache-2.0
//! Waiting for the layers of a run.

use crate::ffi::common::{borrow, call, kvmem_error, kvmem_status, timeout};
use crate::ffi::transfer::kvmem_transfer;

/// Waits until the first layers of the last run have moved: their blocks can be used before the others.
///
/// @param transfer without KVMEM_TRANSFER_BY_LAYER, all layers have moved when the run has ended
/// @param num_layers number of layers, counted from the first that is moved; 0 for all
/// @return KVMEM_STATUS_OK: the layers have moved, whatever happens to the others
///         KVMEM_STATUS_OUT_OF_RANGE: the transfer moves fewer layers
///         any status of kvmem_transfer_poll: how the run failed before the layers had moved
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_wait_layers(
    transfer: *const kvmem_transfer,
    num_layers: u64,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, transfer)?.wait_layers(num_layers, timeout(timeout_ns)))
}
