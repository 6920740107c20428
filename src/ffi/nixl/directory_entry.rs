// SPDX-License-Identifier: Apache-2.0
//! Entries of directories.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde_bytes::ByteBuf;

use crate::base::{Count, Error, Result, Status, ensure};
use crate::directory::{Entry, PublishedLayout};
use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::{
    Array, Handle, Out, borrow, call, deadline, destroy, kvmem_error, kvmem_status, opaque, out,
    read_nullable, text,
};
use crate::ffi::layout::kvmem_layout;
use crate::ffi::share::open::{kvmem_open_options, opening};
use crate::layout::Layout;
use crate::nixl::{Agent, Command, FoundMetadata, LookUp, within};
use crate::share::offer::open_published;

/// The entry of an agent when it was looked up.
pub struct kvmem_directory_entry {
    handle: Handle<FoundEntry>,
}
opaque!(kvmem_directory_entry, FoundEntry, "directory entry");

/// An entry, with its names as C strings.
pub struct FoundEntry {
    /// The entry.
    pub entry: Entry,
    look_up: LookUp,
    name: CString,
    layouts: Array<kvmem_published_layout, (CString, ByteBuf)>,
}

impl FoundEntry {
    /// Loads the metadata, until the deadline of the caller and the limit of the agent.
    pub fn load(&self, agent: &Agent, deadline: Option<Instant>) -> Result<()> {
        let Entry { presence, metadata, layouts } = &self.entry;
        let found = FoundMetadata {
            peer: presence.name.clone(),
            metadata: metadata.to_vec(),
            look_up: self.look_up,
            process: layouts.first().and_then(|layout| Layout::exporter(&layout.descriptor)),
        };
        let deadline = agent.call_deadline_before(deadline);
        agent.call_until(deadline, |reply| Command::LoadFound(Box::new(found), reply))
    }

    fn published(&self, name: &str) -> Result<&PublishedLayout> {
        let Entry { presence, layouts, .. } = &self.entry;
        let missing = || {
            let names: Vec<_> = layouts.iter().take(16).map(|each| each.name.as_str()).collect();
            let message = format!(
                "agent '{}' has published no layout '{name}'; it has {}{}{}",
                presence.name,
                Count(layouts.len() as u64, "layout"),
                if names.is_empty() { "" } else { ": " },
                names.join(", ")
            );
            Error::new(Status::NotFound, message)
        };
        layouts.iter().find(|each| each.name == name).ok_or_else(missing)
    }

    fn import(&self, published: &PublishedLayout, agent: &Arc<Agent>) -> Result<Arc<Layout>> {
        let imported = Layout::import(agent, &published.descriptor)?;
        let (owner, named) = (imported.memory().owner().unwrap_or_default(), &self.entry.presence.name);
        ensure!(
            owner == named,
            Corrupt,
            "layout '{}' of agent '{named}' is in memory of agent '{owner}'",
            published.name
        );
        Ok(imported)
    }
}

impl From<Entry> for FoundEntry {
    fn from(entry: Entry) -> Self {
        // Names without NUL bytes: entries were checked when they were read.
        let text = |name: &String| CString::new(name.as_str()).unwrap_or_default();
        let layouts =
            entry.layouts.iter().map(|layout| (text(&layout.name), layout.descriptor.clone())).collect();
        let layouts = Array::new(layouts, |(name, descriptor): &(CString, ByteBuf)| kvmem_published_layout {
            name: name.as_ptr(),
            descriptor: descriptor.as_ptr().cast(),
            size: descriptor.len(),
        });
        static LOOK_UPS: AtomicU64 = AtomicU64::new(0);
        let number = LOOK_UPS.fetch_add(1, Ordering::Relaxed);
        let look_up = LookUp { incarnation: entry.presence.incarnation, number };
        Self { name: text(&entry.presence.name), look_up, layouts, entry }
    }
}

/// A layout in an entry. The pointers are valid as long as the kvmem_directory_entry.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_published_layout {
    /// Name under which it was published.
    pub name: *const c_char,
    /// Bytes of kvmem_layout_export.
    pub descriptor: *const c_void,
    /// Number of bytes.
    pub size: usize,
}

/// The content of an entry. The pointers are valid as long as the kvmem_directory_entry.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_directory_entry_info {
    /// Name of the agent.
    pub agent: *const c_char,
    /// Random number of the agent, not 0. A restarted agent has another one.
    pub incarnation: u64,
    /// Counts the publications of the agent, from 1.
    pub version: u64,
    /// NIXL's metadata of the agent.
    pub metadata: *const c_void,
    /// Number of bytes of the metadata.
    pub metadata_size: usize,
    /// Its layouts; NULL if it has none.
    pub layouts: *const kvmem_published_layout,
    /// Number of layouts.
    pub layout_count: usize,
}

/// Returns the content of an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_entry_get_info(
    entry: *const kvmem_directory_entry,
    info: *mut kvmem_directory_entry_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let found = borrow(scope, entry)?;
        let Entry { presence, metadata, .. } = &found.entry;
        let (layouts, layout_count) = found.layouts.raw();
        out(info, "info")?.write(kvmem_directory_entry_info {
            agent: found.name.as_ptr(),
            incarnation: presence.incarnation,
            version: presence.version,
            metadata: metadata.as_ptr().cast(),
            metadata_size: metadata.len(),
            layouts,
            layout_count,
        });
        Ok(())
    })
}

/// Loads the metadata of an entry, so that an agent can access the memory of the agent that published it.
///
/// If the peer was restarted since its metadata was loaded, the old metadata is removed first: layouts
/// that were imported before then fail with KVMEM_STATUS_STALE.
///
/// @param agent the agent that will access the memory
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the entry is that of the agent itself
///         KVMEM_STATUS_STALE: an entry of the restarted peer, which was looked up later than this one, is
///           loaded; nothing has changed. Look the peer up again
///         KVMEM_STATUS_PEER_LOST: the process that published the entry has ended. That is found for a
///           process of this machine and PID namespace that has published a layout
///         KVMEM_STATUS_CORRUPT: the metadata is that of another agent
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_NOT_FOUND: the bytes are not metadata, or no backend reaches the
///           peer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_entry_load(
    entry: *const kvmem_directory_entry,
    agent: *mut kvmem_agent,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let found = borrow(scope, entry)?;
        found.load(&borrow(scope, agent)?.agent, None)
    })
}

/// Opens a layout of an entry: maps its memory if possible, or accesses it through NIXL.
///
/// The memory is mapped if the layout was published with a broker, on this machine and since its last start,
/// the socket of the broker is reachable, and the broker runs as the user of this process, and serves it.
/// The rights are those that the publisher has granted, by default for reading only. Neither an agent nor
/// NIXL is needed then. Otherwise `agent` of the options accesses the layout, and the metadata of the entry
/// is loaded if it is not. `locality` of kvmem_layout_info returns which of the two was chosen, and the log
/// why the memory was not mapped (KVMEM_LOG_INFO).
///
/// @param name name under which the layout was published
/// @param options as for kvmem_share_open_layout; NULL for the defaults
/// @return KVMEM_STATUS_NOT_FOUND: the entry has no layout of that name
///         KVMEM_STATUS_PEER_LOST: the process that published the layout has ended
///         KVMEM_STATUS_STALE: another process listens at the path of the broker, or has created the share
///         KVMEM_STATUS_TIMED_OUT: the broker or NIXL has not responded in time
///         with KVMEM_OPEN_MAPPED_ONLY or without an agent, if the memory cannot be mapped:
///         KVMEM_STATUS_UNSUPPORTED: the layout is on another machine, or was published without a broker; or
///           as for kvmem_share_open_layout
///         KVMEM_STATUS_NOT_FOUND: the socket of the broker is not reachable from here, as in another
///           container, or the broker has ended
///         KVMEM_STATUS_PERMISSION_DENIED: the publisher runs as another user, does not serve this one, has
///           granted less access than KVMEM_OPEN_READ_WRITE, or has published again since
///         KVMEM_STATUS_BUSY: the broker serves too many clients
///         other statuses: as for kvmem_share_open_layout, kvmem_directory_entry_load and kvmem_layout_import
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_entry_open_layout(
    entry: *const kvmem_directory_entry,
    name: *const c_char,
    options: *const kvmem_open_options,
    timeout_ns: u64,
    layout: *mut *mut kvmem_layout,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let layout = Out::new(layout, "layout")?;
        let found = borrow(scope, entry)?;
        let published = found.published(text::required(name, "name")?)?;
        let opening = opening(scope, read_nullable(options)?)?;
        let end = deadline(timeout_ns);
        let import = |agent: &_| match found.import(published, agent) {
            // The metadata is not loaded, or is that of an earlier process.
            Err(error) if matches!(error.status(), Status::NotFound) => {
                found.load(agent, end)?;
                found.import(published, agent)
            }
            imported => imported,
        };
        layout.set(within(end, || open_published(published, &opening, end, import))?.into());
        Ok(())
    })
}

/// Destroys an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_entry_destroy(entry: *mut kvmem_directory_entry) {
    destroy(entry);
}
