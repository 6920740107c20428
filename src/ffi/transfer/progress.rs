// SPDX-License-Identifier: Apache-2.0
//! Waiting for the layers of a run.

use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::borrow;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::time::timeout;
use crate::ffi::transfer::kvmem_transfer;

/// Waits until the first layers of the last run have moved. Their blocks can be used while the others are in
/// flight.
///
/// @param transfer a transfer with KVMEM_TRANSFER_BY_LAYER; without it, all layers have moved when the run
///         has ended
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
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, transfer)?.wait_layers(num_layers, timeout(timeout_ns))) }
}
