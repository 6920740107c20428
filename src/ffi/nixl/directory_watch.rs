// SPDX-License-Identifier: Apache-2.0
//! Watching a directory: its events.

use std::ffi::c_char;

use crate::base::Result;
use crate::ffi::common::{borrow, borrow_nullable, call, call_new, kvmem_error, kvmem_status, text, timeout};
use crate::ffi::nixl::directory::kvmem_directory;
use crate::ffi::nixl::directory_events::{self, kvmem_directory_events};
use crate::ffi::queue::kvmem_queue;
use crate::transfer::{EntryKind, QueueEntry};

/// Begins to watch an agent, or all. The first events report the current state, later events the changes.
///
/// @param agent name of the agent, which need not be published yet; NULL for all agents
/// @return KVMEM_STATUS_TIMED_OUT: the directory does not respond; nothing is watched
///         KVMEM_STATUS_OUT_OF_MEMORY, KVMEM_STATUS_IO, KVMEM_STATUS_PERMISSION_DENIED: nothing is watched
///
/// Notes: watch single agents if there are thousands. At most 65536 agents are kept, which bounds the memory.
/// Others are not reported, but KVMEM_DIRECTORY_FULL is. With etcd the call fails if all agents cannot be
/// listed within the timeout, or 10 seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_watch(
    directory: *const kvmem_directory,
    agent: *const c_char,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, directory)?.watch(nullable(agent)?, timeout(timeout_ns)))
}

/// Ends the watch of an agent, or of all. Events of agents that are no longer watched are discarded.
///
/// @param agent name of the agent; NULL ends the watch of all, and keeps those of single agents
/// @return KVMEM_STATUS_NOT_FOUND: it is not watched
///         KVMEM_STATUS_TIMED_OUT, KVMEM_STATUS_IO: no response; the watch has ended nevertheless
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_unwatch(
    directory: *const kvmem_directory,
    agent: *const c_char,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, directory)?.unwatch(nullable(agent)?, timeout(timeout_ns)))
}

/// # Safety
/// As for [`text::required`].
unsafe fn nullable<'a>(name: *const c_char) -> Result<Option<&'a str>> {
    if name.is_null() { Ok(None) } else { text::required(name, "agent").map(Some) }
}

/// Returns all events of a directory, and waits for one if there is none. Each event is returned once.
///
/// Changes of an agent that were not taken become one event: the difference between the last event that was
/// taken and the current state. So memory is bounded, however many changes there are.
///
/// @param events receives the events, at least one
/// @return KVMEM_STATUS_PANIC: a bug has ended the thread of the directory, and all events were taken
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_take_events(
    directory: *const kvmem_directory,
    timeout_ns: u64,
    events: *mut *mut kvmem_directory_events,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (events, "events"), |scope| {
        let taken = borrow(scope, directory)?.take_events(timeout(timeout_ns))?;
        Ok(directory_events::value(taken))
    })
}

/// Has a queue report that a directory has events, so that no thread needs to wait for them.
///
/// When events arrive and none waited before, the queue gets a KVMEM_COMPLETION_EVENTS. Take them then
/// (kvmem_directory_take_events, timeout 0). The next one follows when events arrive after that.
///
/// @param queue the queue, which replaces the one before; NULL ends the reports
/// @param user_data user_data of the completions
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_report_events(
    directory: *const kvmem_directory,
    queue: *mut kvmem_queue,
    user_data: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let directory = borrow(scope, directory)?;
        let queue = borrow_nullable(scope, queue)?.map(|open| open.0.clone());
        directory.ring_on_events(queue.map(|queue| {
            let entry = QueueEntry::news(EntryKind::Events, user_data);
            Box::new(move || queue.push(entry)) as Box<dyn Fn() + Send + Sync>
        }));
        Ok(())
    })
}
