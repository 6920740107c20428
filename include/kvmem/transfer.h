/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: transfers: blocks of one layout are moved to blocks of another. Generated from src/ffi; do not edit.
 *
 *     const kvmem_submit_options blocks = {.struct_size = sizeof blocks, .pairs = pairs, .num_pairs = 2};
 *     kvmem_transfer *transfer = NULL;
 *     kvmem_status status = kvmem_transfer_start(source, destination, NULL, &blocks, &transfer, &error);
 *     if (status == KVMEM_STATUS_OK) status = kvmem_transfer_wait(transfer, timeout_ns, &error);
 *
 * cuda.h has the functions that run transfers on streams.
 */

#ifndef KVMEM_TRANSFER_H
#define KVMEM_TRANSFER_H

#include "layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Transfers ---- */

/// Moves of blocks from one layout to another: created once, submitted any number of times, with other blocks
/// in each run or with the same. It keeps both layouts alive. One run is in flight at a time: of several
/// threads that submit it, one succeeds.
///
/// Functions that report the last run fail with KVMEM_STATUS_INVALID_STATE if the transfer was never
/// submitted, and functions that report on its blocks if it has none yet.
typedef struct kvmem_transfer kvmem_transfer;

/// A queue of completions, with an event fd. Transfers keep their queue alive. No completion is lost,
/// whatever the number in flight, and none waits for a slow reader: a run has at most three completions in
/// the queue. A completion may arrive shortly after kvmem_transfer_wait has returned.
typedef struct kvmem_queue kvmem_queue;

/// A block and its destination.
typedef struct kvmem_block_pair {
    uint32_t source;  ///< Block id in the source layout.
    uint32_t destination;  ///< Block id in the destination layout.
} kvmem_block_pair;

/// Blocks of a sequence in the order of its tokens, and which of these tokens are moved. Both sides of a
/// transfer have a table, and their block sizes (page_size) may differ. Token t of a table is token t mod
/// page_size of block blocks[t / page_size]. The i-th token that is moved is first_token + i·token_step.
typedef struct kvmem_block_table {
    const uint32_t *blocks;  ///< Block ids; copied.
    size_t num_blocks;  ///< Number of block ids.
    uint64_t first_token;  ///< First token that is moved; 0 for the first of the table.
    /// 0 or 1 for consecutive tokens; n for every n-th token, of interleaved caches (context parallelism).
    uint64_t token_step;
} kvmem_block_table;

/// After all blocks have moved, compare the CRC32C of each destination block with that of its source block.
/// The run ends after the comparison, with KVMEM_STATUS_CORRUPT if they differ; kvmem_transfer_get_mismatches
/// returns which do. Until the end nothing may write to the blocks. With a range of heads or block tables,
/// only what has moved is compared, token by token; then files with direct I/O are not supported.
///
/// Both sides are read: host memory in place by several threads, GPU memory by a kernel on its GPU, and
/// files, objects and blocks of peers once more, to memory that has random bytes before: a read that reports
/// success and moves nothing is found, too. If a peer serves its layout (kvmem_layout_serve), the transfer is
/// served: the owner of the source sends checksums, the other side compares what has arrived and what its
/// blocks then have, and nothing is read twice over the network. Such a run ends at the first chunk that
/// differs; only then the blocks are read once more, to find those that differ.
#define KVMEM_SUBMIT_VERIFY 1
/// Compute the CRC32C of the moved layers and outer slots of each block, as kvmem_layout_checksum does;
/// kvmem_transfer_get_checksums returns them after the run. Until the end nothing may write to the blocks.
///
/// If the run compares whole blocks, these are the checksums of the destination that it has compared, and
/// nothing is read for them. Otherwise one side is read in place after all blocks have moved, by threads or
/// by a kernel on its GPU: the destination, if it is host or GPU memory of this process, or else the source.
/// No file or peer is read for them. Not supported in a graph, and with a range of heads or block tables.
#define KVMEM_SUBMIT_CHECKSUM 2

/// One run of a transfer: its blocks, as pairs or block tables, and what happens at its end. All is copied.
typedef struct kvmem_submit_options {
    size_t struct_size;
    const kvmem_block_pair *pairs;  ///< Blocks in any order, each destination once; NULL with block tables.
    size_t num_pairs;  ///< Number of pairs, at least 1; 0 if block tables are given.
    const kvmem_block_table *source_table;  ///< Blocks and tokens in the source; NULL if pairs are given.
    /// Blocks and tokens in the destination; NULL if pairs are given. No token may occur twice.
    const kvmem_block_table *destination_table;
    uint64_t num_tokens;  ///< Number of tokens that block tables move, at least 1; 0 if pairs are given.
    /// Nanoseconds that the run may take, from its submission on, by any method; 0 or KVMEM_TIMEOUT_FOREVER:
    /// no limit. A run that takes longer is cancelled and ends with KVMEM_STATUS_TIMED_OUT at that time; the
    /// message has the method, the limit and the minimum of bytes that have moved. Parts that had started use
    /// their memory until they end, as after kvmem_transfer_cancel; until then kvmem_transfer_submit fails
    /// with KVMEM_STATUS_BUSY, and adopted memory must not be freed. KVMEM_TRANSFER_REPORT_RELEASE reports
    /// when that is over. The time includes work on a stream that the run waits for, and verification. Not
    /// supported in a graph.
    uint64_t run_timeout_ns;
    uint64_t user_data;  ///< Returned in the completion.
    uint64_t flags;  ///< KVMEM_SUBMIT_* flags: what is done with the blocks after they have moved.
    /// Expected CRC32C of the moved layers and outer slots of each block, one per pair, as
    /// kvmem_layout_checksum computes it. NULL for none. After all blocks have moved, the destination blocks
    /// are read and compared; nothing may write to them until the run has ended. The run ends with
    /// KVMEM_STATUS_CORRUPT if a checksum differs; kvmem_transfer_get_mismatches returns such pairs. Blocks
    /// of a remote destination are read back for that. Not supported in a graph, and together with a range of
    /// heads, block tables, KVMEM_TRANSFER_BY_LAYER or KVMEM_SUBMIT_VERIFY.
    const uint32_t *checksums;
    /// Message to the remote agent. NULL with size 0 for none; not NULL with size 0 for an empty one.
    /// Requires a remote layout. Sent after the last byte has moved and, if the run is verified, has been
    /// found right. A run that fails sends none, unless its deadline passes while the message is sent.
    const void *notification;
    size_t notification_size;  ///< Bytes of the notification.
    /// Expected epochs of the source blocks, one per pair, or one per block of `source_table`, as their owner
    /// has published them with the block ids. NULL for none. They are compared when the run begins, and after
    /// its last byte; those of blocks of `source_table` of which no token is moved are not. If one differs,
    /// the run ends with KVMEM_STATUS_STALE, kvmem_transfer_get_mismatches returns such pairs or indices of
    /// `source_table`, and what was moved from these blocks is undefined.
    /// KVMEM_STATUS_OK proves that all bytes are of the expected epochs. With KVMEM_TRANSFER_BY_LAYER, layers
    /// are reported before that: use no result of theirs before the run has ended. KVMEM_SUBMIT_VERIFY reads
    /// the source again: a block that a peer reuses after the last comparison ends the run with
    /// KVMEM_STATUS_CORRUPT. The source needs epochs: kvmem_layout_create_epochs. Not supported in a graph.
    /// If the source is in memory of this process or mapped here, not together with a notification.
    const uint64_t *epochs;
} kvmem_submit_options;

/// Exclude methods that store bytes anywhere between source and destination: in staging memory, in memory of
/// the driver (which it uses if host memory is not page-locked), or in the page cache of a buffered file.
/// Excludes all methods to a peer, because NIXL does not report what its backends do.
#define KVMEM_TRANSFER_ZERO_COPY 1
/// Exclude methods through host memory that is neither source nor destination: all methods between a file and
/// a GPU except GPUDirect Storage, and all methods to a peer.
#define KVMEM_TRANSFER_NO_HOST_BOUNCE 2
/// Move the layers in order, and report how many have moved: see kvmem_transfer_get_info,
/// kvmem_transfer_wait_layers and kvmem_transfer_wait_on_stream. Bytes that are contiguous across layers are
/// then moved layer by layer, which makes transfers of small fully contiguous blocks slower;
/// kvmem_transfer_explain reports by how much.
#define KVMEM_TRANSFER_BY_LAYER 4
/// The queue gets a KVMEM_COMPLETION_MEMORY_RELEASED for each run that ends before its memory is released, as
/// at its `run_timeout_ns`. Requires a queue.
#define KVMEM_TRANSFER_REPORT_RELEASE 8

/// Kernels of the caller may run meanwhile. Methods that slow them down are not used, or use few CTAs.
#define KVMEM_COMPUTE_MAY_RUN 0
#define KVMEM_COMPUTE_IDLE 1  ///< The GPU is idle during the transfer. Copies may use all of it.

/// Options of kvmem_transfer_create and kvmem_transfer_start: what does not change from run to run.
typedef struct kvmem_transfer_options {
    size_t struct_size;
    uint64_t flags;  ///< KVMEM_TRANSFER_* flags.
    kvmem_queue *queue;  ///< Queue that receives a completion per run; NULL for none.
    /// n: the queue also gets a KVMEM_COMPLETION_LAYERS_MOVED whenever n more layers have moved, and when all
    /// have. 0 for none. Requires a queue and KVMEM_TRANSFER_BY_LAYER. Runs of graphs report none.
    uint64_t layers_per_completion;
    uint64_t source_layer;  ///< First layer in the source.
    uint64_t destination_layer;  ///< First layer in the destination.
    /// Number of layers; 0 for all: then both first layers must be 0, and both layouts have the same number.
    uint64_t num_layers;
    uint64_t source_outer;  ///< First outer slot in the source: 0 for keys, 1 for values.
    uint64_t destination_outer;  ///< First outer slot in the destination.
    /// Number of outer slots; 0 for all: then both first slots must be 0, and both layouts have the same
    /// number.
    uint64_t num_outers;
    uint64_t source_head;  ///< First head in the source.
    uint64_t destination_head;  ///< First head in the destination.
    /// Number of heads; 0 for all: then both first heads must be 0, and both layouts have the same number.
    /// With tensor parallelism each layout has some of the heads of the model, counted from 0 in each layout.
    /// A range requires num_heads in both layouts.
    uint64_t num_heads;
    /// Names of the parts to move, for layouts that were combined; copied. NULL for all: then both layouts
    /// have parts of the same names. A part is moved to the part of the same name. Ranges of layers, outer
    /// slots and heads apply to each part. A part without heads, such as a latent cache, needs a transfer of
    /// its own, without a range of heads.
    const char *const *parts;
    size_t num_parts;  ///< Number of names; 0 for all parts.
    /// KVMEM_METHOD_* value: use this method, or fail. 0: the one with the highest estimated throughput.
    uint32_t method;
    uint32_t compute;  ///< KVMEM_COMPUTE_* value.
    uint32_t max_ctas;  ///< Maximum number of CTAs of a copy kernel; 0 for the highest throughput.
    uint32_t reserved;
    /// Bytes of the method's staging memory, which its transfers share; 0 for the default.
    /// On a GPU, for all its transfers in one direction: 128 MiB, or 64 MiB with KVMEM_COMPUTE_IDLE. It is as
    /// large as the largest request, and is allocated on first use. While long kernels run, it must hold the
    /// bytes that the link moves during one of them.
    /// Between files and GPU memory, for a GPU and a file system: 64 MiB of page-locked host memory, in four
    /// slots, each of which holds at least one piece.
    /// For a peer, for transfers of an agent with the same size: 16 MiB of registered memory, or 64 MiB in
    /// GPU memory, in eight slots. Slots that peers which do not respond keep are replaced, up to eight times
    /// this size in all.
    /// For objects: registered memory in eight slots, each of which holds an object; as large as eight.
    uint64_t staging_size;
    /// For transfers with a peer: nanoseconds without progress after which a run ends with
    /// KVMEM_STATUS_TIMED_OUT; 0 for 30 seconds with staging memory, and for no limit without. The memory of
    /// such a run stays in use until NIXL has released it; until then kvmem_transfer_submit fails with
    /// KVMEM_STATUS_BUSY. KVMEM_TRANSFER_REPORT_RELEASE reports when that is over.
    uint64_t stall_timeout_ns;
} kvmem_transfer_options;

/* ---- Creating, running, destroying ---- */

/// Creates a transfer between two layouts. Moves nothing: kvmem_transfer_submit gets the blocks of a run.
///
/// A token keeps its elements, and may change its block, layers, outer slots and heads. The layouts may
/// differ in kind, order, strides, alignment, tier and num_blocks; elements that are stored in another order
/// are transposed. The layouts must be equal in dtype_width and in the number of elements per head; in
/// num_heads, num_layers and outer_dim if no range is given; and in page_size if runs move pairs rather than
/// block tables. A layout with num_heads 0 has as many heads as the other one. Both layouts stay in use until
/// the transfer is destroyed and its last run has ended.
///
/// The fastest method by estimation is used for the blocks of each run; kvmem_transfer_explain returns it,
/// and docs/transfers.md lists all methods.
/// @param options what is moved of each block, and how; NULL for whole blocks by the fastest method
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the layouts differ (the message has the field); the layouts have
///           different agents; or heads are selected, and a layout does not have num_heads
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such layer, outer slot or head
///         KVMEM_STATUS_NOT_FOUND: a name of `parts` is not that of a part of both layouts
///         KVMEM_STATUS_PERMISSION_DENIED: the destination can only be read
///         KVMEM_STATUS_UNSUPPORTED: no method connects the layouts (the message has an alternative), or the
///           requested method is not possible
///         KVMEM_STATUS_INVALID_STATE: the method needs an agent, and a layout has none
kvmem_status kvmem_transfer_create(const kvmem_layout *source, const kvmem_layout *destination,
    const kvmem_transfer_options *options, kvmem_transfer **transfer, kvmem_error **error);

/// Creates a transfer and starts its first run, in one call.
///
/// If blocks move between the same layouts repeatedly, kvmem_transfer_submit of one transfer is faster: it
/// reuses the parts of the plan that depend on the layouts.
/// @param transfer receives the transfer, whose run is in flight; the caller destroys it. If the call fails,
///         no run has started, and the queue receives no completion
/// @return any status of kvmem_transfer_create and kvmem_transfer_submit
kvmem_status kvmem_transfer_start(const kvmem_layout *source, const kvmem_layout *destination,
    const kvmem_transfer_options *options, const kvmem_submit_options *first, kvmem_transfer **transfer,
    kvmem_error **error);

/// Prepares the blocks of the next run. Moves nothing.
///
/// kvmem_transfer_submit without options starts that run. The call plans the blocks and selects the method,
/// so that the submission is fast, and kvmem_transfer_get_info, kvmem_transfer_explain and
/// kvmem_transfer_get_methods report what the run will do. A failed call keeps the previous blocks.
/// @return KVMEM_STATUS_BUSY: a run of this transfer is in flight, or has ended and still uses its memory. It
///           has precedence over other statuses
///         KVMEM_STATUS_INVALID_ARGUMENT: there are neither pairs nor tables, or both; a destination occurs
///           twice; memory is both read and written; pairs are given, and block sizes differ; direct I/O
///           cannot access a range; staging_size is too small for a piece; a notification has no remote
///           agent; or checksums are set together with KVMEM_SUBMIT_VERIFY
///         KVMEM_STATUS_OUT_OF_RANGE: a layout has no such block, or a table is too short for the tokens
///         KVMEM_STATUS_UNSUPPORTED: no permitted method can move these blocks (the message has an
///           alternative), they cannot be verified, or tokens of a layout have separate regions, and block
///           tables move parts of blocks, or block sizes differ
///         KVMEM_STATUS_INVALID_STATE: the context of memory or page locks was reset or destroyed; or epochs
///           are expected, and the source has none
///         KVMEM_STATUS_STALE: the peer was invalidated
///
/// Notes: the first run on a GPU creates per-device state (streams, events, staging), so its preparation is
/// slower. The state lives as long as any layout on that GPU. Memory that is both read and written is
/// recognized also if a share of it is open more than once, but not if the caller mapped it a second time and
/// adopted that mapping, or if one side is memory of a peer that is mapped here.
kvmem_status kvmem_transfer_prepare(kvmem_transfer *transfer, const kvmem_submit_options *options,
    kvmem_error **error);

/// Starts a run of a transfer, with new blocks or with those that were prepared or submitted last.
///
///     const kvmem_submit_options step = {
///         .struct_size = sizeof step, .pairs = pairs, .num_pairs = num_pairs, .user_data = request_id,
///     };
///     status = kvmem_transfer_submit(transfer, &step, &error);
///
/// The number of pairs or tokens may change with each call, and so may the choice of pairs or tables. The
/// method is selected again for new blocks. A transfer has one run in flight at a time; use as many transfers
/// as there are steps at the same time.
///
/// If the call fails, no run has started: the queue receives no completion, poll and wait report the previous
/// run, and the transfer keeps its previous blocks.
/// @param options the blocks of the run; NULL: everything as it was prepared, or in the last run
/// @return KVMEM_STATUS_OK: the run has started. Poll, wait and the queue report its end
///         KVMEM_STATUS_BUSY: a run of this transfer is in flight, or has ended and still uses its memory; or
///           one of another transfer or request has ended, as at its run_timeout_ns, and may still write to
///           these blocks. BUSY has precedence over other statuses
///         KVMEM_STATUS_INVALID_STATE: options is NULL, and the transfer has no blocks yet; an elastic block
///           has no memory; or the GPU was reset after the transfer was created
///         KVMEM_STATUS_STALE: the peer was invalidated
///         KVMEM_STATUS_NIXL: NIXL may still use staging memory of a failed transfer; create it again
///         any status of kvmem_transfer_prepare, if options is not NULL
///
/// Notes: a copy between host layouts of at most 32 KiB is done when the call returns, unless it is verified.
/// A run between host memory and a peer, of at most 1 MiB in at most 128 ranges, is executed by the calling
/// thread, if no other thread uses the agent: NIXL copies memory of a peer on the same machine within its
/// calls, this much in less than 1 ms. The agent's thread executes larger runs, and those that wait longer.
/// A run to a file ends when all bytes are written: with direct I/O to the device, otherwise to the page
/// cache. kvmem_region_sync makes them durable. Runs of graphs, and requests on raw descriptors that write to
/// files or peers, are not checked for blocks that an ended run may still write.
kvmem_status kvmem_transfer_submit(kvmem_transfer *transfer, const kvmem_submit_options *options,
    kvmem_error **error);

/// Returns the state of the last run. Never waits.
/// @return KVMEM_STATUS_OK: all blocks have moved
///         KVMEM_STATUS_IN_PROGRESS: the run is in flight
///         KVMEM_STATUS_CANCELLED: the run was cancelled before all its parts had started
///         KVMEM_STATUS_TIMED_OUT: the run was not complete after `run_timeout_ns`, or made no progress with
///           a peer for `stall_timeout_ns`. Submit fails with KVMEM_STATUS_BUSY while memory is in use
///         KVMEM_STATUS_CORRUPT: all blocks have moved, and a checksum differs
///         KVMEM_STATUS_IO: reading or writing a file failed, for example past the end of a truncated file
///         KVMEM_STATUS_OUT_OF_MEMORY: the file system is full, or no thread for I/O or verification starts
///         KVMEM_STATUS_PEER_LOST: the process of the peer has ended. Requests that NIXL cannot cancel use
///           their memory until NIXL releases them; until then submit fails with KVMEM_STATUS_BUSY
///         KVMEM_STATUS_NOT_FOUND: an object that is read, or its bucket, does not exist
///         any other status: how the run failed. Any part of the destination may have been written
kvmem_status kvmem_transfer_poll(const kvmem_transfer *transfer, kvmem_error **error);

/// Waits for the end of the last run.
/// @return any status of kvmem_transfer_poll, and
///         KVMEM_STATUS_TIMED_OUT: the run is still in flight, and kvmem_transfer_poll returns
///           KVMEM_STATUS_IN_PROGRESS; or the run has ended with this status
///
/// Notes: the waiting thread takes part in a copy between host layouts, and checks the timeout after each
/// MiB. With KVMEM_TIMEOUT_FOREVER, and for a run without `run_timeout_ns`, it also makes the NIXL calls of a
/// run over NIXL, if no other thread makes them: such a call may not return. Otherwise the thread of the
/// agent makes them, and the wait ends in time.
kvmem_status kvmem_transfer_wait(const kvmem_transfer *transfer, uint64_t timeout_ns, kvmem_error **error);

/// Cancels the parts of the last run that have not started. Never waits.
///
/// The run ends with KVMEM_STATUS_CANCELLED, or as usual if all parts had started. Poll, wait and the queue
/// report the end. Started parts complete and use their memory until then: copies on a stream, a chunk of a
/// host copy, requests in the kernel or NIXL. Any part of the destination blocks may have been written.
/// @param transfer a transfer; cancelling again, or after the end of the run, does nothing
/// @return KVMEM_STATUS_OK: the status of the run reports the outcome
kvmem_status kvmem_transfer_cancel(kvmem_transfer *transfer, kvmem_error **error);

/// Destroys a transfer handle. A run in flight continues, keeps what it uses alive, and reports to its queue.
void kvmem_transfer_destroy(kvmem_transfer *transfer);

/* ---- Queues of completions ---- */

#define KVMEM_COMPLETION_RUN_ENDED 1  ///< A run of a transfer or request has ended.
/// Layers of a run have moved; only with `layers_per_completion` of kvmem_transfer_options. The numbers of
/// layers of a run ascend, and its end follows. If the run succeeds, the last number is that of all layers.
/// While one waits in the queue, further ones only increase its number.
#define KVMEM_COMPLETION_LAYERS_MOVED 2
/// The memory of a run that had ended is released; only with KVMEM_TRANSFER_REPORT_RELEASE or
/// KVMEM_NIXL_REPORT_RELEASE. It follows each KVMEM_COMPLETION_RUN_ENDED with `released` 0, once, also if the
/// transfer is destroyed meanwhile. Then the transfer can be submitted again; the completions of the next run
/// are behind this one.
#define KVMEM_COMPLETION_MEMORY_RELEASED 3
#define KVMEM_COMPLETION_NOTIFICATIONS 4  ///< An agent has messages: see kvmem_agent_report_notifications.
#define KVMEM_COMPLETION_EVENTS 5  ///< A directory has events: see kvmem_directory_report_events.

/// What has happened to a run of a transfer or request, or elsewhere.
typedef struct kvmem_completion {
    uint64_t user_data;  ///< user_data of the kvmem_submit_options of the run, or of what else reports.
    uint64_t bytes;  ///< At the end of a run: bytes moved; 0 after a failure. Otherwise 0.
    /// Layers of the run that have moved, from the first on, as in kvmem_transfer_info; 0 for requests.
    uint64_t num_layers;
    uint32_t kind;  ///< KVMEM_COMPLETION_* value.
    /// At the end of a run: KVMEM_STATUS_OK, or how it failed; kvmem_transfer_poll returns the message. For
    /// KVMEM_COMPLETION_MEMORY_RELEASED: KVMEM_STATUS_OK, or KVMEM_STATUS_BUSY if nothing will detect when
    /// the memory is no longer in use, as after a failure of the driver. Otherwise KVMEM_STATUS_OK.
    kvmem_status status;
    /// 1 if the run no longer uses its memory: its blocks can be used again, and adopted memory can be freed.
    /// It is 0 at the end of a run whose started parts still use memory, as after `run_timeout_ns`.
    uint32_t released;
    uint32_t reserved;
} kvmem_completion;

/// Creates an empty queue.
kvmem_status kvmem_queue_create(kvmem_queue **queue, kvmem_error **error);

/// Returns the event fd of a queue, for poll and epoll: it is readable while the queue has completions. The
/// caller must neither read nor close it.
/// @param fd receives the fd, which is valid as long as the queue
kvmem_status kvmem_queue_get_fd(const kvmem_queue *queue, int32_t *fd, kvmem_error **error);

/// Removes completions from a queue, and waits for one if there is none.
/// @param timeout_ns 0 takes what is there, and succeeds also if there is none
/// @param completions receives the completions, oldest first
/// @param capacity elements of completions, at least 1
/// @param count receives the number of completions, at least 1; with timeout_ns 0 it may be 0
kvmem_status kvmem_queue_wait(kvmem_queue *queue, uint64_t timeout_ns, kvmem_completion *completions,
    size_t capacity, size_t *count, kvmem_error **error);

/// Destroys a queue and closes its event fd. Transfers that report to it continue, without completions.
void kvmem_queue_destroy(kvmem_queue *queue);

/* ---- Layers ---- */

/// Waits until the first layers of the last run have moved: their blocks can be used before the others.
/// @param transfer without KVMEM_TRANSFER_BY_LAYER, all layers have moved when the run has ended
/// @param num_layers number of layers, counted from the first that is moved; 0 for all
/// @return KVMEM_STATUS_OK: the layers have moved, whatever happens to the others
///         KVMEM_STATUS_OUT_OF_RANGE: the transfer moves fewer layers
///         any status of kvmem_transfer_poll: how the run failed before the layers had moved
kvmem_status kvmem_transfer_wait_layers(const kvmem_transfer *transfer, uint64_t num_layers,
    uint64_t timeout_ns, kvmem_error **error);

/* ---- Mismatches and checksums ---- */

/// Returns which blocks differ after the last run, which has compared them: with KVMEM_SUBMIT_VERIFY, or
/// `checksums` or `epochs` of kvmem_submit_options. Never waits.
///
///     uint64_t different[64];
///     size_t count = 0;
///     if (status == KVMEM_STATUS_CORRUPT || status == KVMEM_STATUS_STALE)
///         status = kvmem_transfer_get_mismatches(transfer, different, 64, &count, &error);
///
/// A mismatch is the index of a pair, or, with block tables, of a moved token, counted from first_token on.
/// They are in ascending order, and all others have arrived. After KVMEM_STATUS_STALE they are the pairs, or
/// the indices of `source_table`, whose blocks have other epochs than expected, and others may not have
/// arrived. After a run that was not compared, or has ended with KVMEM_STATUS_OK, there are none. After a
/// served run that found a damaged chunk, pairs that had not moved by then are mismatches, too. There are
/// none if the peer does not let the blocks be read once more; then the message of the run says so.
/// @param capacity the number of pairs or tokens is always enough
/// @return KVMEM_STATUS_BUSY: the run is in flight
///         any status of kvmem_transfer_poll except KVMEM_STATUS_CORRUPT: how the run failed. After
///           KVMEM_STATUS_STALE that is returned only if the peer is stale, rather than blocks
kvmem_status kvmem_transfer_get_mismatches(const kvmem_transfer *transfer, uint64_t *indices, size_t capacity,
    size_t *count, kvmem_error **error);

/// Returns the checksums that the last run has computed, with KVMEM_SUBMIT_CHECKSUM. Never waits.
///
///     const kvmem_submit_options offload = {.struct_size = sizeof offload, .pairs = pairs, .num_pairs = 2,
///                                           .flags = KVMEM_SUBMIT_CHECKSUM};
///     // after the run
///     status = kvmem_transfer_get_checksums(transfer, checksums, 2, &count, &error);
///
/// They are those of the blocks in the order of the pairs, and can be given to the run that moves the blocks
/// back, as `checksums` of kvmem_submit_options. After a run that has ended with KVMEM_STATUS_CORRUPT because
/// of its comparison, they are those of the destination.
/// @param capacity the number of pairs is enough
/// @return KVMEM_STATUS_BUSY: the run is in flight
///         KVMEM_STATUS_INVALID_STATE: the transfer was never submitted, or the last run has computed no
///           checksums: it was submitted without KVMEM_SUBMIT_CHECKSUM, or a damaged chunk has ended it
///         any status of kvmem_transfer_poll except KVMEM_STATUS_CORRUPT: how the run failed
kvmem_status kvmem_transfer_get_checksums(const kvmem_transfer *transfer, uint32_t *checksums,
    size_t capacity, size_t *count, kvmem_error **error);

/* ---- Methods and information ---- */

/// Properties of a transfer.
typedef struct kvmem_transfer_info {
    uint64_t bytes;  ///< Bytes to move.
    /// Pieces: one per block, layer and outer slot; with block tables one per layer, outer slot and span of
    /// tokens that is within one block on both sides.
    uint64_t num_pieces;
    uint64_t num_moves;  ///< Contiguous ranges, after adjacent pieces were merged.
    uint64_t num_requests;  ///< Requests of NIXL, or reads or writes of a file; 0 for other methods.
    uint64_t duration_ns;  ///< Nanoseconds of the last run that has ended, from submit to the end; 0 before.
    /// Layers of the last run that have moved, counted from the first; 0 before the first run. Their blocks
    /// can be used. Without KVMEM_TRANSFER_BY_LAYER it is 0 until the run has ended. After a failed run it is
    /// the number of layers that had moved.
    uint64_t layers_moved;
    uint32_t method;  ///< KVMEM_METHOD_* value.
    uint32_t reserved;
} kvmem_transfer_info;

/// Returns the properties of a transfer with the blocks that were prepared or submitted last.
kvmem_status kvmem_transfer_get_info(const kvmem_transfer *transfer, kvmem_transfer_info *info,
    kvmem_error **error);

/// Returns why a transfer takes its method for the blocks that were prepared or submitted last, as text for
/// people: the loops over elements, the bytes read in excess, the estimate, a line per method that was
/// compared, and after a run the duration of each phase. docs/transfers.md explains them. Moves nothing.
///
/// Notes: the first call for a copy between host layouts, of this or of kvmem_transfer_get_methods, measures
/// the copy rate of the machine, which takes 25 to 70 ms on an idle one.
kvmem_status kvmem_transfer_explain(const kvmem_transfer *transfer, kvmem_blob **text, kvmem_error **error);

#define KVMEM_CHOICE_USED 1  ///< The transfer takes the method. The reason is a remark, or empty.
#define KVMEM_CHOICE_SLOWER 2  ///< The method is possible, its estimate is no better. The reason is empty.
/// The method is not used for the given reason, and is possible as far as is known. If another method was
/// requested, agents of NIXL are not asked what they have.
#define KVMEM_CHOICE_NOT_USED 3
#define KVMEM_CHOICE_IMPOSSIBLE 4  ///< The method is not possible, and the reason says why.

/// A method that was compared with others for a transfer.
typedef struct kvmem_compared_method {
    uint32_t method;  ///< KVMEM_METHOD_* value.
    uint32_t choice;  ///< KVMEM_CHOICE_* value.
    /// Estimated throughput in bytes per second; 0 if unknown. It follows from
    /// - host copies: rates of the machine for long and for short ranges, which kvmem measures;
    /// - copies by a GPU: its copy rates (kvmem_cuda_get_copy_rates) and the number of contiguous ranges; for
    ///   its kernels also the lengths of the ranges on each side, with costs that were fitted on H200 hosts;
    /// - files, objects and peers: earlier runs of this process by the same method with the same file or
    ///   peer.
    uint64_t bytes_per_second;
    /// 1 if the throughput is a typical value, because nothing was measured yet: 2 GB/s by direct I/O, 5 GB/s
    /// by the page cache, 0.2 GB/s for objects, and for peers as docs/nixl.md says. Otherwise 0.
    uint32_t assumed;
    uint32_t reserved;
    /// Why the method is not used, or a remark on the one that is; may be empty. What does not fit is cut;
    /// kvmem_transfer_explain has all of it.
    char reason[488];
} kvmem_compared_method;

/// Returns the methods that were compared for a transfer, for programs. Moves nothing.
///
///     kvmem_compared_method methods[11];
///     status = kvmem_transfer_get_methods(transfer, methods, 11, &count, &error);
///
/// The first is the method that the transfer takes. With other blocks the methods are compared again.
/// @param capacity the number of KVMEM_METHOD_* values is always enough
kvmem_status kvmem_transfer_get_methods(const kvmem_transfer *transfer, kvmem_compared_method *methods,
    size_t capacity, size_t *count, kvmem_error **error);

#define KVMEM_METHOD_MEMCPY 1  ///< Host memory: host threads copy by memcpy.
/// GPU memory: the CUDA driver copies, one call of cuMemcpyAsync per contiguous range.
#define KVMEM_METHOD_CUDA_COPY 2
/// GPU memory: the CUDA driver copies all contiguous ranges by one call of cuMemcpyBatchAsync.
#define KVMEM_METHOD_CUDA_BATCH 3
/// GPU memory: the CUDA driver copies rows of blocks at regular distances, by cuMemcpy2DAsync.
#define KVMEM_METHOD_CUDA_2D 4
#define KVMEM_METHOD_CUDA_KERNEL 5  ///< GPU memory: a kernel on the SMs reads and writes both sides directly.
/// Between host and GPU memory: a kernel gathers or scatters in staging memory on the GPU, and a copy engine
/// moves contiguous ranges.
#define KVMEM_METHOD_CUDA_STAGED 6
#define KVMEM_METHOD_URING 7  ///< Files: io_uring. GPU memory is copied through page-locked host memory.
#define KVMEM_METHOD_PREAD 8  ///< Files: as KVMEM_METHOD_URING, with threads that call preadv and pwritev.
/// Peers, files, objects, block storage: NIXL reads or writes, one descriptor per contiguous range; a request
/// writes a whole object. Between a file and GPU memory, NIXL uses GPUDirect Storage.
#define KVMEM_METHOD_NIXL 9
/// Peers, objects: NIXL reads large ranges or whole objects to staging memory of this process, or writes them
/// from there. Host threads or a GPU scatter or gather rows.
#define KVMEM_METHOD_NIXL_STAGED 10
/// Peers that serve their layout: NIXL reads large ranges from staging memory of the owner, which gathers
/// rows, or writes them there, and the owner scatters them.
#define KVMEM_METHOD_NIXL_SERVED 11

/// Returns the name of a method, such as "CUDA kernel". The string is static.
/// @param method any value; the name of an unknown one is "unknown"
const char *kvmem_method_name(uint32_t method);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_TRANSFER_H */
