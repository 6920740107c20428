// SPDX-License-Identifier: Apache-2.0
//! Transfers on streams of the caller.

use crate::cuda::stream::CallerStream;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::borrow;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::transfer::kvmem_transfer;

/// A stream of the CUDA driver: a CUstream, and a cudaStream_t of the runtime, is a pointer to it.
pub struct CUstream_st {
    _opaque: (),
}

/// Starts a run of a transfer on a stream. It begins after the work that is already on the stream, and work
/// that is put on the stream later begins after it. Poll, wait and the queue report its end.
///
/// The call does not wait for the stream, with one exception: if host memory on the path is not page-locked,
/// the driver copies it during the call.
///
/// If the stream is captured into a graph, the transfer becomes a part of the graph and does not run. Poll,
/// wait and the queue do not report runs of the graph. The transfer, both layouts and their memory must
/// outlive the graph.
///
/// @param transfer a transfer from or to GPU memory
/// @param stream a stream of the primary context of the destination's GPU, or of the source's if only that is
///         GPU memory; it must exist until the call returns, because the driver cannot recognize a destroyed
///         stream. NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are streams of the current context of the
///         calling thread
/// @return KVMEM_STATUS_OK: the run is on the stream
///         KVMEM_STATUS_INVALID_ARGUMENT: the stream belongs to another context or GPU, or it is a default
///           stream and no context is current
///         KVMEM_STATUS_UNSUPPORTED: no GPU takes part in the transfer; or the stream is captured and the
///           transfer is verified
///         KVMEM_STATUS_INVALID_STATE: the stream is captured, and the path cannot be captured, blocks are
///           elastic, or the capture was invalidated; an elastic block has no memory; or the GPU was reset
///           after the transfer was created
///         KVMEM_STATUS_BUSY: a run is in flight, or its staging memory is in use
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread that watches copies on GPUs could not be started
///         KVMEM_STATUS_STALE: the peer was invalidated
///         KVMEM_STATUS_CUDA: the driver reported another error for the stream
///
/// Notes: work that is put on the stream later does not wait for a verification. It must not write to the
/// blocks until the run has ended.
/// If the completion event cannot be recorded, the run fails at once, its message says so, and kvmem
/// intentionally leaks the buffers that the GPU may still use. Memory of the caller must then stay allocated
/// until the stream has passed the transfer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_submit_on_stream(
    transfer: *mut kvmem_transfer,
    stream: *mut CUstream_st,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, transfer)?.submit_on(CallerStream::new(stream.cast()))) }
}

/// Makes a stream wait for the last run of a transfer: work that is put on the stream after this call begins
/// when the layers have moved.
///
/// The host waits only until the driver has the run. If the run has not begun because other transfers use its
/// staging memory, this call makes it begin, before others that wait.
///
/// The stream continues even if the run fails: call kvmem_transfer_poll before using results of the work
/// behind the wait.
///
/// @param transfer a transfer on a KVMEM_PATH_CUDA_* path, on its own stream or on one of the caller, whose
///         submission has returned
/// @param num_layers number of layers, counted from the first that is moved; 0 for the whole run. Without
///         KVMEM_TRANSFER_BY_LAYER any number is the whole run
/// @param stream a stream as for kvmem_transfer_submit_on_stream, not captured
/// @return KVMEM_STATUS_OK: the stream waits, or there is nothing to wait for
///         KVMEM_STATUS_OUT_OF_RANGE: the transfer moves fewer layers
///         KVMEM_STATUS_INVALID_ARGUMENT: the stream belongs to another context or GPU, or it is a default
///           stream and no context is current
///         KVMEM_STATUS_INVALID_STATE: the transfer was never submitted, or the stream is captured
///         KVMEM_STATUS_UNSUPPORTED: a run that no stream carries is in flight (between host memory, files
///           and peers); use kvmem_transfer_wait_layers
///         KVMEM_STATUS_BUSY: the run has not begun because others use the staging memory. The stream does
///           not wait
///         KVMEM_STATUS_CUDA: the driver reported another error for the stream
///         any status of kvmem_transfer_poll: how the run failed
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
