// SPDX-License-Identifier: Apache-2.0
//! What a process publishes in a directory.

use std::ffi::c_char;

use serde_bytes::ByteBuf;

use crate::base::{Error, Result, ensure};
use crate::directory::entry::check_layout_count;
use crate::directory::offers::Offer;
use crate::directory::{Content, PublishedLayout};
use crate::ffi::agent::kvmem_agent;
use crate::ffi::broker::kvmem_broker;
use crate::ffi::common::{
    Scope, borrow, borrow_nullable, call, deadline, items, kvmem_error, kvmem_status, read_nullable, text,
    timeout,
};
use crate::ffi::layout::kvmem_layout;
use crate::ffi::nixl::directory::kvmem_directory;
use crate::ffi::share::create::{grant, kvmem_share_options};
use crate::nixl::{Command, within};
use crate::region::{Access, FutureWrites};
use crate::share::offer::offer;
use crate::share::{ShareOptions, Transport};

/// A layout to publish.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_named_layout {
    /// Name, unique among the layouts of the agent.
    pub name: *const c_char,
    /// A layout that was built with the agent, as for kvmem_layout_export.
    pub layout: *const kvmem_layout,
    /// Broker of this process that offers the memory to processes of this machine while the layout is
    /// published; kvmem_directory_entry_open_layout maps it there. NULL for none: peers use NIXL only.
    pub broker: *const kvmem_broker,
    /// Access and transport of the broker's share; NULL for reading only, and without a broker.
    pub share: *const kvmem_share_options,
}

/// Publishes the metadata and layouts of an agent under its name. Replaces the entry of that name, also that
/// of another process: a restarted agent replaces its predecessor.
///
/// Call it again after further memory was registered. Peers find the old entry until the new one is complete.
/// The entry exists until it is withdrawn, the directory is destroyed, or the process ends. If it is removed
/// or damaged by another process, it is published again.
///
/// With a broker, each publication offers a share of its own, until the next publication, the withdrawal, or
/// the end of the directory or of the broker. The share keeps the memory of the layout; extents of an elastic
/// layout that are committed at the call cannot be decommitted meanwhile. The entry contains the token of the
/// share, so each process that can read the entry, and that the broker serves, can fetch it.
///
/// @param agent an agent with a backend that reaches peers
/// @param layouts layouts of the agent; NULL with count 0 for none
/// @param count number of layouts, at most 1024
/// @return KVMEM_STATUS_INVALID_ARGUMENT: a name is empty, too long or not unique, or a layout is of another
///           agent
///         KVMEM_STATUS_INVALID_STATE, KVMEM_STATUS_UNSUPPORTED: as for kvmem_layout_export
///         KVMEM_STATUS_OUT_OF_RANGE: the entry would have more than 1 MiB
///         KVMEM_STATUS_TIMED_OUT: the directory does not respond, and the entry may still be published; or a
///           call of NIXL has not returned 100 ms after the timeout
///         KVMEM_STATUS_PERMISSION_DENIED, KVMEM_STATUS_OUT_OF_MEMORY, KVMEM_STATUS_IO: the entry cannot be
///           stored, or etcd is not reached; the message has the reason
///         KVMEM_STATUS_NIXL: the agent has no metadata
///         with a broker, any status of kvmem_share_create_layout
///
/// Notes: a name has at most 200 bytes. Every byte other than A-Z a-z 0-9 - _ and . counts as three.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_publish(
    directory: *const kvmem_directory,
    agent: *mut kvmem_agent,
    layouts: *const kvmem_named_layout,
    count: usize,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let directory = borrow(scope, directory)?;
        let agent = &borrow(scope, agent)?.agent;
        let end = deadline(timeout_ns);
        let layouts = items(layouts, count, ("layouts", "count"))?;
        let content = || {
            let end = agent.call_deadline_before(end);
            let metadata = agent.call_until(end, Command::LocalMetadata)?;
            let mut content = Content { metadata, layouts: Vec::new(), offers: Vec::new() };
            within(end, || export(scope, agent.name(), layouts, &mut content))?;
            Ok(content)
        };
        directory.publish(agent.name(), agent.log_id(), content, end)
    })
}

/// Adds the layouts to the content of an entry.
///
/// # Safety
/// The pointers of the items must be valid.
unsafe fn export(
    scope: &Scope<'_>,
    agent: &str,
    layouts: &[kvmem_named_layout],
    content: &mut Content,
) -> Result<()> {
    // Before they are exported, which takes longer.
    check_layout_count(layouts.len())?;
    for (index, item) in layouts.iter().enumerate() {
        let named = text::required(item.name, "the name of a layout");
        let borrowed = named.and_then(|name| Ok((name, borrow(scope, item.layout)?)));
        let (name, layout) =
            borrowed.map_err(|error| error.context(format!("layouts[{index}] of {}", layouts.len())))?;
        let memory = layout.memory();
        let owner = memory.owner();
        ensure!(
            owner.is_none_or(|owner| owner == agent),
            InvalidArgument,
            "layouts[{index}] of {}, '{name}', is of agent '{}', and agent '{agent}' is published",
            layouts.len(),
            owner.unwrap_or_default()
        );
        let publishing = |error: Error| error.context(format!("publish layout '{name}'"));
        let descriptor = ByteBuf::from(layout.export().map_err(publishing)?);
        let (broker, granted) = (borrow_nullable(scope, item.broker)?, read_nullable(item.share)?);
        ensure!(
            broker.is_some() || granted.is_none(),
            InvalidArgument,
            "share of layouts[{index}] is given, and broker is NULL; give the broker that offers the share"
        );
        let granted = granted.map_or(Ok(READ_ONLY), |granted| grant(Some(granted)))?;
        let offered = broker.map(|broker| offer(layout, granted, broker)).transpose().map_err(publishing)?;
        let (share, loan) = offered.unzip();
        content.layouts.push(PublishedLayout { name: name.to_string(), descriptor, share });
        content.offers.extend(loan.map(|loan| Box::new(loan) as Offer));
    }
    Ok(())
}

/// Processes that read a directory may only read by default.
const READ_ONLY: ShareOptions =
    ShareOptions { access: Access::Read, way: Transport::Auto, writes: FutureWrites::Allowed };

/// Removes an entry that was published with this directory handle.
///
/// @return KVMEM_STATUS_NOT_FOUND: the agent was not published with this handle
///         KVMEM_STATUS_STALE: another process has published an agent of that name since; its entry remains
///         KVMEM_STATUS_TIMED_OUT, KVMEM_STATUS_IO: the directory does not respond. In etcd the entry is not
///           published again, and is removed when a server is reached, or when its lease ends
///         KVMEM_STATUS_PERMISSION_DENIED: the folder may not be changed; the entry remains
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_withdraw(
    directory: *const kvmem_directory,
    agent: *const c_char,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        borrow(scope, directory)?.withdraw(text::required(agent, "agent")?, timeout(timeout_ns))
    })
}
