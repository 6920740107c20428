// SPDX-License-Identifier: Apache-2.0
//! Leases of blocks.

use std::time::Duration;

use crate::ffi::common::{
    Handle, borrow, call, call_new, call_out, check_flags, destroy, items, kvmem_error, kvmem_status, opaque,
    options, read_nullable, timeout,
};
use crate::ffi::layout::kvmem_layout;
use crate::run::BlockLease;

/// A lease of blocks: an announcement to the owner of memory that this process uses them. It keeps the layout
/// alive, and ends at the latest with this process.
pub struct kvmem_lease {
    handle: Handle<BlockLease>,
}
opaque!(kvmem_lease, BlockLease, "lease");

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
    /// ends when it is destroyed.
    pub duration_ns: u64,
}
options!(kvmem_lease_options);

/// Leases blocks of a layout that is mapped here, such as one that was opened from a share.
/// Waits for no other process.
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
/// Other processes cannot end it. This process may have 256 leases of a region, with 1,024 separate
/// ranges of bytes in all.
///
/// @param blocks block ids, at least 1; one that occurs twice counts once
/// @param options flags and duration; NULL for a lease to read, until it is destroyed
/// @return KVMEM_STATUS_OUT_OF_RANGE: there is no such block
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote
///         KVMEM_STATUS_PERMISSION_DENIED: KVMEM_LEASE_WRITES for memory that cannot be written here, or the
///           kernel forbids locks (F_OFD_SETLK)
///         KVMEM_STATUS_IO: the kernel cannot open or lock the control block of the memory
///         KVMEM_STATUS_PEER_LOST: the owner has freed the memory or has ended
///         KVMEM_STATUS_OUT_OF_MEMORY: this process has as many leases or ranges as it may have
///         KVMEM_STATUS_BUSY: other processes have too many locks on the control block of the memory, or
///           have locked it exclusively
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
        let (flags, duration) = options.map_or((0, 0), |options| (options.flags, options.duration_ns));
        check_flags("kvmem_lease_options", flags, KVMEM_LEASE_WRITES)?;
        let writes = flags & KVMEM_LEASE_WRITES != 0;
        let blocks = items(blocks, num_blocks, ("blocks", "num_blocks"))?;
        BlockLease::take(borrow(scope, layout)?, blocks, writes, limited(duration))
    })
}

/// Has a lease end after a duration from now on. Never waits. If it fails, the lease ends as before, except
/// that the owner may see a later end.
///
/// @param duration_ns nanoseconds, after which it ends, at most a millisecond later; 0 or
///        KVMEM_TIMEOUT_FOREVER: it ends when it is destroyed
/// @return KVMEM_STATUS_STALE: the lease is over, so the owner may have reused its blocks
///         KVMEM_STATUS_BUSY: a process that can open the control block of the memory for writing has locked
///           it exclusively; the lease is not prolonged while that process does so
///         KVMEM_STATUS_IO: the kernel cannot lock the control block of the memory
///         KVMEM_STATUS_PEER_LOST: the owner has freed the memory or has ended
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

/// Ends a lease, and destroys the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_lease_destroy(lease: *mut kvmem_lease) {
    destroy(lease);
}

fn limited(duration_ns: u64) -> Option<Duration> {
    timeout(duration_ns).filter(|duration| !duration.is_zero())
}

/// Those until a lease ends; the largest number if it has no end.
pub(super) fn nanoseconds(remaining: Option<Duration>) -> u64 {
    remaining.map_or(u64::MAX, |remaining| u64::try_from(remaining.as_nanos()).unwrap_or(u64::MAX))
}
