// SPDX-License-Identifier: Apache-2.0
//! The layers of a run that have moved.

use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::borrow;
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::time::timeout;
use crate::ffi::transfer::kvmem_transfer;

/// Tells how many layers of the last run have moved, from the first on: their blocks may be used. Never
/// waits.
///
/// Without KVMEM_TRANSFER_BY_LAYER it is none until the run is over, and then all. After a run that failed it
/// is what had moved before.
///
/// @param transfer a transfer
/// @param num_layers gets how many
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK, also after a run that failed; KVMEM_STATUS_INVALID_STATE before the first submit
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

/// Waits until the first layers of the last run have moved: their blocks may be used while the others are
/// under way.
///
/// @param transfer a transfer, best one with KVMEM_TRANSFER_BY_LAYER; without, all layers have moved when the
///                 run is over
/// @param num_layers how many, counted from the first that is moved; 0 for all
/// @param timeout_ns nanoseconds to wait, or KVMEM_TIMEOUT_FOREVER
/// @param error gets the failure of the run or of the wait; may be NULL
/// @return KVMEM_STATUS_OK once they have moved, however the others fare; KVMEM_STATUS_OUT_OF_RANGE for more
///         than are moved; KVMEM_STATUS_TIMED_OUT; KVMEM_STATUS_INVALID_STATE before the first submit; or how
///         the run failed before they had moved, as kvmem_transfer_poll tells it
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
