// SPDX-License-Identifier: Apache-2.0
const std = @import("std");
const c = @import("c");
const core = @import("core.zig");
const constants = @import("constants.zig");
const Diagnostics = core.Diagnostics;
const Error = core.Error;
const call = core.call;
const nixl = @import("nixl.zig");
const Queue = @import("transfer.zig").Queue;

/// Loads NIXL from the path of its file or directory; null for $KVMEM_NIXL_LIBRARY, or for what the loader finds.
pub fn loadNixl(path: ?[:0]const u8, diagnostics: ?*Diagnostics) Error!void {
    try call(diagnostics, c.kvmem_nixl_load, .{if (path) |text| text.ptr else null});
}

/// Path of the file that NIXL was loaded from, as text.
pub fn nixlPath(diagnostics: ?*Diagnostics) Error!core.Blob {
    return core.getBlob(diagnostics, c.kvmem_nixl_get_path, .{});
}

pub const AgentOptions = struct {
    flags: constants.AgentFlags = .{},
    progress_delay_ns: u64 = 0,
    listen_delay_ns: u64 = 0,
    listen_port: u32 = 0,
    sync_mode: constants.SyncMode = .default,
    /// Nanoseconds that calls without a timeout of their own wait for NIXL; 0 for 10 minutes.
    call_timeout_ns: u64 = 0,
};

/// A parameter of a backend.
pub const Parameter = extern struct { key: [*:0]const u8, value: [*:0]const u8 };

/// A message from a peer. Valid as long as the Notifications.
pub const Notification = struct { agent: [:0]const u8, data: []const u8 };

/// Messages that were taken from an agent.
pub const Notifications = struct {
    handle: *c.kvmem_notifications,

    pub fn deinit(self: Notifications) void {
        c.kvmem_notifications_destroy(self.handle);
    }

    pub fn count(self: Notifications) usize {
        return self.items().len;
    }

    pub fn get(self: Notifications, index: usize) Notification {
        const found = self.items()[index];
        const data: []const u8 = if (found.data) |first| @as([*]const u8, @ptrCast(first))[0..found.size] else &.{};
        return .{ .agent = std.mem.span(found.agent), .data = data };
    }

    fn items(self: Notifications) []const c.kvmem_notification {
        return if (self.handle.count == 0) &.{} else self.handle.items[0..self.handle.count];
    }
};

/// Sums over all runs of an agent's requests since it was created, those of transfers included.
pub const AgentTelemetry = struct {
    succeeded: u64,
    failed: u64,
    in_flight: u64,
    bytes_read: u64,
    bytes_written: u64,
    descriptors: u64,
    post_ns: u64,
    duration_ns: u64,
    longest_ns: u64,
    notifications_sent: u64,
    notifications_received: u64,
};

/// A NIXL agent. Registrations, layouts and transfers keep it alive.
pub const Agent = struct {
    handle: *c.kvmem_agent,

    /// Creates an agent. Peers know it by its name. Loads NIXL if it is not loaded.
    pub fn init(agent_name: [:0]const u8, options: AgentOptions, diagnostics: ?*Diagnostics) Error!Agent {
        const o = core.toC(c.kvmem_agent_options, options);
        var handle: ?*c.kvmem_agent = null;
        try call(diagnostics, c.kvmem_agent_create, .{ agent_name.ptr, &o, &handle });
        return .{ .handle = handle.? };
    }

    pub fn deinit(self: Agent) void {
        c.kvmem_agent_destroy(self.handle);
    }

    pub fn name(self: Agent) [:0]const u8 {
        return std.mem.span(c.kvmem_agent_name(self.handle));
    }

    /// Creates a backend: a NIXL plugin that moves bytes, such as "UCX" (peers) or "POSIX" (files).
    pub fn createBackend(
        self: Agent,
        plugin: [:0]const u8,
        parameters: []const Parameter,
        diagnostics: ?*Diagnostics,
    ) Error!void {
        const list: [*c]const c.kvmem_parameter = @ptrCast(parameters.ptr);
        try call(diagnostics, c.kvmem_agent_create_backend, .{ self.handle, plugin.ptr, list, parameters.len });
    }

    /// Metadata of the agent, which a peer loads. Get it after the last registration.
    pub fn metadata(self: Agent, diagnostics: ?*Diagnostics) Error!core.Blob {
        return core.getBlob(diagnostics, c.kvmem_agent_get_local_metadata, .{self.handle});
    }

    /// Loads the metadata of a peer, and returns its name as text.
    pub fn loadPeer(self: Agent, data: []const u8, diagnostics: ?*Diagnostics) Error!core.Blob {
        return core.getBlob(diagnostics, c.kvmem_agent_load_remote_metadata, .{ self.handle, core.pointer(data), data.len });
    }

    /// Fails with NotFound if the metadata of a peer is not loaded.
    pub fn checkPeer(self: Agent, peer: [:0]const u8, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_agent_check_remote_metadata, .{ self.handle, peer.ptr });
    }

    /// Removes the metadata of a peer. Layouts that were imported from it fail with Stale from now on.
    pub fn invalidatePeer(self: Agent, peer: [:0]const u8, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_agent_invalidate_remote_metadata, .{ self.handle, peer.ptr, null });
    }

    /// Requests the metadata of a peer from its listen thread.
    pub fn fetchPeer(
        self: Agent,
        peer: [:0]const u8,
        address: [:0]const u8,
        port: u32,
        timeout_ns: u64,
        diagnostics: ?*Diagnostics,
    ) Error!void {
        try call(diagnostics, c.kvmem_agent_fetch_remote_metadata, .{
            self.handle, peer.ptr, address.ptr, port, timeout_ns,
        });
    }

    /// Sends the metadata of the agent to the listen thread of a peer.
    pub fn sendMetadata(self: Agent, address: [:0]const u8, port: u32, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_agent_send_local_metadata, .{ self.handle, address.ptr, port });
    }

    /// Removes the metadata of all peers, and returns their number.
    pub fn invalidateAllPeers(self: Agent, diagnostics: ?*Diagnostics) Error!usize {
        var count: usize = 0;
        try call(diagnostics, c.kvmem_agent_invalidate_remote_metadata, .{ self.handle, null, &count });
        return count;
    }

    /// Asks the listen thread of a peer to remove the metadata of the agent.
    pub fn withdrawMetadata(self: Agent, address: [:0]const u8, port: u32, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_agent_invalidate_local_metadata, .{ self.handle, address.ptr, port });
    }

    /// Metadata of some memory, which a peer adds to the loaded metadata. That of no descriptors has the connection
    /// information.
    pub fn partialMetadata(
        self: Agent,
        descriptors: []const nixl.Descriptor,
        options: nixl.NixlOptions,
        diagnostics: ?*Diagnostics,
    ) Error!core.Blob {
        const o = options.toC();
        return core.getBlob(diagnostics, c.kvmem_agent_get_partial_metadata, .{ self.handle, nixl.firstOf(descriptors), descriptors.len, &o });
    }

    /// Sends metadata of some memory to the listen thread of a peer.
    pub fn sendPartialMetadata(
        self: Agent,
        descriptors: []const nixl.Descriptor,
        address: [:0]const u8,
        port: u32,
        diagnostics: ?*Diagnostics,
    ) Error!void {
        try call(diagnostics, c.kvmem_agent_send_partial_metadata, .{ self.handle, nixl.firstOf(descriptors), descriptors.len, address.ptr, port });
    }

    /// Connects to a peer now, so that the first transfer need not.
    pub fn connect(self: Agent, peer: [:0]const u8, options: nixl.NixlOptions, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!void {
        const o = options.toC();
        try call(diagnostics, c.kvmem_agent_connect, .{ self.handle, peer.ptr, &o, timeout_ns });
    }

    /// What the agent has moved. It must have been created with the flag `telemetry`.
    pub fn telemetry(self: Agent, diagnostics: ?*Diagnostics) Error!AgentTelemetry {
        return core.get(
            AgentTelemetry,
            c.kvmem_agent_telemetry,
            diagnostics,
            c.kvmem_agent_get_telemetry,
            .{self.handle},
        );
    }

    /// Has a queue get a completion when messages arrive and none waited before; null ends that.
    pub fn reportNotifications(self: Agent, queue: ?Queue, user_data: u64, diagnostics: ?*Diagnostics) Error!void {
        const handle: ?*c.kvmem_queue = if (queue) |given| given.handle else null;
        try call(diagnostics, c.kvmem_agent_report_notifications, .{ self.handle, handle, user_data });
    }

    /// Sends a message to a peer.
    pub fn notify(self: Agent, peer: [:0]const u8, message: []const u8, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_agent_notify, .{ self.handle, peer.ptr, core.pointer(message), message.len });
    }

    /// Returns all messages that the agent has received, and waits for one if there is none. Fails once with
    /// error.OutOfMemory where messages were lost, because too many waited.
    pub fn takeNotifications(self: Agent, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!Notifications {
        var handle: ?*c.kvmem_notifications = null;
        try call(diagnostics, c.kvmem_agent_take_notifications, .{ self.handle, timeout_ns, &handle });
        return .{ .handle = handle.? };
    }
};

pub const RegistrationInfo = struct {
    address: u64,
    size: u64,
    device_id: u64,
    memory_type: constants.MemoryType,
    registered: bool,
};

/// A region that is registered with an agent. It keeps both alive.
pub const Registration = struct {
    handle: *c.kvmem_registration,

    /// Destroys the handle. The region is deregistered when no layout or transfer uses the registration.
    pub fn deinit(self: Registration) void {
        c.kvmem_registration_destroy(self.handle);
    }

    /// Deregisters the region, and reports whether that failed. The handle stays valid.
    pub fn deregister(self: Registration, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_registration_deregister, .{self.handle});
    }

    pub fn info(self: Registration, diagnostics: ?*Diagnostics) Error!RegistrationInfo {
        return core.get(
            RegistrationInfo,
            c.kvmem_registration_info,
            diagnostics,
            c.kvmem_registration_get_info,
            .{self.handle},
        );
    }
};
