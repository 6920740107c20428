// SPDX-License-Identifier: Apache-2.0
//! Leases of blocks.

use std::time::Duration;

use crate::ffi::common::{
    Handle, borrow, call, call_new, call_out, check_flags, destroy, items, kvmem_error, kvmem_status, opaque,
    options, read_nullable, timeout,
};
use crate::ffi::layout::kvmem_layout;
use crate::transfer::{Lease, LeaseTerms};

/// A lease of blocks: an announcement to the owner of memory that this process uses them. It keeps the layout
/// alive. It ends at the latest with this process, which the owner of a remote layout may find out later.
pub struct kvmem_lease {
    handle: Handle<Lease>,
}
opaque!(kvmem_lease, Lease, "lease");

/// The holder may also write the blocks.
pub const KVMEM_LEASE_WRITES: u64 = 1;

/// Options of kvmem_lease_create.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_lease_options {
    /// sizeof(kvmem_lease_options)
    pub struct_size: usize,
    /// KVMEM_LEASE_* flags; 0: the holder reads the blocks.
    pub flags: u64,
    /// Nanoseconds after which the lease ends, at most a millisecond later. 0 or KVMEM_TIMEOUT_FOREVER: it
    /// ends when it is destroyed, or of a remote layout after as long as its owner keeps leases.
    pub duration_ns: u64,
    /// Of a remote layout: nanoseconds that kvmem_lease_create, and each kvmem_lease_renew, wait for the
    /// owner's reply; 0 for 5 s. KVMEM_TIMEOUT_FOREVER: as long as calls of the agent wait for NIXL.
    pub timeout_ns: u64,
}
options!(kvmem_lease_options);

/// Leases blocks of a layout that is mapped here, such as one that was opened from a share, or of a remote
/// one that its owner serves (kvmem_layout_serve).
///
///     const kvmem_lease_options options = {.struct_size = sizeof options, .duration_ns = 2000000000};
///     status = kvmem_lease_create(layout, blocks, num_blocks, &options, &lease, &error);
///     // read the blocks, with the epochs that were published for them
///     kvmem_lease_destroy(lease);
///
/// The owner sees who has leased which blocks, and until when (kvmem_layout_get_accesses), and then keeps
/// them or raises their epochs. A lease forbids nothing: an owner that reuses a block meanwhile, or has
/// decided to before the lease began, is detected by epochs only. It ends when it is destroyed, when its
/// duration has passed, also while this process is stopped, and when this process ends in any way. Runs do
/// not end with it: renew it as long as they take.
///
/// **Mapped memory**: it waits for no other process, and others cannot end the lease. This process may have
/// 256 leases of a region, with 1,024 separate ranges of bytes in all.
///
/// **A remote layout**: it waits until the owner has replied, at most for `timeout_ns`. The owner keeps the
/// lease for `max_lease_ns` of its kvmem_serve_options at most, so one without an end must be renewed, too:
/// kvmem_lease_get_remaining says until when. This process counts a thousandth less of a duration than the
/// owner. Of each layout, an agent may have 256 leases, of 65,536 blocks in all. A holder whose end the owner
/// cannot prove, as on another machine, keeps its lease until it is over. KVMEM_LEASE_WRITES needs no
/// KVMEM_SERVE_WRITE, because a peer can write by NIXL itself. Create no lease after the owner has destroyed
/// the layout, as you begin no transfer then: over TCP a request for memory that is no longer mapped ends the
/// owner's process.
///
/// @param blocks block ids, at least 1; one that occurs twice counts once
/// @param options flags and duration; NULL for a lease to read, until it is destroyed
/// @return KVMEM_STATUS_OUT_OF_RANGE: there is no such block
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote, and its owner does not serve it; or it has more
///           separate ranges of blocks than a message has space for, about 32,000
///         KVMEM_STATUS_TIMED_OUT: the owner of a remote layout has not replied
///         KVMEM_STATUS_STALE: the owner of a remote layout has destroyed it, or was replaced
///         KVMEM_STATUS_PERMISSION_DENIED: KVMEM_LEASE_WRITES for read-only memory, or F_OFD_SETLK is denied
///         KVMEM_STATUS_IO: the kernel cannot open or lock the control block of the memory
///         KVMEM_STATUS_PEER_LOST: the owner has freed the mapped memory, or has ended
///         KVMEM_STATUS_OUT_OF_MEMORY: this process has as many leases, ranges or blocks as it may have, or
///           the owner of a remote layout keeps 262,144 blocks for peers; a lease counts as 256 at least
///         KVMEM_STATUS_BUSY: others have too many locks, or an exclusive one, on the control block
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_lease_create(
    layout: *const kvmem_layout,
    blocks: *const u32,
    num_blocks: usize,
    options: *const kvmem_lease_options,
    lease: *mut *mut kvmem_lease,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (lease, "lease"), |scope| {
        let options = read_nullable(options)?;
        let (flags, duration, reply) =
            options.map_or((0, 0, 0), |options| (options.flags, options.duration_ns, options.timeout_ns));
        check_flags("kvmem_lease_options", flags, KVMEM_LEASE_WRITES)?;
        let terms = LeaseTerms {
            writes: flags & KVMEM_LEASE_WRITES != 0,
            duration: limited(duration),
            timeout: if reply == 0 { Some(REPLY) } else { timeout(reply) },
        };
        Lease::take(borrow(scope, layout)?, items(blocks, num_blocks, ("blocks", "num_blocks"))?, terms)
    })
}

/// Has a lease end after a duration from now on. It waits for the owner of a remote layout, for at most
/// `timeout_ns` of the lease, and otherwise for nothing. If it fails, the lease ends as before, or, of a
/// remote layout, at the new end if that is earlier; the owner may see a later end.
///
/// @param duration_ns nanoseconds from now on, otherwise as in kvmem_lease_options
/// @return KVMEM_STATUS_STALE: the lease is over or about to be, so the owner may have reused its blocks.
///           That is so at once after a duration of at most a millisecond. Or the owner of a remote layout
///           has destroyed it, or its metadata was invalidated
///         KVMEM_STATUS_TIMED_OUT: the owner of a remote layout has not replied
///         KVMEM_STATUS_BUSY: a process that can open the control block of the memory for writing has locked
///           it exclusively; the lease is not prolonged while that process does so
///         KVMEM_STATUS_IO: the kernel cannot lock the control block of the memory
///         KVMEM_STATUS_PEER_LOST: the owner has freed the mapped memory, or has ended
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_lease_renew(
    lease: *mut kvmem_lease,
    duration_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, lease)?.renew(limited(duration_ns)))
}

/// Returns the time until a lease ends. Never waits.
///
/// @param remaining_ns receives nanoseconds, rounded down to milliseconds: 0 if the lease is over or about to
///        be, UINT64_MAX if it ends when it is destroyed
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_lease_get_remaining(
    lease: *const kvmem_lease,
    remaining_ns: *mut u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (remaining_ns, "remaining_ns"), |scope| {
        Ok(nanoseconds(borrow(scope, lease)?.remaining()))
    })
}

/// Ends a lease, and destroys the handle. Never waits. The owner of a remote layout sees the lease until a
/// message arrives, or, if none can be sent (its metadata was invalidated), until the duration has passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_lease_destroy(lease: *mut kvmem_lease) {
    destroy(lease);
}

/// How long the owner of a remote layout is waited for.
const REPLY: Duration = Duration::from_secs(5);

fn limited(duration_ns: u64) -> Option<Duration> {
    timeout(duration_ns).filter(|duration| !duration.is_zero())
}

/// Those until a lease ends; the largest number if it has no end.
pub(super) fn nanoseconds(remaining: Option<Duration>) -> u64 {
    remaining.map_or(u64::MAX, |remaining| u64::try_from(remaining.as_nanos()).unwrap_or(u64::MAX))
}
