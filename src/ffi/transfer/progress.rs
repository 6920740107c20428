// SPDX-License-Identifier: Apache-2.0
//! The layers of a run that have moved.

use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::borrow;
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::time::timeout;
use crate::ffi::transfer::kvmem_transfer;

/// Returns how many layers of the last run have moved. The blocks of these layers, counted from the first,
/// can be used. Never waits.
///
/// Without KVMEM_TRANSFER_BY_LAYER the number is 0 until the run has ended, then that of all layers. After a
/// failed run it is the number of layers that had moved.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_get_layers(
    transfer: *const kvmem_transfer,
    num_layers: *mut u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let num_layers = out(num_layers, "num_layers")?;
            num_layers.write(borrow(scope, transfer)?.moved_layers()?);
            Ok(())
        })
    }
}

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
