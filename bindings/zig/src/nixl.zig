// SPDX-License-Identifier: Apache-2.0
//! Raw descriptors of NIXL, and requests on them.
const std = @import("std");
const c = @import("c");
const core = @import("core.zig");
const constants = @import("constants.zig");
const agents = @import("agent.zig");
const Agent = agents.Agent;
const Parameter = agents.Parameter;
const Queue = @import("transfer.zig").Queue;
const Diagnostics = core.Diagnostics;
const Error = core.Error;
const call = core.call;

/// Options of calls on raw descriptors. A call fails with InvalidArgument for a field that it does not use.
pub const NixlOptions = struct {
    flags: constants.NixlFlags = .{},
    /// Plugins of the backends to use, in order of preference; empty for all.
    backends: []const [*:0]const u8 = &.{},
    /// For the peer, when the request is complete. A message without bytes needs the flag `notify`.
    notification: []const u8 = &.{},
    /// Bytes that the backend understands.
    custom_parameter: []const u8 = &.{},
    /// Receives a completion for each run of a request.
    queue: ?Queue = null,
    user_data: u64 = 0,
    /// Nanoseconds that a run of a request may take; 0 for no limit.
    run_timeout_ns: u64 = 0,

    pub fn toC(self: NixlOptions) c.kvmem_nixl_options {
        return .{
            .struct_size = @sizeOf(c.kvmem_nixl_options),
            .flags = @bitCast(self.flags),
            .backends = if (self.backends.len == 0) null else @ptrCast(self.backends.ptr),
            .backend_count = self.backends.len,
            .notification = core.pointer(self.notification),
            .notification_size = self.notification.len,
            .custom_parameter = core.pointer(self.custom_parameter),
            .custom_parameter_size = self.custom_parameter.len,
            .queue = if (self.queue) |queue| queue.handle else null,
            .user_data = self.user_data,
            .run_timeout_ns = self.run_timeout_ns,
        };
    }
};

fn parametersOf(first: [*c]const c.kvmem_parameter, count: usize) []const Parameter {
    if (count == 0) return &.{};
    return @as([*]const Parameter, @ptrCast(first))[0..count];
}

/// A plugin of NIXL, or a backend of an agent. Valid as long as the Plugins.
pub const Plugin = struct {
    name: [:0]const u8,
    /// Why the plugin does not load; null if it loads.
    failure: ?[:0]const u8,
    parameters: []const Parameter,
    /// Bit 1 << MemoryType for each type that it accepts.
    memory_types: u32,

    pub fn accepts(self: Plugin, memory_type: constants.MemoryType) bool {
        const bit = @backingInt(memory_type);
        return bit < 32 and self.memory_types >> @intCast(bit) & 1 != 0;
    }
};

/// A list of plugins or backends.
pub const Plugins = struct {
    handle: *c.kvmem_plugins,

    /// The plugins that NIXL finds, sorted by name. Loads each of them.
    pub fn ofNixl(agent: Agent, diagnostics: ?*Diagnostics) Error!Plugins {
        var handle: ?*c.kvmem_plugins = null;
        try call(diagnostics, c.kvmem_agent_get_plugins, .{ agent.handle, &handle });
        return .{ .handle = handle.? };
    }

    /// The backends of an agent, sorted by name.
    pub fn ofAgent(agent: Agent, diagnostics: ?*Diagnostics) Error!Plugins {
        var handle: ?*c.kvmem_plugins = null;
        try call(diagnostics, c.kvmem_agent_get_backends, .{ agent.handle, &handle });
        return .{ .handle = handle.? };
    }

    pub fn deinit(self: Plugins) void {
        c.kvmem_plugins_destroy(self.handle);
    }

    pub fn count(self: Plugins) usize {
        return self.items().len;
    }

    pub fn get(self: Plugins, index: usize) Plugin {
        const found = self.items()[index];
        return .{
            .name = std.mem.span(found.name),
            .failure = if (found.failure == null) null else std.mem.span(found.failure),
            .parameters = parametersOf(found.parameters, found.parameter_count),
            .memory_types = found.memory_types,
        };
    }

    fn items(self: Plugins) []const c.kvmem_plugin {
        return if (self.handle.count == 0) &.{} else self.handle.items[0..self.handle.count];
    }
};

/// Memory, a file, an object or a block as NIXL addresses it. The memory need not belong to kvmem. The descriptors of a call
/// have one memory type, and are copied.
pub const Descriptor = extern struct {
    /// Address, or offset in a file or object.
    address: u64 = 0,
    /// Bytes.
    size: u64 = 0,
    /// 0 for host memory, the ordinal of a GPU, the file descriptor of a file, the number of an object or block device.
    device_id: u64 = 0,
    memory_type: constants.MemoryType = .dram,
    reserved: u32 = 0,
    /// What the backend needs to register or query it, such as the key of an object.
    metadata: ?[*]const u8 = null,
    metadata_size: usize = 0,
    /// For memory views of peers: the agent that owns the memory.
    agent: ?[*:0]const u8 = null,
    /// Region of the memory, which objects that are created from the descriptor keep alive.
    region: ?*const c.kvmem_region = null,

    comptime {
        std.debug.assert(@sizeOf(Descriptor) == @sizeOf(c.kvmem_nixl_descriptor));
        for (@typeInfo(c.kvmem_nixl_descriptor).@"struct".field_names) |name|
            std.debug.assert(@offsetOf(Descriptor, name) == @offsetOf(c.kvmem_nixl_descriptor, name));
    }

    /// With what the backend needs.
    pub fn with(self: Descriptor, metadata: []const u8) Descriptor {
        var result = self;
        result.metadata = metadata.ptr;
        result.metadata_size = metadata.len;
        return result;
    }
};

/// The first of the descriptors of a call, as C has it.
pub fn firstOf(descriptors: []const Descriptor) ?[*]const c.kvmem_nixl_descriptor {
    return if (descriptors.len == 0) null else @ptrCast(descriptors.ptr);
}

/// Descriptors that an agent has registered: memory that is in no region, files, objects and blocks.
pub const Segments = struct {
    handle: *c.kvmem_segments,

    /// Registers descriptors. The memory must stay valid until they are deregistered.
    pub fn register(agent: Agent, descriptors: []const Descriptor, options: NixlOptions, diagnostics: ?*Diagnostics) Error!Segments {
        const o = options.toC();
        var handle: ?*c.kvmem_segments = null;
        try call(diagnostics, c.kvmem_segments_register, .{ agent.handle, firstOf(descriptors), descriptors.len, &o, &handle });
        return .{ .handle = handle.? };
    }

    /// Deregisters the descriptors; if a request on them is in flight, at its end.
    pub fn deinit(self: Segments) void {
        c.kvmem_segments_destroy(self.handle);
    }

    /// Deregisters the descriptors, and reports whether that failed. The handle stays valid.
    pub fn deregister(self: Segments, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_segments_deregister, .{self.handle});
    }
};

/// The result of a backend for one descriptor. Valid as long as the Query.
pub const QueryResult = struct { exists: bool, properties: []const Parameter };

/// The results of a backend, one per descriptor of a list.
pub const Query = struct {
    handle: *c.kvmem_query,

    /// Asks a backend. The options name it, unless only one accepts the memory type.
    pub fn init(
        agent: Agent,
        descriptors: []const Descriptor,
        options: NixlOptions,
        timeout_ns: u64,
        diagnostics: ?*Diagnostics,
    ) Error!Query {
        const o = options.toC();
        var handle: ?*c.kvmem_query = null;
        try call(diagnostics, c.kvmem_agent_query, .{ agent.handle, firstOf(descriptors), descriptors.len, &o, timeout_ns, &handle });
        return .{ .handle = handle.? };
    }

    pub fn deinit(self: Query) void {
        c.kvmem_query_destroy(self.handle);
    }

    pub fn count(self: Query) usize {
        return self.items().len;
    }

    pub fn get(self: Query, index: usize) QueryResult {
        const found = self.items()[index];
        return .{ .exists = found.exists != 0, .properties = parametersOf(found.parameters, found.parameter_count) };
    }

    fn items(self: Query) []const c.kvmem_query_result {
        return if (self.handle.count == 0) &.{} else self.handle.items[0..self.handle.count];
    }
};

/// Registered memory that kernels on a GPU can access through NIXL's device API.
pub const MemoryView = struct {
    handle: *c.kvmem_memory_view,
    /// The handle for NIXL's device API, which is valid as long as the view.
    pointer: *anyopaque,

    pub fn init(agent: Agent, descriptors: []const Descriptor, options: NixlOptions, diagnostics: ?*Diagnostics) Error!MemoryView {
        const o = options.toC();
        var handle: ?*c.kvmem_memory_view = null;
        var found: ?*anyopaque = null;
        const list = firstOf(descriptors);
        try call(diagnostics, c.kvmem_memory_view_create, .{ agent.handle, list, descriptors.len, &o, &found, &handle });
        return .{ .handle = handle.?, .pointer = found.? };
    }

    /// No kernel may use the view any more.
    pub fn deinit(self: MemoryView) void {
        c.kvmem_memory_view_destroy(self.handle);
    }
};

/// A list of descriptors that NIXL has resolved once, for one side of requests.
pub const Prepared = struct {
    handle: *c.kvmem_prepared,

    /// Prepares a list. `owner` is the agent whose memory it is, for the remote side; null for the local side.
    pub fn init(
        agent: Agent,
        owner: ?[:0]const u8,
        descriptors: []const Descriptor,
        options: NixlOptions,
        diagnostics: ?*Diagnostics,
    ) Error!Prepared {
        const o = options.toC();
        const name: ?[*:0]const u8 = if (owner) |text| text.ptr else null;
        var handle: ?*c.kvmem_prepared = null;
        try call(diagnostics, c.kvmem_prepared_create, .{ agent.handle, name, firstOf(descriptors), descriptors.len, &o, &handle });
        return .{ .handle = handle.? };
    }

    /// Requests that were made from it keep it.
    pub fn deinit(self: Prepared) void {
        c.kvmem_prepared_destroy(self.handle);
    }
};

/// NIXL's estimate of the duration of a request.
pub const RequestCost = struct { duration_ns: u64, margin_ns: u64, method: u32 };

/// NIXL's measurements of the last run of a request.
pub const RequestTelemetry = struct { start_ns: u64, post_ns: u64, duration_ns: u64, bytes: u64, descriptors: u64 };

/// One NIXL transfer between raw descriptors. It can be posted repeatedly.
pub const Request = struct {
    handle: *c.kvmem_request,

    /// A request on descriptors, which correspond by index. `owner` is a peer, or the agent itself for files and objects.
    pub fn init(
        agent: Agent,
        operation: constants.Operation,
        local: []const Descriptor,
        owner: [:0]const u8,
        remote: []const Descriptor,
        options: NixlOptions,
        diagnostics: ?*Diagnostics,
    ) Error!Request {
        if (local.len != remote.len)
            return core.fail(
                diagnostics,
                c.KVMEM_STATUS_INVALID_ARGUMENT,
                "the local and the remote descriptors differ in number; they correspond by index",
            );
        const o = options.toC();
        var handle: ?*c.kvmem_request = null;
        try call(diagnostics, c.kvmem_request_create, .{
            agent.handle,    @backingInt(operation), firstOf(local), owner.ptr,
            firstOf(remote), local.len,              &o,             &handle,
        });
        return .{ .handle = handle.? };
    }

    /// A request on descriptors of two prepared lists: pairs of an index in the local list and one in the remote list.
    pub fn make(
        operation: constants.Operation,
        local: Prepared,
        local_indices: []const u32,
        remote: Prepared,
        remote_indices: []const u32,
        options: NixlOptions,
        diagnostics: ?*Diagnostics,
    ) Error!Request {
        if (local_indices.len != remote_indices.len)
            return core.fail(
                diagnostics,
                c.KVMEM_STATUS_INVALID_ARGUMENT,
                "the local and the remote indices differ in number; they correspond by position",
            );
        const o = options.toC();
        var handle: ?*c.kvmem_request = null;
        try call(diagnostics, c.kvmem_request_make, .{
            @backingInt(operation), local.handle,      local_indices.ptr, remote.handle,
            remote_indices.ptr,     local_indices.len, &o,                &handle,
        });
        return .{ .handle = handle.? };
    }

    /// A run in flight continues: its memory must stay valid until it is complete.
    pub fn deinit(self: Request) void {
        c.kvmem_request_destroy(self.handle);
    }

    /// Starts a run. An empty notification is that of the options.
    pub fn post(self: Request, notification: []const u8, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_request_post, .{ self.handle, core.pointer(notification), notification.len });
    }

    /// Whether the last run has succeeded; false while it is in flight.
    pub fn poll(self: Request, diagnostics: ?*Diagnostics) Error!bool {
        return try core.callStatus(diagnostics, c.kvmem_request_poll, .{self.handle}) == c.KVMEM_STATUS_OK;
    }

    /// Waits for the end of the last run.
    pub fn wait(self: Request, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_request_wait, .{ self.handle, timeout_ns });
    }

    /// The plugin of the backend that NIXL chose, as text.
    pub fn backend(self: Request, diagnostics: ?*Diagnostics) Error!core.Blob {
        return core.getBlob(diagnostics, c.kvmem_request_get_backend, .{self.handle});
    }

    pub fn estimate(self: Request, diagnostics: ?*Diagnostics) Error!RequestCost {
        return core.get(RequestCost, c.kvmem_request_cost, diagnostics, c.kvmem_request_estimate, .{self.handle});
    }

    /// The agent must have been created with the flag `telemetry`.
    pub fn telemetry(self: Request, diagnostics: ?*Diagnostics) Error!RequestTelemetry {
        return core.get(
            RequestTelemetry,
            c.kvmem_request_telemetry,
            diagnostics,
            c.kvmem_request_get_telemetry,
            .{self.handle},
        );
    }
};
