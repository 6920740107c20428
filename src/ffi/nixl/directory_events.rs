// SPDX-License-Identifier: Apache-2.0
//! Events of directories.

use std::ffi::{CString, c_char};

use crate::directory::board::{Change, Event};
use crate::ffi::common::status::{KVMEM_STATUS_CORRUPT, KVMEM_STATUS_OK, KVMEM_STATUS_STALE, kvmem_status};
use crate::ffi::common::{Array, destroy, item_list};

/// Events, each with its agent's name and its message.
pub type Events = Array<kvmem_directory_event, (Event, CString, CString)>;

/// An agent has an entry, and had none.
pub const KVMEM_DIRECTORY_PUBLISHED: u32 = 1;
/// An agent was restarted: its entry is that of another incarnation.
pub const KVMEM_DIRECTORY_RESTARTED: u32 = 2;
/// An agent has published again.
pub const KVMEM_DIRECTORY_UPDATED: u32 = 3;
/// An agent was withdrawn, or its process has ended: it has no entry.
pub const KVMEM_DIRECTORY_WITHDRAWN: u32 = 4;
/// The entry of an agent is invalid.
pub const KVMEM_DIRECTORY_INVALID: u32 = 5;
/// Another process has published an agent that this handle had published. The entry of the other process
/// remains. It is reported also if nothing is watched.
pub const KVMEM_DIRECTORY_SUPERSEDED: u32 = 6;
/// The directory cannot be reached. kvmem tries again; changes are reported later. With KVMEM_STATUS_PANIC a
/// bug has ended its thread: no event follows, and calls fail. Create the directory again.
pub const KVMEM_DIRECTORY_INTERRUPTED: u32 = 7;
/// The directory is reached again. All changes in the meantime are reported, before or after this event.
pub const KVMEM_DIRECTORY_RESUMED: u32 = 8;
/// An entry that this handle has published was missing or damaged, and is published again: its lease had
/// ended, because the process was stopped or no server was reached, or another program has removed it.
/// Watchers may have received KVMEM_DIRECTORY_WITHDRAWN. It is reported also if nothing is watched.
pub const KVMEM_DIRECTORY_RESTORED: u32 = 9;
/// There are more than 65536 entries, invalid ones included, and those beyond are not reported: the memory
/// of a watch is bounded. It is reported once, and again only after the watch of all agents has ended. End
/// that watch (kvmem_directory_unwatch with NULL), then watch single agents.
pub const KVMEM_DIRECTORY_FULL: u32 = 10;

/// An event. The pointers are valid as long as the kvmem_directory_events.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_directory_event {
    /// KVMEM_DIRECTORY_* value.
    pub kind: u32,
    /// KVMEM_STATUS_CORRUPT for KVMEM_DIRECTORY_INVALID, KVMEM_STATUS_STALE for KVMEM_DIRECTORY_SUPERSEDED,
    /// the status of the failure for KVMEM_DIRECTORY_INTERRUPTED, KVMEM_STATUS_OUT_OF_MEMORY for
    /// KVMEM_DIRECTORY_FULL, KVMEM_STATUS_OK for other kinds.
    pub status: kvmem_status,
    /// Name of the agent; empty for KVMEM_DIRECTORY_INTERRUPTED, _RESUMED and _FULL.
    pub agent: *const c_char,
    /// Of the entry; of the last one for KVMEM_DIRECTORY_WITHDRAWN; otherwise 0.
    pub incarnation: u64,
    /// Version of the entry; as incarnation.
    pub version: u64,
    /// The cause, and what to do, for KVMEM_DIRECTORY_INVALID, KVMEM_DIRECTORY_SUPERSEDED,
    /// KVMEM_DIRECTORY_INTERRUPTED, KVMEM_DIRECTORY_RESTORED and KVMEM_DIRECTORY_FULL; empty for other kinds.
    pub message: *const c_char,
}

/// Events that were taken from a directory. The caller destroys them.
#[repr(C)]
pub struct kvmem_directory_events {
    /// Events; those of one agent are in order; NULL if there are none.
    pub items: *const kvmem_directory_event,
    /// Their number.
    pub count: usize,
}
item_list!(kvmem_directory_events, Events, "directory events");

/// Events as an array for C.
pub(in crate::ffi) fn value(events: Vec<Event>) -> Events {
    let text = |text: &str| CString::new(text.replace('\0', "?")).unwrap_or_default();
    let message = |change: &Change| match change {
        Change::Invalid(reason) => text(reason),
        Change::Superseded => text(
            "another process has published an agent of this name, and peers find that one; give each agent a name of its own, or \
             publish again to replace the entry",
        ),
        Change::Restored => text(
            "the entry was missing or damaged, and is published again; peers that watch may have seen the agent withdrawn",
        ),
        Change::Interrupted(error) | Change::Full(error) => text(error.message()),
        _ => CString::default(),
    };
    let owner = |event: Event| {
        let (agent, message) = (text(&event.agent), message(&event.change));
        (event, agent, message)
    };
    let owners = events.into_iter().map(owner).collect();
    Array::new(owners, |(event, agent, message): &(Event, CString, CString)| kvmem_directory_event {
        kind: kind(&event.change),
        status: status(&event.change),
        agent: agent.as_ptr(),
        incarnation: event.incarnation,
        version: event.version,
        message: message.as_ptr(),
    })
}

fn kind(change: &Change) -> u32 {
    match change {
        Change::Published => KVMEM_DIRECTORY_PUBLISHED,
        Change::Restarted => KVMEM_DIRECTORY_RESTARTED,
        Change::Updated => KVMEM_DIRECTORY_UPDATED,
        Change::Withdrawn => KVMEM_DIRECTORY_WITHDRAWN,
        Change::Invalid(_) => KVMEM_DIRECTORY_INVALID,
        Change::Superseded => KVMEM_DIRECTORY_SUPERSEDED,
        Change::Interrupted(_) => KVMEM_DIRECTORY_INTERRUPTED,
        Change::Resumed => KVMEM_DIRECTORY_RESUMED,
        Change::Restored => KVMEM_DIRECTORY_RESTORED,
        Change::Full(_) => KVMEM_DIRECTORY_FULL,
    }
}

fn status(change: &Change) -> kvmem_status {
    match change {
        Change::Invalid(_) => KVMEM_STATUS_CORRUPT,
        Change::Superseded => KVMEM_STATUS_STALE,
        Change::Interrupted(error) | Change::Full(error) => error.status() as kvmem_status,
        _ => KVMEM_STATUS_OK,
    }
}

/// Destroys events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_events_destroy(events: *mut kvmem_directory_events) {
    destroy(events);
}
