// SPDX-License-Identifier: Apache-2.0
//! Transfers on streams of the caller.

use crate::cuda::CallerStream;
use crate::ffi::common::{borrow, call, kvmem_error, kvmem_status};
use crate::ffi::transfer::kvmem_transfer;
use crate::ffi::transfer::submit::{kvmem_submit_options, step_or_prepared};

/// A stream of the CUDA driver. CUstream and cudaStream_t are pointers to it.
pub struct CUstream_st {
    _opaque: (),
}

/// Starts a run of a transfer on a stream of the caller, with new blocks or those of kvmem_transfer_prepare.
///
/// The transfer runs after the work that is on the stream now, and before work that is put on the stream
/// later. Poll, wait and queue report its end, as after kvmem_transfer_submit. The call does not wait for the
/// stream, unless host memory of the method is not page-locked: the driver then copies within the call.
///
/// While the stream is captured into a graph, the transfer becomes part of the graph and does not run. Poll,
/// wait and queue do not report runs of the graph. The transfer, both layouts and their memory must outlive
/// the graph. The graph keeps its blocks, also if the transfer gets other ones later; the memory of the
/// transfer grows with each list of blocks that is captured. If another method is better in a graph, or that
/// of the transfer cannot be captured, the graph takes the best one (kvmem_transfer_explain).
///
/// Between two calls of this function kvmem does not know of a capture of a non-blocking stream. Memory of a
/// GPU or pinned memory that is destroyed then, and the first preparation of a kind of copies, can invalidate
/// it. Do both before the capture begins; docs/streams.md lists the calls.
///
/// Later work on the stream does not wait for a verification. It must not change the blocks until its end.
///
/// @param options the blocks of the run; NULL: everything as it was prepared, or in the last run
/// @param stream a stream of the primary context of the destination's GPU, or of the source's GPU if only
///        that is GPU memory. NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are streams of the context that
///        is current on the calling thread, which must have one. The stream must exist until the call
///        returns: the driver does not detect destroyed streams, and their use is undefined
/// @return KVMEM_STATUS_OK: the transfer is on the stream
///         KVMEM_STATUS_INVALID_ARGUMENT: the stream is of another context or GPU, or is a default stream,
///           and no context is current
///         KVMEM_STATUS_UNSUPPORTED: no GPU takes part; or the stream is captured and the transfer verified
///         KVMEM_STATUS_INVALID_STATE: options is NULL, and the transfer has no blocks yet; the stream is
///           captured, and the caller has requested KVMEM_METHOD_CUDA_STAGED, blocks are elastic, or the
///           capture was invalidated; elastic blocks have no memory; or the GPU was reset since
///         KVMEM_STATUS_BUSY: the transfer is in flight (while a stream is captured, only if options is not
///           NULL), other transfers use the staging memory, or memory is in use as for kvmem_transfer_submit
///         KVMEM_STATUS_STALE: the owner of shared elastic blocks has decommitted them
///         any status of kvmem_transfer_prepare, if options is not NULL
///
/// Notes: if the completion event cannot be recorded, the run fails at once, and its message says so. The GPU
/// may then still move blocks: keep the memory of both layouts until the stream has passed the transfer.
/// kvmem intentionally leaks its own memory that the transfer uses. Other runs that write to the same blocks
/// fail with KVMEM_STATUS_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_submit_on_stream(
    transfer: *mut kvmem_transfer,
    options: *const kvmem_submit_options,
    stream: *mut CUstream_st,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let stream = CallerStream::new(stream.cast());
        borrow(scope, transfer)?.submit_on(step_or_prepared(options)?, stream)
    })
}

/// Makes a stream wait for layers of the last run.
///
/// Work that is put on the stream after this call begins when the layers have moved. The call does not wait
/// for the layers. It returns when the driver has the run: if the run has not begun, because many others are
/// in flight, the call starts it before other runs that wait.
///
/// The stream continues even if the run fails: call kvmem_transfer_poll before you use the results.
///
/// @param transfer a transfer by a KVMEM_METHOD_CUDA_* method, on any stream, whose submission has returned
/// @param num_layers number of layers, counted from the first that moves; 0: the whole run. Without
///        KVMEM_TRANSFER_BY_LAYER, any number means the whole run
/// @param stream a stream as for kvmem_transfer_submit_on_stream, which is not captured
/// @return KVMEM_STATUS_OK: the stream waits, or the layers have moved already
///         KVMEM_STATUS_OUT_OF_RANGE: the transfer moves fewer layers
///         KVMEM_STATUS_INVALID_ARGUMENT: the stream is of another context or GPU, or is a default stream,
///           and no context is current
///         KVMEM_STATUS_INVALID_STATE: the transfer was never submitted, or the stream is captured
///         KVMEM_STATUS_UNSUPPORTED: the method has no stream (between host memory, files and peers), and the
///           layers have not moved yet. Wait for them with kvmem_transfer_wait_layers
///         KVMEM_STATUS_BUSY: the run waits for staging memory of others; the stream does not wait
///         the status of the run: it has failed
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_wait_on_stream(
    transfer: *const kvmem_transfer,
    num_layers: u64,
    stream: *mut CUstream_st,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, transfer)?.wait_on(num_layers, CallerStream::new(stream.cast())))
}
