// SPDX-License-Identifier: Apache-2.0
//! Who may still read or write blocks.

use std::ffi::c_char;

use crate::ffi::common::{OutItems, borrow, call_out, items, kvmem_error, kvmem_status, text};
use crate::ffi::layout::kvmem_layout;
use crate::ffi::layout::leases::nanoseconds;
use crate::run::accesses::{Accessor, BlockAccess, of_blocks};

/// A run in flight of a transfer or request of this process.
pub const KVMEM_ACCESSOR_RUN: u32 = 1;
/// A run of this process that has ended, as at its deadline, while its memory is still in use. A
/// KVMEM_COMPLETION_MEMORY_RELEASED reports when it no longer is.
pub const KVMEM_ACCESSOR_ENDED_RUN: u32 = 2;
/// The same if nothing will detect when the memory is no longer in use.
pub const KVMEM_ACCESSOR_LOST_RUN: u32 = 3;
/// A peer, in a session that this process serves (kvmem_layout_serve).
pub const KVMEM_ACCESSOR_PEER: u32 = 4;
/// The holder of a lease (kvmem_lease_create), in any process.
pub const KVMEM_ACCESSOR_LEASE: u32 = 5;

/// An access to a block that may be in progress.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_block_access {
    /// Block id.
    pub block: u32,
    /// KVMEM_ACCESSOR_* value.
    pub accessor: u32,
    /// 1 if the block may be read, otherwise 0.
    pub reads: u32,
    /// 1 if the block may be written, otherwise 0.
    pub writes: u32,
    /// For a run: the value of its options. Otherwise 0.
    pub user_data: u64,
    /// For a lease: nanoseconds until it ends, rounded up to milliseconds; UINT64_MAX: no end. Otherwise 0.
    pub remaining_ns: u64,
    /// For a peer or a lease: the process id, as that process says and as its own namespace numbers it; 0 if
    /// the holder of a lease is unknown. 0 for a run.
    pub pid: u32,
    /// 0.
    pub reserved: u32,
    /// For a peer, or a lease of one: the name of its agent, NUL-terminated; what does not fit is cut.
    /// Otherwise empty.
    pub agent: [c_char; 64],
}

/// Returns which of some blocks may still be read or written, and by whom, so that an owner need not wait
/// blindly after a timeout, an abort or the loss of a peer. Waits for no run and no other process.
///
///     kvmem_block_access accesses[64];
///     size_t count = 0;
///     status = kvmem_layout_get_accesses(layout, blocks, num_blocks, accesses, 64, &count, &error);
///     // count is 0: no access that has begun goes on, and no process has leased the blocks
///
/// Bytes are compared: runs between other layouts, views or mappings of the same memory in this process
/// count, and so do leases of them in any process. Each block has one access per run, session or lease, in
/// ascending order of the ids; accesses to one block are in no order. A run counts from its start, before the
/// call that submits it returns, until its memory is no longer in use. A session counts as a whole until it
/// has ended and its last copy, too. A lease that is over does not count.
///
/// This process does not know of, and the call does not return:
/// - what a peer accesses by NIXL without a session or a lease, and what another process accesses without a
///   lease in memory that it has mapped: epochs detect such reads (kvmem_layout_create_epochs);
/// - requests of peers that have not begun, because they wait for slots of the owner;
/// - replays of a graph that a transfer was captured into;
/// - calls that have not returned, such as kvmem_layout_checksum or kvmem_request_post in another thread.
///
/// Leases of mapped memory are locks that its importers have. An importer can lease every block, and prolong
/// leases of others. A block has the access of a lease with a pid of 0 and no end, beside those that were
/// found, if locks hide what else is leased of it, the call had taken 0.25 s of CPU time before it looked, or
/// there are more than 1,024 leases of it and 15 other blocks.
///
/// @param blocks block ids; one that occurs twice counts once
/// @return KVMEM_STATUS_OUT_OF_RANGE: there is no such block
///         KVMEM_STATUS_PERMISSION_DENIED, KVMEM_STATUS_IO: the memory was shared, and the kernel does not
///           report its locks, for example because a system call filter rejects F_OFD_GETLK
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_get_accesses(
    layout: *const kvmem_layout,
    blocks: *const u32,
    num_blocks: usize,
    accesses: *mut kvmem_block_access,
    capacity: usize,
    count: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (count, "count"), |scope| {
        let accesses = OutItems::new(accesses, capacity, ("accesses", "capacity"))?;
        let found = of_blocks(borrow(scope, layout)?, items(blocks, num_blocks, ("blocks", "num_blocks"))?)?;
        Ok(accesses.fill(found.iter().map(to_c)))
    })
}

fn to_c(access: &BlockAccess) -> kvmem_block_access {
    let of = |accessor| kvmem_block_access {
        block: access.block,
        accessor,
        reads: access.reads.into(),
        writes: access.writes.into(),
        user_data: 0,
        remaining_ns: 0,
        pid: 0,
        reserved: 0,
        agent: text::fixed(""),
    };
    match &*access.by {
        Accessor::Run { user_data, .. } => {
            kvmem_block_access { user_data: *user_data, ..of(KVMEM_ACCESSOR_RUN) }
        }
        Accessor::EndedRun { user_data, is_lost, .. } => {
            let accessor = if *is_lost { KVMEM_ACCESSOR_LOST_RUN } else { KVMEM_ACCESSOR_ENDED_RUN };
            kvmem_block_access { user_data: *user_data, ..of(accessor) }
        }
        Accessor::Peer { agent, process } => {
            kvmem_block_access { pid: process.pid, agent: text::fixed(agent), ..of(KVMEM_ACCESSOR_PEER) }
        }
        Accessor::PeerLease { agent, process, end } => kvmem_block_access {
            pid: process.pid,
            remaining_ns: nanoseconds(end.remaining()),
            agent: text::fixed(agent),
            ..of(KVMEM_ACCESSOR_LEASE)
        },
        Accessor::Lease(lease) => kvmem_block_access {
            pid: lease.holder.pid,
            remaining_ns: nanoseconds(lease.end.remaining()),
            ..of(KVMEM_ACCESSOR_LEASE)
        },
    }
}
