// SPDX-License-Identifier: Apache-2.0
//! Transfers on streams of the caller.

use crate::cuda::stream::CallerStream;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::borrow;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::transfer::kvmem_transfer;

/// A stream of the CUDA driver's: what it calls CUstream, and the runtime cudaStream_t.
pub struct CUstream_st {
    _opaque: (),
}

/// Starts a transfer on a stream: it begins when what is on the stream now is over, and what is put there
/// later finds the blocks moved. Its end is told as always, by poll, wait and queue. The call does not wait
/// for the stream, but for a path whose host memory is not page-locked: the driver copies from and to that
/// within the call.
///
/// While the stream is captured into a graph, the transfer becomes a part of the graph and does not run:
/// poll, wait and queue hear nothing of the graph's runs, and the transfer, both layouts and their memory
/// must outlive the graph.
///
/// Where the driver takes no mark behind the transfer, the run ends with that failure at once, its message
/// says so, and the library's own memory that it uses is never let go: memory of the caller's must stay until
/// the stream is past it.
///
/// What is put on the stream later does not wait for a verification, and must leave the blocks as they are
/// until the end is told.
///
/// @param transfer a transfer from or to GPU memory
/// @param stream a stream of the primary context of the destination's GPU, or of the source's where only that
///               is GPU memory. NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are those of the calling
///               thread's context, which must have one. The stream must be alive until this returns: the
///               driver can't tell one that was destroyed, and what it does with it is undefined
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK once it is on the stream: poll, wait and the queue report its end;
///         KVMEM_STATUS_INVALID_ARGUMENT for a stream of another context or GPU, or a default stream where no
///         context is current; KVMEM_STATUS_UNSUPPORTED for a transfer that
///         no GPU takes part in, or for a captured stream where it is verified; KVMEM_STATUS_INVALID_STATE
///         for a captured stream where the path can't be captured, blocks are elastic, or the capture was
///         invalidated, for elastic blocks without memory, and if the GPU was reset since the transfer was
///         created; KVMEM_STATUS_BUSY while it is in flight, or its staging memory is in use;
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread that watches copies on GPUs could not be started;
///         KVMEM_STATUS_CUDA where the driver answers otherwise for the stream
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_submit_on_stream(
    transfer: *mut kvmem_transfer,
    stream: *mut CUstream_st,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, transfer)?.submit_on(CallerStream::new(stream.cast()))) }
}

/// Has a stream wait for the last run: work that is put on the stream after this call begins when the layers
/// have moved. The host does not wait for that, only until the driver has the run. Where the run has not
/// begun, for want of what other transfers use, it begins with this call, before those that wait as well.
///
/// The stream goes on also when the run fails: whoever put work behind it asks kvmem_transfer_poll before
/// trusting the result.
///
/// @param transfer a transfer that the CUDA engine carries (KVMEM_PATH_CUDA_*), on a stream of its own or of
///                 a caller's, whose submission has returned
/// @param num_layers how many layers, counted from the first that is moved; 0 for the whole run. Without
///                   KVMEM_TRANSFER_BY_LAYER any number is the whole run
/// @param stream a stream as kvmem_transfer_submit_on_stream takes it, alive until this returns, and not
///         captured
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK once the stream waits, or nothing is left to wait for; KVMEM_STATUS_OUT_OF_RANGE
///         for more layers than are moved; KVMEM_STATUS_INVALID_ARGUMENT for a stream of another context or
///         GPU, or a default stream where no context is current; KVMEM_STATUS_INVALID_STATE before the first
///         submit, and for a captured stream; KVMEM_STATUS_CUDA where the driver answers otherwise for the
///         stream; KVMEM_STATUS_UNSUPPORTED while a run that no stream carries is under way (between host
///         memory, files and peers): wait for its layers by kvmem_transfer_wait_layers; KVMEM_STATUS_BUSY
///         while it has not begun because others use the staging memory: nothing waits then; or how the run
///         failed
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
