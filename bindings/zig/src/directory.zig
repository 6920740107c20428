// SPDX-License-Identifier: Apache-2.0
//! Directories: agents are published and found by name.
const std = @import("std");
const c = @import("c");
const core = @import("core.zig");
const Agent = @import("agent.zig").Agent;
const Layout = @import("layout.zig").Layout;
const shares = @import("share.zig");
const Queue = @import("transfer.zig").Queue;
const Diagnostics = core.Diagnostics;
const Error = core.Error;
const call = core.call;

/// The kind of an event.
pub const DirectoryChange = enum(u32) {
    /// The agent has an entry, and had none.
    published = c.KVMEM_DIRECTORY_PUBLISHED,
    /// The agent was restarted: its entry is that of another incarnation.
    restarted = c.KVMEM_DIRECTORY_RESTARTED,
    /// The agent has published again.
    updated = c.KVMEM_DIRECTORY_UPDATED,
    /// The agent has no entry any more: it was withdrawn, or its process has ended.
    withdrawn = c.KVMEM_DIRECTORY_WITHDRAWN,
    /// What is stored under the name of the agent is not a valid entry.
    invalid = c.KVMEM_DIRECTORY_INVALID,
    /// Another process has published an agent that this directory had published. Its entry remains.
    superseded = c.KVMEM_DIRECTORY_SUPERSEDED,
    /// The directory cannot be reached. Changes are reported later.
    interrupted = c.KVMEM_DIRECTORY_INTERRUPTED,
    /// The directory is reached again.
    resumed = c.KVMEM_DIRECTORY_RESUMED,
    /// An entry of this directory was gone or damaged, and is published again. Peers may have seen it withdrawn.
    restored = c.KVMEM_DIRECTORY_RESTORED,
    /// More agents are published than a watch of all reports.
    full = c.KVMEM_DIRECTORY_FULL,
    _,
};

/// Set either `folder` or `endpoints`; the other fields are for etcd.
pub const DirectoryOptions = struct {
    /// Path of a folder of this machine. If it does not exist, the first publication creates it for its user alone, but not its parents.
    folder: ?[:0]const u8 = null,
    /// URLs of the servers of etcd.
    endpoints: []const [*:0]const u8 = &.{},
    /// Prefix of all keys; null for "kvmem".
    prefix: ?[:0]const u8 = null,
    /// Certificates of the authorities that sign those of the servers, in PEM. Required for https.
    ca_file: ?[:0]const u8 = null,
    /// Certificate of this client, and its key, in PEM.
    certificate_file: ?[:0]const u8 = null,
    key_file: ?[:0]const u8 = null,
    user: ?[:0]const u8 = null,
    /// In no message.
    password: ?[:0]const u8 = null,
    /// From the end of a process until etcd removes its entries, 2 to 3600; 0 for 10.
    lease_seconds: u32 = 0,
};

/// A layout to publish, and its name.
pub const NamedLayout = extern struct {
    name: [*:0]const u8,
    layout: *const c.kvmem_layout,
    /// Offers the memory to processes of this machine; null for none.
    broker: ?*const c.kvmem_broker = null,
    /// Access and transport of the offer; null for reading only. Used by `Directory.publish`.
    share: ?*const c.kvmem_share_options = null,

    pub fn init(name: [:0]const u8, layout: Layout) NamedLayout {
        return .{ .name = name.ptr, .layout = layout.handle };
    }

    /// A layout that a broker offers. `ShareOptions.toC` returns what `share` points to.
    pub fn initOffered(
        name: [:0]const u8,
        layout: Layout,
        broker: shares.Broker,
        share: ?*const c.kvmem_share_options,
    ) NamedLayout {
        return .{ .name = name.ptr, .layout = layout.handle, .broker = broker.handle, .share = share };
    }
};

/// An event. Valid as long as its DirectoryEvents.
pub const DirectoryEvent = struct {
    kind: DirectoryChange,
    /// Empty for `interrupted` and `resumed`.
    agent: [:0]const u8,
    incarnation: u64,
    version: u64,
    /// The status in C: 0, or why the entry is not valid, superseded, or the directory cannot be reached.
    status: i32,
    message: [:0]const u8,
};

/// Events that were taken from a directory.
pub const DirectoryEvents = struct {
    handle: *c.kvmem_directory_events,

    pub fn deinit(self: DirectoryEvents) void {
        c.kvmem_directory_events_destroy(self.handle);
    }

    pub fn count(self: DirectoryEvents) usize {
        return self.items().len;
    }

    pub fn get(self: DirectoryEvents, index: usize) DirectoryEvent {
        const found = self.items()[index];
        return .{
            .kind = @fromBackingInt(found.kind),
            .agent = std.mem.span(found.agent),
            .incarnation = found.incarnation,
            .version = found.version,
            .status = found.status,
            .message = std.mem.span(found.message),
        };
    }

    fn items(self: DirectoryEvents) []const c.kvmem_directory_event {
        return if (self.handle.count == 0) &.{} else self.handle.items[0..self.handle.count];
    }
};

/// A layout of an entry, with the bytes of `Layout.exportDescriptor`. Valid as long as its DirectoryEntry.
pub const PublishedLayout = struct { name: [:0]const u8, descriptor: []const u8 };

/// The content of an entry. Valid as long as its DirectoryEntry.
pub const DirectoryEntryInfo = struct {
    agent: [:0]const u8,
    /// A random number of the agent. A restarted agent has another one.
    incarnation: u64,
    /// Counts the publications of the agent, from 1.
    version: u64,
    metadata: []const u8,
    layout_count: usize,
};

/// The entry of an agent when it was looked up. It never changes, and needs no connection.
pub const DirectoryEntry = struct {
    handle: *c.kvmem_directory_entry,

    pub fn deinit(self: DirectoryEntry) void {
        c.kvmem_directory_entry_destroy(self.handle);
    }

    pub fn info(self: DirectoryEntry, diagnostics: ?*Diagnostics) Error!DirectoryEntryInfo {
        var found: c.kvmem_directory_entry_info = .{};
        try call(diagnostics, c.kvmem_directory_entry_get_info, .{ self.handle, &found });
        return .{
            .agent = std.mem.span(found.agent),
            .incarnation = found.incarnation,
            .version = found.version,
            .metadata = bytes(found.metadata, found.metadata_size),
            .layout_count = found.layout_count,
        };
    }

    pub fn layout(self: DirectoryEntry, index: usize, diagnostics: ?*Diagnostics) Error!PublishedLayout {
        var found: c.kvmem_directory_entry_info = .{};
        try call(diagnostics, c.kvmem_directory_entry_get_info, .{ self.handle, &found });
        const one: c.kvmem_published_layout = found.layouts[0..found.layout_count][index];
        return .{ .name = std.mem.span(one.name), .descriptor = bytes(one.descriptor, one.size) };
    }

    /// Loads the metadata, so that an agent can access the memory of the agent that published it. Layouts that were imported
    /// from an earlier incarnation fail with Stale.
    pub fn load(self: DirectoryEntry, agent: Agent, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_directory_entry_load, .{ self.handle, agent.handle });
    }

    /// Maps the layout if it is on this machine and was published with a broker, and otherwise accesses it through NIXL.
    pub fn openLayout(
        self: DirectoryEntry,
        name: [:0]const u8,
        options: shares.OpenOptions,
        timeout_ns: u64,
        diagnostics: ?*Diagnostics,
    ) Error!Layout {
        const o = options.toC();
        var handle: ?*c.kvmem_layout = null;
        try call(diagnostics, c.kvmem_directory_entry_open_layout, .{ self.handle, name.ptr, &o, timeout_ns, &handle });
        return .{ .handle = handle.? };
    }
};

/// Where agents publish their metadata and layouts under their names, and peers find them by name: a folder of one machine, or
/// etcd. Entries that were published exist until they are withdrawn, the directory is destroyed, or the process ends.
pub const Directory = struct {
    handle: *c.kvmem_directory,

    /// Opens a directory. With etcd it fails if no server responds.
    pub fn init(options: DirectoryOptions, diagnostics: ?*Diagnostics) Error!Directory {
        var o = core.toC(c.kvmem_directory_options, options);
        o.endpoints = if (options.endpoints.len == 0) null else @ptrCast(options.endpoints.ptr);
        o.endpoint_count = options.endpoints.len;
        var handle: ?*c.kvmem_directory = null;
        try call(diagnostics, c.kvmem_directory_create, .{ &o, &handle });
        return .{ .handle = handle.? };
    }

    /// Withdraws what the directory has published.
    pub fn deinit(self: Directory) void {
        c.kvmem_directory_destroy(self.handle);
    }

    /// Publishes an agent under its name, with layouts. The entry is replaced, also that of another process.
    pub fn publish(
        self: Directory,
        agent: Agent,
        layouts: []const NamedLayout,
        timeout_ns: u64,
        diagnostics: ?*Diagnostics,
    ) Error!void {
        const list: [*c]const c.kvmem_named_layout = @ptrCast(layouts.ptr);
        try call(diagnostics, c.kvmem_directory_publish, .{ self.handle, agent.handle, list, layouts.len, timeout_ns });
    }

    /// Removes the entry of an agent that this directory has published. Fails with Stale if another process has published the
    /// name since.
    pub fn withdraw(self: Directory, agent: [:0]const u8, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_directory_withdraw, .{ self.handle, agent.ptr, timeout_ns });
    }

    /// Waits until an agent is published, and returns its entry.
    pub fn waitFor(self: Directory, agent: [:0]const u8, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!DirectoryEntry {
        var handle: ?*c.kvmem_directory_entry = null;
        try call(diagnostics, c.kvmem_directory_connect, .{ self.handle, null, agent.ptr, timeout_ns, &handle });
        return .{ .handle = handle.? };
    }

    /// Waits until a peer is published, loads its metadata for an agent, and returns its entry.
    pub fn connect(
        self: Directory,
        agent: Agent,
        peer: [:0]const u8,
        timeout_ns: u64,
        diagnostics: ?*Diagnostics,
    ) Error!DirectoryEntry {
        var handle: ?*c.kvmem_directory_entry = null;
        try call(diagnostics, c.kvmem_directory_connect, .{ self.handle, agent.handle, peer.ptr, timeout_ns, &handle });
        return .{ .handle = handle.? };
    }

    /// The present entry of an agent. Fails with NotFound if there is none: `waitFor` waits for it.
    pub fn lookUp(self: Directory, agent: [:0]const u8, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!DirectoryEntry {
        var handle: ?*c.kvmem_directory_entry = null;
        try call(diagnostics, c.kvmem_directory_look_up, .{ self.handle, agent.ptr, timeout_ns, &handle });
        return .{ .handle = handle.? };
    }

    /// Fails with Stale if the agent has published another entry since, and with NotFound if it has none.
    pub fn check(self: Directory, entry: DirectoryEntry, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_directory_check, .{ self.handle, entry.handle, timeout_ns });
    }

    /// Begins to watch an agent, or all with null. The first events have the present state.
    pub fn watch(self: Directory, agent: ?[:0]const u8, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_directory_watch, .{ self.handle, pointer(agent), timeout_ns });
    }

    /// Ends the watch of an agent, or of all with null.
    pub fn unwatch(self: Directory, agent: ?[:0]const u8, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_directory_unwatch, .{ self.handle, pointer(agent), timeout_ns });
    }

    /// All events of what is watched; waits for one if there is none.
    pub fn takeEvents(self: Directory, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!DirectoryEvents {
        var handle: ?*c.kvmem_directory_events = null;
        try call(diagnostics, c.kvmem_directory_take_events, .{ self.handle, timeout_ns, &handle });
        return .{ .handle = handle.? };
    }

    /// Has a queue report that events have arrived; null ends the reports.
    pub fn reportEvents(self: Directory, queue: ?Queue, user_data: u64, diagnostics: ?*Diagnostics) Error!void {
        const to = if (queue) |reported| reported.handle else null;
        try call(diagnostics, c.kvmem_directory_report_events, .{ self.handle, to, user_data });
    }
};

fn pointer(text: ?[:0]const u8) [*c]const u8 {
    return if (text) |given| given.ptr else null;
}

fn bytes(first: ?*const anyopaque, size: usize) []const u8 {
    return if (first) |address| @as([*]const u8, @ptrCast(address))[0..size] else &.{};
}
