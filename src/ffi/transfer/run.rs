// SPDX-License-Identifier: Apache-2.0
//! Transfers.

use std::ffi::c_void;

use crate::cuda::stream::CallerStream;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::{call, call_status};
use crate::ffi::common::handle::{Handle, Out, borrow, destroy, opaque, out};
use crate::ffi::common::options::{init, options, read};
use crate::ffi::common::status::{KVMEM_STATUS_IN_PROGRESS, KVMEM_STATUS_OK, kvmem_status};
use crate::ffi::common::time::timeout;
use crate::ffi::layout::info::kvmem_layout;
use crate::ffi::queue::kvmem_queue;
use crate::ffi::transfer::path::value_of;
use crate::ffi::transfer::request::request;
use crate::transfer::{BlockPair, Transfer};

/// A move of blocks from one layout to another: checked, planned and prepared once, submitted as often as wanted. It
/// holds both layouts.
///
/// Threads: all functions on one transfer may run at once, except kvmem_transfer_destroy.
pub struct kvmem_transfer {
    handle: Handle<Transfer>,
}
opaque!(kvmem_transfer, Transfer, "transfer");

/// A stream of the CUDA driver's: what it calls CUstream, and the runtime cudaStream_t.
pub struct CUstream_st {
    _opaque: (),
}

/// A block and where it goes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_block_pair {
    /// Block id in the source layout.
    pub source: u32,
    /// Block id in the destination layout.
    pub destination: u32,
}
const _: () = assert!(size_of::<kvmem_block_pair>() == size_of::<BlockPair>());

/// Compute may run on the GPU meanwhile: what would slow it is not taken, or takes few CTAs.
pub const KVMEM_COMPUTE_MAY_RUN: u32 = 0;
/// Nothing computes on the GPU meanwhile: copies may take all of it.
pub const KVMEM_COMPUTE_IDLE: u32 = 1;

/// Refuse paths that put bytes anywhere between source and destination: staging memory, the driver's own where host
/// memory is not page-locked, or the page cache of a buffered file, whether kvmem or NIXL reads and writes it. No path to
/// a peer is left: what NIXL's backends do with the bytes on their way is not known.
pub const KVMEM_TRANSFER_ZERO_COPY: u64 = 1 << 0;
/// Refuse paths through host memory that is neither source nor destination, as all between a file and a GPU are but
/// GPUDirect Storage. No path to a peer is left either: see KVMEM_TRANSFER_ZERO_COPY.
pub const KVMEM_TRANSFER_NO_HOST_BOUNCE: u64 = 1 << 1;
/// Move the layers in order, and tell how many have moved: kvmem_transfer_get_layers, kvmem_transfer_wait_layers and
/// kvmem_transfer_wait_on_stream. Bytes that lie together in several layers are then moved a layer at a time, which
/// costs a transfer of small fully contiguous blocks some of its speed; kvmem_transfer_explain tells.
pub const KVMEM_TRANSFER_BY_LAYER: u64 = 1 << 2;
/// When all has moved, compare the CRC32C of each destination block with that of its source block, both of which must
/// stay as they are until the run is over; the source must not be remote. The run ends when they are compared, and
/// with KVMEM_STATUS_CORRUPT where they differ. See `checksums` for a comparison with what was known before.
pub const KVMEM_TRANSFER_VERIFY: u64 = 1 << 3;

/// What to move.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_transfer_options {
    /// sizeof(kvmem_transfer_options)
    pub struct_size: usize,
    /// KVMEM_TRANSFER_* flags.
    pub flags: u64,
    /// The blocks, in any order; copied. No destination may be named twice.
    pub pairs: *const kvmem_block_pair,
    /// How many, at least 1.
    pub num_pairs: usize,
    /// First layer in the source.
    pub source_layer: u64,
    /// First layer in the destination.
    pub destination_layer: u64,
    /// How many layers. 0 for all: then both first layers are 0, and both layouts have as many layers.
    pub num_layers: u64,
    /// First outer slot in the source: 0 for keys, 1 for values.
    pub source_outer: u64,
    /// First outer slot in the destination.
    pub destination_outer: u64,
    /// How many outer slots. 0 for all: then both first slots are 0, and both layouts have as many.
    pub num_outers: u64,
    /// Sent to the remote agent after the last byte has moved; copied. NULL with size 0 for none, not NULL with size
    /// 0 for an empty one. Needs a remote layout.
    pub notification: *const c_void,
    /// Its bytes.
    pub notification_size: usize,
    /// Where completions go; NULL for none.
    pub queue: *mut kvmem_queue,
    /// Comes back in completions.
    pub user_data: u64,
    /// A KVMEM_COMPUTE_* value: whether the GPU computes while blocks move.
    pub compute: u32,
    /// The most CTAs of a copy kernel, for engines that share the GPU closely; 0 for as many as are worth having.
    pub max_ctas: u32,
    /// Bytes of device memory for staged copies, whose parts fill and drain in turn; 0 for 128 MiB, or 64 MiB where
    /// nothing computes. Beside long kernels it must hold what the link moves during one of them. Transfers on a device
    /// share two, each as large as the largest asked for and made when it is first needed: one for blocks on their way to
    /// the GPU, and one for blocks on their way to the host, so that both ways are under way at a time.
    /// Between a file and GPU memory: bytes of page-locked memory in four slots, each of which holds at least a piece,
    /// and which transfers of a device share as well; 0 for 64 MiB.
    pub staging_size: u64,
    /// A KVMEM_PATH_* value to take and no other; 0 for the one that is expected to be fastest.
    pub path: u32,
    /// Must be 0.
    pub reserved: u32,
    /// What the CRC32C of the moved layers and outer slots of each block must be when they have moved, one a pair, as
    /// kvmem_layout_checksum computes it; copied. NULL for none. The destination's blocks are read again as that function
    /// reads them, and must stay as they are until the run is over. It ends with KVMEM_STATUS_CORRUPT where they
    /// differ, and names the first pair that does. Not with a remote destination, whose owner can compare, with
    /// KVMEM_TRANSFER_BY_LAYER, with KVMEM_TRANSFER_VERIFY, or in a graph.
    pub checksums: *const u32,
}
options!(kvmem_transfer_options);

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_options_init(
    options: *mut kvmem_transfer_options,
    struct_size: usize,
) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Checks, plans and prepares a transfer; moves nothing.
///
/// Blocks keep their content and may change their ids, layers and outer slots their numbers, and the two layouts may be
/// of different kinds and alignments. Blocks must be alike in page_size, inner_dim, dtype_width, and in num_heads where
/// both say it; in num_layers and outer_dim where no range is given. Paths: host to host by memcpy; GPU memory and
/// host or GPU memory by the CUDA driver, a kernel, or both, whichever is expected to be fastest: kvmem_transfer_explain
/// tells. Host and disk by io_uring where the file is open for direct I/O and the kernel lets us, else by threads;
/// NIXL's POSIX backend where `path` asks for it, and an agent knows both layouts. GPU memory and disk through
/// page-locked host memory; by NIXL where an agent with a GDS backend knows both layouts, cuFile may not pass bytes
/// through host memory, a small transfer of its own was seen to work, and moves are large or flags leave no other way.
/// Where `path` asks for NIXL there cuFile may do as it likes, unless a flag says otherwise. Any memory and remote by
/// NIXL.
///
/// A transfer to disk is over when all bytes are written: with direct I/O to the device, else to the page cache.
/// kvmem_region_sync then makes them durable. A file that was cut short since its region was made ends a transfer from
/// it with KVMEM_STATUS_IO, and one there is no room for a transfer to it with KVMEM_STATUS_OUT_OF_MEMORY.
///
/// What copies on a GPU need is made for the first of them, which takes longer, and kept as long as one of the GPU's
/// layouts.
///
/// @param source where the blocks come from
/// @param destination where they go
/// @param options which blocks
/// @param transfer gets the transfer; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for blocks that differ (with the field), a destination named
///         twice, memory that is read and written, also where a share of it is open more than once (but not where the
///         caller has mapped it a second time, and adopted that, nor where one side is memory of a peer, which does not
///         say what of it is mapped here), two agents, spans that direct I/O does not take, or a
///         staging_size too small for a piece;
///         KVMEM_STATUS_PERMISSION_DENIED for a destination that can only be read;
///         KVMEM_STATUS_OUT_OF_RANGE for a block, layer or outer slot that is not there; KVMEM_STATUS_UNSUPPORTED for a
///         pair of layouts without a path (with the way round it), or whose path was refused by a flag, or can't be the
///         one asked for, or that can't be verified; KVMEM_STATUS_INVALID_STATE for a layout that no agent
///         knows where NIXL is needed, and for memory or page locks whose context was reset or destroyed;
///         KVMEM_STATUS_STALE for a peer that was invalidated
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_create(
    source: *const kvmem_layout,
    destination: *const kvmem_layout,
    options: *const kvmem_transfer_options,
    transfer: *mut *mut kvmem_transfer,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let (transfer, options) = (Out::new(transfer)?, read(options)?);
            let source = borrow(scope, source).map_err(|error| error.context("source"))?;
            let destination = borrow(scope, destination).map_err(|error| error.context("destination"))?;
            transfer.set(Transfer::create(source, destination, request(scope, &options)?)?);
            Ok(())
        })
    }
}

/// Starts a transfer; after it is over, starts it again. A host copy of up to 64 KiB is done when this returns, unless
/// it is verified.
///
/// If this fails, no run has started: the queue gets no completion, and poll and wait report the run before.
///
/// @param transfer a transfer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK once it is started: poll, wait and the queue report its end; KVMEM_STATUS_BUSY
///         while it is in flight; KVMEM_STATUS_INVALID_STATE for elastic blocks without memory, and if the
///         GPU was reset since the transfer was created; KVMEM_STATUS_STALE when its peer was invalidated;
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread that watches copies on GPUs could not be started
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_submit(
    transfer: *mut kvmem_transfer,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, transfer)?.submit()) }
}

/// Starts a transfer on a stream: it begins when what is on the stream now is over, and what is put there later finds
/// the blocks moved. Its end is told as always, by poll, wait and queue. The call does not wait for the stream, but for a
/// path whose host memory is not page-locked: the driver copies from and to that within the call.
///
/// While the stream is captured into a graph, the transfer becomes a part of the graph and does not run: poll, wait and
/// queue hear nothing of the graph's runs, and the transfer, both layouts and their memory must outlive the graph.
///
/// Where the driver takes no mark behind the transfer, the run ends with that failure at once, its message says so, and
/// the library's own memory that it uses is never let go: memory of the caller's must stay until the stream is past it.
///
/// What is put on the stream later does not wait for a verification, and must leave the blocks as they are until the
/// end is told.
///
/// @param transfer a transfer from or to GPU memory
/// @param stream a stream of the primary context of the destination's GPU, or of the source's where only that is GPU
///               memory. NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are those of the calling thread's context, which
///               must have one. The stream must be alive until this returns: the driver can't tell one that was
///               destroyed, and what it does with it is undefined
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK once it is on the stream: poll, wait and the queue report its end;
///         KVMEM_STATUS_INVALID_ARGUMENT for a stream of another context or GPU, or a default stream where no context is
///         current; KVMEM_STATUS_UNSUPPORTED for a transfer that
///         no GPU takes part in, or for a captured stream where it is verified; KVMEM_STATUS_INVALID_STATE for a captured
///         stream where the path can't be captured, blocks are elastic, or the capture was invalidated, for elastic
///         blocks without memory, and if the GPU was reset since the transfer was created;
///         KVMEM_STATUS_BUSY while it is in flight, or its staging memory is in use;
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

/// Returns the state of the last run.
///
/// @param transfer a transfer
/// @param error gets the failure of the run; may be NULL
/// @return KVMEM_STATUS_OK when all bytes have moved; KVMEM_STATUS_IN_PROGRESS; KVMEM_STATUS_INVALID_STATE before the
///         first submit; or how it failed: then any part of the destination blocks may have been written.
///         KVMEM_STATUS_CORRUPT when all has moved, and blocks are not what `checksums` or KVMEM_TRANSFER_VERIFY
///         asks for; KVMEM_STATUS_CANCELLED when it was cancelled before all of it had begun;
///         KVMEM_STATUS_OUT_OF_MEMORY: a thread for its I/O or verification could not be started;
///         KVMEM_STATUS_PEER_LOST when the peer's process has ended. Requests that NIXL cannot cancel keep
///         their memory until NIXL releases it. Until then submit fails with KVMEM_STATUS_BUSY
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_poll(
    transfer: *const kvmem_transfer,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call_status(error, |scope| {
            let over = borrow(scope, transfer)?.poll()?;
            Ok(over.map_or(KVMEM_STATUS_IN_PROGRESS, |()| KVMEM_STATUS_OK))
        })
    }
}

/// Waits for the last run. For a host copy, the waiting thread copies too, and checks the timeout after each
/// MiB. With more than 50 ms left it also makes the NIXL calls of a transfer over NIXL, in steps of up to 16
/// MiB, if no other thread makes them.
///
/// @param transfer a transfer
/// @param timeout_ns nanoseconds to wait, or KVMEM_TIMEOUT_FOREVER
/// @param error gets the failure of the run or of the wait; may be NULL
/// @return as kvmem_transfer_poll, but KVMEM_STATUS_TIMED_OUT while it is still in flight
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_wait(
    transfer: *const kvmem_transfer,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, transfer)?.wait(timeout(timeout_ns))) }
}

/// What a transfer does.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_transfer_info {
    /// Bytes it moves.
    pub bytes: u64,
    /// (block, layer, outer) units these are.
    pub num_pieces: u64,
    /// Stretches of memory these are after neighbours were joined.
    pub num_moves: u64,
    /// NIXL requests, or reads or writes of a file; 0 for others.
    pub num_requests: u64,
    /// Nanoseconds its last finished run took, from submit to the end; 0 before.
    pub duration_ns: u64,
    /// A KVMEM_PATH_* value.
    pub path: u32,
    /// 0.
    pub reserved: u32,
}

/// Tells what a transfer does.
///
/// @param transfer a transfer
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_get_info(
    transfer: *const kvmem_transfer,
    info: *mut kvmem_transfer_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let info = out(info, "info")?;
            let transfer = borrow(scope, transfer)?;
            let summary = transfer.summary();
            info.write(kvmem_transfer_info {
                bytes: summary.bytes,
                num_pieces: summary.pieces,
                num_moves: summary.moves,
                num_requests: summary.requests,
                duration_ns: u64::try_from(transfer.duration().as_nanos()).unwrap_or(u64::MAX),
                path: value_of(transfer.path()),
                reserved: 0,
            });
            Ok(())
        })
    }
}

/// Destroys a transfer handle. A run in flight continues, holds what it needs, and still reports to its
/// queue.
///
/// @param transfer a transfer that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_destroy(transfer: *mut kvmem_transfer) {
    // SAFETY: by contract.
    unsafe { destroy(transfer) };
}
