// SPDX-License-Identifier: Apache-2.0
//! Directories: agents are published and found by name.

use std::ffi::c_char;
use std::path::Path;
use std::time::Instant;

use serde_bytes::ByteBuf;

use crate::base::error::{Result, Status, ensure, fail};
use crate::directory::{Directory, Entry, EtcdConfig, Location, PublishedLayout};
use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Handle, Out, borrow, borrow_nullable, destroy, opaque};
use crate::ffi::common::options::{check_reserved, options, read};
use crate::ffi::common::pointer::items;
use crate::ffi::common::scope::Scope;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::text;
use crate::ffi::common::time::{deadline, timeout};
use crate::ffi::layout::kvmem_layout;
use crate::ffi::nixl::directory_entry::{FoundEntry, kvmem_directory_entry};
use crate::ffi::nixl::directory_events::{Events, kvmem_directory_events};
use crate::ffi::queue::kvmem_queue;
use crate::nixl::{Command, within};
use crate::transfer::QueueEntry;

/// A directory, in which agents publish their metadata and layouts, and peers find them by name. It is a
/// folder of one machine, or in etcd. An entry exists while the process that published it lives: in etcd
/// until its lease ends.
///
/// No call waits longer than 100 ms after its timeout; a timeout of 0 asks once, and waits so long for the
/// response. With etcd none waits longer than 10 seconds, also with KVMEM_TIMEOUT_FOREVER, except
/// kvmem_directory_wait_for and kvmem_directory_take_events.
///
/// Calls fail with KVMEM_STATUS_TIMED_OUT if the directory does not respond, and with KVMEM_STATUS_IO or
/// KVMEM_STATUS_PERMISSION_DENIED if the folder or the servers cannot be accessed.
///
/// Any process that can write to the directory can write anything. An invalid entry is reported as
/// KVMEM_STATUS_CORRUPT with its name, and is not used. A directory does not prove which process published an
/// entry: its permissions determine which processes can write to it.
pub struct kvmem_directory {
    handle: Handle<Directory>,
}
opaque!(kvmem_directory, Directory, "directory");

/// Options of kvmem_directory_create.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_directory_options {
    /// sizeof(kvmem_directory_options)
    pub struct_size: usize,
    /// Path of a folder of this machine, which all processes use. A relative path begins in the present
    /// working directory, also after that has changed. It is created with mode 0700 if it does not
    /// exist, but not its parents. Its permissions determine which processes can publish. NULL for etcd.
    pub folder: *const c_char,
    /// URLs of the servers of etcd, such as "https://10.0.0.1:2379", with http or https. NULL for a folder.
    pub endpoints: *const *const c_char,
    /// Number of endpoints, at most 64; 0 for a folder.
    pub endpoint_count: usize,
    /// Prefix of all keys; directories with different prefixes are independent. NULL for "kvmem", and for a
    /// folder.
    pub prefix: *const c_char,
    /// Seconds after the end of a process until etcd removes its entries, 2 to 3600; 0 for 10. For a folder
    /// 0, because the kernel reports the end of a process.
    pub lease_seconds: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Name of the user in etcd; NULL for none.
    pub user: *const c_char,
    /// Password of the user, which is never part of a message or of the log. Required with user.
    pub password: *const c_char,
    /// Path of a file with the certificates of the authorities that sign those of the servers, in PEM.
    /// Required for https, otherwise NULL.
    pub ca_file: *const c_char,
    /// Path of a file with the certificate of this client, in PEM; NULL for none. It needs https and
    /// key_file.
    pub certificate_file: *const c_char,
    /// Path of a file with the key of that certificate, in PEM; NULL for none.
    pub key_file: *const c_char,
}
options!(kvmem_directory_options);

/// A layout to publish.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_named_layout {
    /// Name, unique among the layouts of the agent.
    pub name: *const c_char,
    /// A layout that was built with the agent, as for kvmem_layout_export.
    pub layout: *const kvmem_layout,
}

/// Creates a directory handle. Does not need NIXL. Opens the folder, or connects to etcd.
///
/// @return KVMEM_STATUS_NOT_FOUND: a parent of the folder, or a file of the options, does not exist
///         KVMEM_STATUS_PERMISSION_DENIED: access to the folder or a file, or etcd rejects the user, the
///           password or the prefix
///         KVMEM_STATUS_IO: the folder cannot be opened, or no server of etcd is reached; the message has the
///           reason
///         KVMEM_STATUS_TIMED_OUT: etcd or the file system of the folder has not responded for 5 seconds
///         KVMEM_STATUS_UNSUPPORTED: libkvmem_etcd.so is not installed beside libkvmem.so
///
/// Notes: the client of etcd is a separate library, which is loaded here. It runs one thread per directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_create(
    options: *const kvmem_directory_options,
    directory: *mut *mut kvmem_directory,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |_| {
            let directory = Out::new(directory, "directory")?;
            let options = read(options)?;
            directory.set(Directory::open(&location(&options)?)?);
            Ok(())
        })
    }
}

/// # Safety
/// The strings must be NULL or NUL-terminated, and endpoints an array of endpoint_count.
unsafe fn location(options: &kvmem_directory_options) -> Result<Location> {
    check_reserved("kvmem_directory_options", options.reserved)?;
    let has_endpoints = !options.endpoints.is_null() || options.endpoint_count != 0;
    ensure!(
        options.folder.is_null() == has_endpoints,
        InvalidArgument,
        "kvmem_directory_options needs either folder or endpoints and endpoint_count, and has {}",
        if has_endpoints { "both" } else { "neither" }
    );
    // SAFETY: the caller's promise.
    if has_endpoints { unsafe { etcd(options) }.map(Location::Etcd) } else { unsafe { folder(options) } }
}

/// # Safety
/// As for [`location`].
unsafe fn folder(options: &kvmem_directory_options) -> Result<Location> {
    let of_etcd = [
        ("prefix", options.prefix),
        ("ca_file", options.ca_file),
        ("certificate_file", options.certificate_file),
        ("key_file", options.key_file),
        ("user", options.user),
        ("password", options.password),
    ];
    let set = of_etcd.into_iter().find(|(_, value)| !value.is_null()).map(|(name, _)| name);
    let set = set.or((options.lease_seconds != 0).then_some("lease_seconds"));
    ensure!(
        set.is_none(),
        InvalidArgument,
        "{} is an option of etcd, and folder is set",
        set.unwrap_or_default()
    );
    // SAFETY: the caller's promise.
    let folder = unsafe { text::path(options.folder) }.unwrap_or("".as_ref());
    ensure!(!folder.as_os_str().is_empty(), InvalidArgument, "folder is empty");
    Ok(Location::Folder(folder.to_path_buf()))
}

/// # Safety
/// As for [`location`].
unsafe fn etcd(options: &kvmem_directory_options) -> Result<EtcdConfig> {
    let count = options.endpoint_count;
    ensure!(
        (1..=64).contains(&count),
        InvalidArgument,
        "endpoint_count is {count}; it must be 1 to 64, the number of endpoints"
    );
    // SAFETY: the caller's promise.
    unsafe {
        let endpoints = items(options.endpoints, count, "endpoints")?
            .iter()
            .enumerate()
            .map(|(index, endpoint)| {
                text::required(*endpoint, &format!("endpoints[{index}]")).map(str::to_string)
            })
            .collect::<Result<Vec<_>>>()?;
        let optional = |value: *const c_char, name| {
            if value.is_null() {
                Ok(None)
            } else {
                text::required(value, name).map(|text| Some(text.to_string()))
            }
        };
        let path = |value| text::path(value).map(Path::to_path_buf);
        let identity = match (path(options.certificate_file), path(options.key_file)) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                fail!(InvalidArgument, "only one of certificate_file and key_file is set; set both, or none")
            }
        };
        let user = match (optional(options.user, "user")?, optional(options.password, "password")?) {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            _ => fail!(InvalidArgument, "only one of user and password is set; set both, or none"),
        };
        Ok(EtcdConfig {
            endpoints,
            prefix: optional(options.prefix, "prefix")?.unwrap_or_default(),
            authority: path(options.ca_file),
            identity,
            user,
            lease_seconds: options.lease_seconds,
        })
    }
}

/// Publishes the metadata and layouts of an agent under its name. Replaces the entry of that name, also that
/// of another process: a restarted agent replaces its predecessor.
///
/// Call it again after further memory was registered. Peers find the old entry until the new one is complete.
/// The entry exists until it is withdrawn, the directory is destroyed, or the process ends. If it is removed
/// or damaged by another process, it is published again.
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
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let directory = borrow(scope, directory)?;
            let agent = &borrow(scope, agent)?.agent;
            let end = deadline(timeout_ns);
            let layouts = items(layouts, count, "layouts")?;
            let content = || {
                let metadata = agent.call_until(end, Command::LocalMetadata)?;
                Ok((metadata, within(end, || exported(scope, agent.name(), layouts))?))
            };
            directory.publish(agent.name(), agent.log_id(), content, end)
        })
    }
}

/// # Safety
/// The names and layouts of the items must be valid.
unsafe fn exported<'a>(
    scope: &Scope<'a>,
    agent: &str,
    layouts: &[kvmem_named_layout],
) -> Result<Vec<PublishedLayout>> {
    let mut exported = Vec::with_capacity(layouts.len().min(1024));
    for (index, item) in layouts.iter().enumerate() {
        // SAFETY: the caller's promise.
        let named = unsafe { text::required(item.name, "the name of a layout") };
        // SAFETY: the caller's promise.
        let borrowed = named.and_then(|name| Ok((name, unsafe { borrow(scope, item.layout) }?)));
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
        let descriptor =
            layout.export().map_err(|error| error.context(format!("publish layout '{name}'")))?;
        exported.push(PublishedLayout { name: name.to_string(), descriptor: ByteBuf::from(descriptor) });
    }
    Ok(exported)
}

/// Removes an entry that was published with this directory handle.
///
/// @return KVMEM_STATUS_NOT_FOUND: the agent was not published with this handle
///         KVMEM_STATUS_STALE: another process has published an agent of that name since; its entry remains
///         KVMEM_STATUS_TIMED_OUT: the directory does not respond; the entry ends at the latest when its
///           lease does
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_withdraw(
    directory: *const kvmem_directory,
    agent: *const c_char,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            borrow(scope, directory)?.withdraw(text::required(agent, "agent")?, timeout(timeout_ns))
        })
    }
}

/// Finds the entry of an agent. The entry is a copy, which later changes of the directory do not affect.
///
/// Does not wait for an agent that is not published: kvmem_directory_wait_for does.
///
/// @return KVMEM_STATUS_NOT_FOUND: the agent was not published, was withdrawn, or its process has ended
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_look_up(
    directory: *const kvmem_directory,
    agent: *const c_char,
    timeout_ns: u64,
    entry: *mut *mut kvmem_directory_entry,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        found(directory, agent, entry, error, |directory, agent| {
            directory.look_up(agent, timeout(timeout_ns))
        })
    }
}

/// # Safety
/// As for [`kvmem_directory_look_up`].
unsafe fn found(
    directory: *const kvmem_directory,
    agent: *const c_char,
    entry: *mut *mut kvmem_directory_entry,
    error: *mut *mut kvmem_error,
    find: impl FnOnce(&Directory, &str) -> Result<Entry>,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let entry = Out::new(entry, "entry")?;
            let directory = borrow(scope, directory)?;
            entry.set(find(directory, text::required(agent, "agent")?)?.into());
            Ok(())
        })
    }
}

/// Waits until an agent is published, and returns its entry. Returns at once if it is published, also with
/// a timeout of 0.
///
/// Notes: no events are reported for it, unless the agent is watched.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_wait_for(
    directory: *const kvmem_directory,
    agent: *const c_char,
    timeout_ns: u64,
    entry: *mut *mut kvmem_directory_entry,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        found(directory, agent, entry, error, |directory, agent| {
            directory.wait_for(agent, timeout(timeout_ns))
        })
    }
}

/// Waits until a peer is published, loads its metadata, and returns its entry: kvmem_directory_wait_for and
/// kvmem_directory_entry_load with one deadline. Then import its layouts.
///
/// @param agent the agent that will access the memory of the peer
/// @param peer name of the agent that the peer publishes
/// @return KVMEM_STATUS_TIMED_OUT: the peer was not published in time, the directory does not respond, or
///           NIXL has not returned 100 ms after the timeout; it may load the metadata later
///         KVMEM_STATUS_PEER_LOST: the peer has ended, and the directory still has its entry
///         other statuses: as for kvmem_directory_wait_for and kvmem_directory_entry_load
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_connect(
    directory: *const kvmem_directory,
    agent: *mut kvmem_agent,
    peer: *const c_char,
    timeout_ns: u64,
    entry: *mut *mut kvmem_directory_entry,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let entry = Out::new(entry, "entry")?;
            let directory = borrow(scope, directory)?;
            let agent = &borrow(scope, agent)?.agent;
            let peer = text::required(peer, "peer")?;
            let deadline = deadline(timeout_ns);
            loop {
                let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                let found = FoundEntry::from(directory.wait_for(peer, left)?);
                let loaded = found.load(agent, deadline);
                let is_stale = loaded.as_ref().is_err_and(|error| error.status() == Status::Stale);
                // Another thread has loaded a later entry since.
                if is_stale && left.is_none_or(|left| !left.is_zero()) {
                    continue;
                }
                loaded?;
                entry.set(found);
                return Ok(());
            }
        })
    }
}

/// Checks that an entry is still the current one of its agent.
///
/// @param entry an entry that was found in it
/// @return KVMEM_STATUS_STALE: the agent has published again since, or was restarted; the message says which
///         KVMEM_STATUS_NOT_FOUND: the agent was withdrawn, or its process has ended
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_check(
    directory: *const kvmem_directory,
    entry: *const kvmem_directory_entry,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let presence = &borrow(scope, entry)?.entry.presence;
            borrow(scope, directory)?.check(presence, timeout(timeout_ns))
        })
    }
}

/// Begins to watch an agent, or all agents. The first events report the current state, later events the
/// changes.
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
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, directory)?.watch(nullable(agent)?, timeout(timeout_ns))) }
}

/// Ends the watch of an agent, or of all agents. Events of agents that are not watched any more are
/// discarded.
///
/// @param agent name of the agent; NULL ends the watch of all, and keeps those of single agents
/// @return KVMEM_STATUS_NOT_FOUND: it is not watched
///         KVMEM_STATUS_TIMED_OUT: the directory does not respond; the watch has ended nevertheless
///         KVMEM_STATUS_IO: as for KVMEM_STATUS_TIMED_OUT
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_unwatch(
    directory: *const kvmem_directory,
    agent: *const c_char,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, directory)?.unwatch(nullable(agent)?, timeout(timeout_ns))) }
}

/// # Safety
/// As for [`text::required`].
unsafe fn nullable<'a>(name: *const c_char) -> Result<Option<&'a str>> {
    // SAFETY: the caller's promise.
    if name.is_null() { Ok(None) } else { unsafe { text::required(name, "agent") }.map(Some) }
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
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let events = Out::new(events, "events")?;
            let taken = borrow(scope, directory)?.take_events(timeout(timeout_ns))?;
            events.set(Events::new(taken));
            Ok(())
        })
    }
}

/// Has a queue report that a directory has events, so that no thread needs to wait for them.
///
/// When events arrive and none waited before, the queue gets a completion with status KVMEM_STATUS_OK and 0
/// bytes. Take the events with kvmem_directory_take_events then, with timeout 0. The next completion follows
/// when events arrive after that.
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
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let directory = borrow(scope, directory)?;
            let queue = borrow_nullable(scope, queue)?.map(|open| open.0.clone());
            directory.ring_on_events(queue.map(|queue| {
                let entry = QueueEntry { user_data, bytes: 0, status: None };
                Box::new(move || queue.push(entry)) as Box<dyn Fn() + Send + Sync>
            }));
            Ok(())
        })
    }
}

/// Destroys a directory handle. Withdraws the entries that were published with it, and waits at most two
/// seconds for that. Entries and events that were returned remain valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_destroy(directory: *mut kvmem_directory) {
    // SAFETY: by contract.
    unsafe { destroy(directory) };
}
