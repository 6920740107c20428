// SPDX-License-Identifier: Apache-2.0
//! Completion queues.

use crate::base::{Result, ensure};
use crate::ffi::common::{
    Handle, KVMEM_STATUS_OK, OutItems, borrow, call_new, call_on, call_out, destroy, kvmem_error,
    kvmem_status, opaque, out, timeout,
};
use crate::transfer::{EntryKind, OpenQueue, Queue, QueueEntry};

/// A queue of completions, with an event fd. Transfers keep their queue alive. No completion is lost,
/// whatever the number in flight, and none waits for a slow reader: a run has at most three completions in
/// the queue. A completion may arrive shortly after kvmem_transfer_wait has returned.
pub struct kvmem_queue {
    handle: Handle<OpenQueue>,
}
opaque!(kvmem_queue, OpenQueue, "queue");

/// A run of a transfer or request has ended.
pub const KVMEM_COMPLETION_RUN_ENDED: u32 = 1;
/// Layers of a run have moved; only with `layers_per_completion` of kvmem_transfer_options. The numbers of
/// layers of a run ascend, and its end follows. If the run succeeds, the last number is that of all layers.
/// While one waits in the queue, further ones only increase its number.
pub const KVMEM_COMPLETION_LAYERS_MOVED: u32 = 2;
/// The memory of a run that had ended is released; only with KVMEM_TRANSFER_REPORT_RELEASE or
/// KVMEM_NIXL_REPORT_RELEASE. It follows each KVMEM_COMPLETION_RUN_ENDED with `released` 0, once, also if the
/// transfer is destroyed meanwhile. Then the transfer can be submitted again; the completions of the next run
/// are behind this one.
pub const KVMEM_COMPLETION_MEMORY_RELEASED: u32 = 3;
/// An agent has messages: see kvmem_agent_report_notifications.
pub const KVMEM_COMPLETION_NOTIFICATIONS: u32 = 4;
/// A directory has events: see kvmem_directory_report_events.
pub const KVMEM_COMPLETION_EVENTS: u32 = 5;

/// What has happened to a run of a transfer or request, or elsewhere.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_completion {
    /// user_data of the kvmem_submit_options of the run, or of what else reports.
    pub user_data: u64,
    /// At the end of a run: bytes moved; 0 after a failure. Otherwise 0.
    pub bytes: u64,
    /// Layers of the run that have moved, from the first on, as in kvmem_transfer_info; 0 for requests.
    pub num_layers: u64,
    /// KVMEM_COMPLETION_* value.
    pub kind: u32,
    /// At the end of a run: KVMEM_STATUS_OK, or how it failed; kvmem_transfer_poll returns the message. For
    /// KVMEM_COMPLETION_MEMORY_RELEASED: KVMEM_STATUS_OK, or KVMEM_STATUS_BUSY if nothing will detect when
    /// the memory is no longer in use, as after a failure of the driver. Otherwise KVMEM_STATUS_OK.
    pub status: kvmem_status,
    /// 1 if the run no longer uses its memory: its blocks can be used again, and adopted memory can be freed.
    /// It is 0 at the end of a run whose started parts still use memory, as after `run_timeout_ns`.
    pub released: u32,
    /// 0.
    pub reserved: u32,
}

/// Creates an empty queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_queue_create(
    queue: *mut *mut kvmem_queue,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (queue, "queue"), |_| Ok(OpenQueue(Queue::create()?)))
}

/// Returns the event fd of a queue, for poll and epoll: it is readable while the queue has completions. The
/// caller must neither read nor close it.
///
/// @param fd receives the fd, which is valid as long as the queue
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_queue_get_fd(
    queue: *const kvmem_queue,
    fd: *mut i32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (fd, "fd"), |scope| Ok(borrow(scope, queue)?.fd()))
}

/// Removes completions from a queue, and waits for one if there is none.
///
/// @param timeout_ns 0 takes what is there, and succeeds also if there is none
/// @param completions receives the completions, oldest first
/// @param capacity elements of completions, at least 1
/// @param count receives the number of completions, at least 1; with timeout_ns 0 it may be 0
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_queue_wait(
    queue: *mut kvmem_queue,
    timeout_ns: u64,
    completions: *mut kvmem_completion,
    capacity: usize,
    count: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_on(queue, error, |queue| {
        collect(completions, capacity, count, |limit, put| {
            if timeout_ns == 0 {
                Ok(queue.poll(limit, put))
            } else {
                queue.wait(limit, timeout(timeout_ns), put)
            }
        })
    })
}

/// Destroys a queue and closes its event fd. Transfers that report to it continue, without completions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_queue_destroy(queue: *mut kvmem_queue) {
    destroy(queue);
}

/// Maximum number of completions per call: other threads cannot use the queue meanwhile.
const BATCH: usize = 64;

/// # Safety
/// `completions` must be NULL or writable for `capacity` items, `count` NULL or writable.
#[inline]
unsafe fn collect(
    completions: *mut kvmem_completion,
    capacity: usize,
    count: *mut usize,
    take: impl FnOnce(usize, &mut dyn FnMut(QueueEntry)) -> Result<usize>,
) -> Result<()> {
    ensure!(capacity > 0, InvalidArgument, "capacity is 0; at least one completion must fit");
    let count = out(count, "count")?;
    let mut completions = OutItems::new(completions, capacity, ("completions", "capacity"))?;
    let taken = take(capacity.min(BATCH), &mut |entry| completions.push(to_c(&entry)))?;
    count.write(taken);
    Ok(())
}

#[inline]
fn to_c(entry: &QueueEntry) -> kvmem_completion {
    kvmem_completion {
        user_data: entry.user_data,
        bytes: entry.bytes,
        num_layers: entry.layers,
        kind: match entry.kind {
            EntryKind::RunEnded => KVMEM_COMPLETION_RUN_ENDED,
            EntryKind::LayersMoved => KVMEM_COMPLETION_LAYERS_MOVED,
            EntryKind::MemoryReleased => KVMEM_COMPLETION_MEMORY_RELEASED,
            EntryKind::Notifications => KVMEM_COMPLETION_NOTIFICATIONS,
            EntryKind::Events => KVMEM_COMPLETION_EVENTS,
        },
        status: entry.status.map_or(KVMEM_STATUS_OK, |status| status as kvmem_status),
        released: entry.is_released.into(),
        reserved: 0,
    }
}
