// SPDX-License-Identifier: Apache-2.0
//! What belongs to one run of a transfer: its blocks, and how it starts.

use std::ffi::c_void;
use std::time::Duration;

use crate::base::{Count, Error, Result, ensure, lists};
use crate::ffi::common::{
    borrow, call, check_flags, items, kvmem_error, kvmem_status, options, read, read_nullable, text, timeout,
};
use crate::ffi::transfer::kvmem_transfer;
use crate::nixl::service_mail::ensure_sendable;
use crate::transfer::{BlockPair, BlockTable, Step, TokenTables};

/// A block and its destination.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_block_pair {
    /// Block id in the source layout.
    pub source: u32,
    /// Block id in the destination layout.
    pub destination: u32,
}
const _: () = assert!(size_of::<kvmem_block_pair>() == size_of::<BlockPair>());

/// Blocks of a sequence in the order of its tokens, and which of these tokens are moved. Both sides of a
/// transfer have a table, and their block sizes (page_size) may differ. Token t of a table is token t mod
/// page_size of block blocks[t / page_size]. The i-th token that is moved is first_token + i·token_step.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_block_table {
    /// Block ids; copied.
    pub blocks: *const u32,
    /// Number of block ids.
    pub num_blocks: usize,
    /// First token that is moved; 0 for the first of the table.
    pub first_token: u64,
    /// 0 or 1 for consecutive tokens; n for every n-th token, of interleaved caches (context parallelism).
    pub token_step: u64,
}

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
pub const KVMEM_SUBMIT_VERIFY: u64 = 1;
/// Compute the CRC32C of the moved layers and outer slots of each block, as kvmem_layout_checksum does;
/// kvmem_transfer_get_checksums returns them after the run. Until the end nothing may write to the blocks.
///
/// If the run compares whole blocks, these are the checksums of the destination that it has compared, and
/// nothing is read for them. Otherwise one side is read in place after all blocks have moved, by threads or
/// by a kernel on its GPU: the destination, if it is host or GPU memory of this process, or else the source.
/// No file or peer is read for them. Not supported in a graph, and with a range of heads or block tables.
pub const KVMEM_SUBMIT_CHECKSUM: u64 = 2;

/// One run of a transfer: its blocks, as pairs or block tables, and what happens at its end. All is copied.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_submit_options {
    /// sizeof(kvmem_submit_options)
    pub struct_size: usize,
    /// Blocks in any order, each destination once; NULL with block tables.
    pub pairs: *const kvmem_block_pair,
    /// Number of pairs, at least 1; 0 if block tables are given.
    pub num_pairs: usize,
    /// Blocks and tokens in the source; NULL if pairs are given.
    pub source_table: *const kvmem_block_table,
    /// Blocks and tokens in the destination; NULL if pairs are given. No token may occur twice.
    pub destination_table: *const kvmem_block_table,
    /// Number of tokens that block tables move, at least 1; 0 if pairs are given.
    pub num_tokens: u64,
    /// Nanoseconds that the run may take, from its submission on, by any method; 0 or KVMEM_TIMEOUT_FOREVER:
    /// no limit. A run that takes longer is cancelled and ends with KVMEM_STATUS_TIMED_OUT at that time; the
    /// message has the method, the limit and the minimum of bytes that have moved. Parts that had started use
    /// their memory until they end, as after kvmem_transfer_cancel; until then kvmem_transfer_submit fails
    /// with KVMEM_STATUS_BUSY, and adopted memory must not be freed. KVMEM_TRANSFER_REPORT_RELEASE reports
    /// when that is over. The time includes work on a stream that the run waits for, and verification. Not
    /// supported in a graph.
    pub run_timeout_ns: u64,
    /// Returned in the completion.
    pub user_data: u64,
    /// KVMEM_SUBMIT_* flags: what is done with the blocks after they have moved.
    pub flags: u64,
    /// Expected CRC32C of the moved layers and outer slots of each block, one per pair, as
    /// kvmem_layout_checksum computes it. NULL for none. After all blocks have moved, the destination blocks
    /// are read and compared; nothing may write to them until the run has ended. The run ends with
    /// KVMEM_STATUS_CORRUPT if a checksum differs; kvmem_transfer_get_mismatches returns such pairs. Blocks
    /// of a remote destination are read back for that. Not supported in a graph, and together with a range of
    /// heads, block tables, KVMEM_TRANSFER_BY_LAYER or KVMEM_SUBMIT_VERIFY.
    pub checksums: *const u32,
    /// Message to the remote agent. NULL with size 0 for none; not NULL with size 0 for an empty one.
    /// Requires a remote layout. Sent after the last byte has moved and, if the run is verified, has been
    /// found right. A run that fails sends none, unless its deadline passes while the message is sent.
    pub notification: *const c_void,
    /// Bytes of the notification.
    pub notification_size: usize,
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
    pub epochs: *const u64,
}
options!(kvmem_submit_options);

/// Prepares the blocks of the next run. Moves nothing.
///
/// kvmem_transfer_submit without options starts that run. The call plans the blocks and selects the method,
/// so that the submission is fast, and kvmem_transfer_get_info, kvmem_transfer_explain and
/// kvmem_transfer_get_methods report what the run will do. A failed call keeps the previous blocks.
///
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
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_prepare(
    transfer: *mut kvmem_transfer,
    options: *const kvmem_submit_options,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, transfer)?.prepare(step(&read(options)?)?))
}

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
///
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
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_transfer_submit(
    transfer: *mut kvmem_transfer,
    options: *const kvmem_submit_options,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, transfer)?.submit(step_or_prepared(options)?))
}

/// The step as core types, or `None` for the prepared one.
///
/// # Safety
/// Every pointer, also in the options, must be NULL or valid.
pub(in crate::ffi) unsafe fn step_or_prepared<'a>(
    options: *const kvmem_submit_options,
) -> Result<Option<Step<'a>>> {
    read_nullable(options)?.map(|options| step(&options)).transpose()
}

/// The step as core types.
///
/// # Safety
/// Every pointer in the options must be NULL or valid.
pub(in crate::ffi) unsafe fn step<'a>(options: &kvmem_submit_options) -> Result<Step<'a>> {
    check_flags("kvmem_submit_options", options.flags, KVMEM_SUBMIT_VERIFY | KVMEM_SUBMIT_CHECKSUM)?;
    // SAFETY: the caller's promise, for all below.
    unsafe {
        let message = text::bytes(options.notification, options.notification_size, "notification")?;
        ensure_sendable(message)?;
        let checksums = match options.checksums.is_null() {
            true => None,
            false => Some(items(options.checksums, options.num_pairs, ("checksums", "num_pairs"))?),
        };
        let tables = tables(options)?;
        let num_sources = tables.as_ref().map_or(options.num_pairs, |tables| tables.sides[0].blocks.len());
        let epochs = match options.epochs.is_null() {
            true => None,
            false => Some(items(options.epochs, num_sources, ("epochs", "the number of sources"))?),
        };
        Ok(Step {
            // The pair of the core has the layout of C's pair, field by field.
            pairs: items(options.pairs.cast::<BlockPair>(), options.num_pairs, ("pairs", "num_pairs"))?,
            tables,
            user_data: options.user_data,
            notification: (!options.notification.is_null()).then(|| lists::copied(message)).transpose()?,
            checksums,
            epochs,
            verifies: options.flags & KVMEM_SUBMIT_VERIFY != 0,
            returns_checksums: options.flags & KVMEM_SUBMIT_CHECKSUM != 0,
            timeout: timeout(options.run_timeout_ns).filter(|limit| *limit > Duration::ZERO),
        })
    }
}

/// Block tables, if they are given instead of pairs.
///
/// # Safety
/// Both tables must be NULL or readable, and their block ids too.
unsafe fn tables<'a>(options: &kvmem_submit_options) -> Result<Option<TokenTables<'a>>> {
    let kvmem_submit_options { source_table, destination_table, num_tokens, num_pairs, .. } = *options;
    if source_table.is_null() && destination_table.is_null() {
        ensure!(
            num_tokens == 0,
            InvalidArgument,
            "num_tokens is {num_tokens}, and there are no block tables; set source_table and destination_table"
        );
        return Ok(None);
    }
    ensure!(
        !source_table.is_null() && !destination_table.is_null(),
        InvalidArgument,
        "{} is NULL, and the other block table is given; both sides need one",
        if source_table.is_null() { "source_table" } else { "destination_table" }
    );
    ensure!(
        num_pairs == 0,
        InvalidArgument,
        "{} and block tables are given; only one of the two can select the blocks",
        Count(num_pairs as u64, "pair")
    );
    let table = |table: *const kvmem_block_table| {
        let table = table.read_unaligned();
        let blocks = items(table.blocks, table.num_blocks, ("blocks", "num_blocks"))?;
        let kvmem_block_table { first_token, token_step, .. } = table;
        Ok(BlockTable { blocks, first_token, token_step: token_step.max(1) })
    };
    let named = |pointer, name| table(pointer).map_err(|error: Error| error.context(name));
    let sides = [named(source_table, "source_table")?, named(destination_table, "destination_table")?];
    Ok(Some(TokenTables { sides, tokens: num_tokens }))
}
