// SPDX-License-Identifier: Apache-2.0
//! How far transfers have come, and taking them back.

use crate::cuda::stream::CallerStream;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{borrow, out};
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::time::timeout;
use crate::ffi::transfer::run::{CUstream_st, kvmem_transfer};

/// Tells how many layers of the last run have moved, from the first on: their blocks may be used. Never waits.
///
/// Without KVMEM_TRANSFER_BY_LAYER it is none until the run is over, and then all. After a run that failed it is what
/// had moved before.
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

/// Waits until the first layers of the last run have moved: their blocks may be used while the others are under way.
///
/// @param transfer a transfer, best one with KVMEM_TRANSFER_BY_LAYER; without, all layers have moved when the run is
///                 over
/// @param num_layers how many, counted from the first that is moved; 0 for all
/// @param timeout_ns nanoseconds to wait, or KVMEM_TIMEOUT_FOREVER
/// @param error gets the failure of the run or of the wait; may be NULL
/// @return KVMEM_STATUS_OK once they have moved, however the others fare; KVMEM_STATUS_OUT_OF_RANGE for more than are
///         moved; KVMEM_STATUS_TIMED_OUT; KVMEM_STATUS_INVALID_STATE before the first submit; or how the run failed
///         before they had moved, as kvmem_transfer_poll tells it
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

/// Has a stream wait for the last run: work that is put on the stream after this call begins when the layers have
/// moved. The host does not wait for that, only until the driver has the run. Where the run has not begun, for want of
/// what other transfers use, it begins with this call, before those that wait as well.
///
/// The stream goes on also when the run fails: whoever put work behind it asks kvmem_transfer_poll before trusting the
/// result.
///
/// @param transfer a transfer that the CUDA engine carries (KVMEM_PATH_CUDA_*), on a stream of its own or of a
///                 caller's, whose submission has returned
/// @param num_layers how many layers, counted from the first that is moved; 0 for the whole run. Without
///                   KVMEM_TRANSFER_BY_LAYER any number is the whole run
/// @param stream a stream as kvmem_transfer_submit_on_stream takes it, alive until this returns, and not captured
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK once the stream waits, or nothing is left to wait for; KVMEM_STATUS_OUT_OF_RANGE for more
///         layers than are moved; KVMEM_STATUS_INVALID_ARGUMENT for a stream of another context or GPU, or a default
///         stream where no context is current; KVMEM_STATUS_INVALID_STATE before the first submit, and for a captured
///         stream; KVMEM_STATUS_CUDA where the driver answers otherwise for the stream; KVMEM_STATUS_UNSUPPORTED
///         while a run that no stream carries is under way (between host memory, files and peers): wait for its layers
///         by kvmem_transfer_wait_layers; KVMEM_STATUS_BUSY while it has not begun because others use the staging
///         memory: nothing waits then; or how the run failed
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_wait_on_stream(
    transfer: *const kvmem_transfer,
    num_layers: u64,
    stream: *mut CUstream_st,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| borrow(scope, transfer)?.wait_on(num_layers, CallerStream::new(stream.cast())))
    }
}

/// Cancels the parts of the last run that have not started. Never waits.
///
/// Started parts complete and keep their memory until then: copies on a stream, a chunk of a host copy, reads
/// and writes that the kernel has, requests that NIXL has. The run ends with KVMEM_STATUS_CANCELLED, or with
/// its normal status if all parts had started. Poll, wait and the queue report the end. Any part of the
/// destination blocks may have been written. May be called any number of times; does nothing after the end.
///
/// @param transfer a transfer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK: the run's own status reports the outcome; KVMEM_STATUS_INVALID_STATE before the
///         first submit
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_cancel(
    transfer: *mut kvmem_transfer,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, transfer)?.cancel()) }
}
