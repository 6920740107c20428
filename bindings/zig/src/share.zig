// SPDX-License-Identifier: Apache-2.0
const c = @import("c");
const core = @import("core.zig");
const constants = @import("constants.zig");
const Agent = @import("agent.zig").Agent;
const Layout = @import("layout.zig").Layout;
const Region = @import("region.zig").Region;
const Diagnostics = core.Diagnostics;
const Error = core.Error;
const call = core.call;

pub const ShareOptions = struct {
    flags: constants.ShareFlags = .{},
    transport: constants.Transport = .auto,

    pub fn toC(self: ShareOptions) c.kvmem_share_options {
        return core.toC(c.kvmem_share_options, self);
    }
};

pub const OpenOptions = struct {
    flags: constants.OpenFlags = .{},
    /// Registers the layout, or accesses it through NIXL.
    agent: ?Agent = null,
    /// GPU of `pin` and `for_device`.
    device: i32 = 0,

    pub fn toC(self: OpenOptions) c.kvmem_open_options {
        var result = core.toC(c.kvmem_open_options, self);
        if (self.agent) |agent| result.agent = agent.handle;
        return result;
    }
};

pub const ShareInfo = struct {
    size: u64,
    num_fds: u64,
    memory_size: u64,
    pid: u32,
    object: constants.SharedObject,
    tier: constants.Tier,
    read_only: bool,
    transport: constants.Transport,
};

/// A region or a layout in transit to another process: bytes, and the file descriptors that belong to them.
pub const Share = struct {
    handle: *c.kvmem_share,

    fn create(diagnostics: ?*Diagnostics, function: anytype, arguments: anytype) Error!Share {
        var handle: ?*c.kvmem_share = null;
        try call(diagnostics, function, arguments ++ .{&handle});
        return .{ .handle = handle.? };
    }

    pub fn initRegion(region: Region, options: ShareOptions, diagnostics: ?*Diagnostics) Error!Share {
        const o = options.toC();
        return create(diagnostics, c.kvmem_share_create_region, .{ region.handle, &o });
    }

    pub fn initLayout(layout: Layout, options: ShareOptions, diagnostics: ?*Diagnostics) Error!Share {
        const o = options.toC();
        return create(diagnostics, c.kvmem_share_create_layout, .{ layout.handle, &o });
    }

    /// Creates a share from bytes and file descriptors that came over a channel of the caller, which closes its own.
    pub fn initReceived(received: []const u8, files: []const i32, diagnostics: ?*Diagnostics) Error!Share {
        return create(diagnostics, c.kvmem_share_create_received, .{ core.pointer(received), received.len, files.ptr, files.len });
    }

    /// Receives a share over a connected Unix socket.
    pub fn receive(socket: i32, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!Share {
        return create(diagnostics, c.kvmem_share_receive, .{ socket, timeout_ns });
    }

    /// Fetches a share from a broker.
    pub fn fetch(options: FetchOptions, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!Share {
        var o = core.toC(c.kvmem_fetch_options, .{
            .flags = options.flags,
            .path = options.path,
            .name = options.name,
            .broker_user = options.broker_user,
        });
        o.token = @ptrCast(&options.token);
        return create(diagnostics, c.kvmem_share_fetch, .{ &o, timeout_ns });
    }

    /// Destroys the handle. Regions and layouts that were opened from the share stay open.
    pub fn deinit(self: Share) void {
        c.kvmem_share_destroy(self.handle);
    }

    /// Sends the share over a connected Unix socket. After a failure, close the socket.
    pub fn send(self: Share, socket: i32, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_share_send, .{ self.handle, socket, timeout_ns });
    }

    /// Bytes of the share, for a channel of the caller. They give access to the memory. Valid until `deinit`.
    pub fn data(self: Share, diagnostics: ?*Diagnostics) Error![]const u8 {
        const found = try self.infoInC(diagnostics);
        const first: [*]const u8 = @ptrCast(found.data.?);
        return first[0..@intCast(found.size)];
    }

    /// File descriptors of the share, which the share owns. Send them in this order. Valid until `deinit`.
    pub fn fds(self: Share, diagnostics: ?*Diagnostics) Error![]const i32 {
        const found = try self.infoInC(diagnostics);
        return if (found.num_fds == 0) &.{} else found.fds[0..@intCast(found.num_fds)];
    }

    fn infoInC(self: Share, diagnostics: ?*Diagnostics) Error!c.kvmem_share_info {
        var found: c.kvmem_share_info = undefined;
        try call(diagnostics, c.kvmem_share_get_info, .{ self.handle, &found });
        return found;
    }

    /// Opens the region of the share: maps its memory.
    pub fn openRegion(self: Share, options: OpenOptions, diagnostics: ?*Diagnostics) Error!Region {
        const o = options.toC();
        var handle: ?*c.kvmem_region = null;
        try call(diagnostics, c.kvmem_share_open_region, .{ self.handle, &o, &handle });
        return .{ .handle = handle.? };
    }

    /// Opens the layout of the share: maps its memory, or accesses it through NIXL.
    pub fn openLayout(self: Share, options: OpenOptions, diagnostics: ?*Diagnostics) Error!Layout {
        const o = options.toC();
        var handle: ?*c.kvmem_layout = null;
        try call(diagnostics, c.kvmem_share_open_layout, .{ self.handle, &o, &handle });
        return .{ .handle = handle.? };
    }

    pub fn info(self: Share, diagnostics: ?*Diagnostics) Error!ShareInfo {
        return core.get(ShareInfo, c.kvmem_share_info, diagnostics, c.kvmem_share_get_info, .{self.handle});
    }
};

/// 256 random bits, with which a client fetches a share. Transmit them as a secret.
pub const Token = [32]u8;

pub const FetchOptions = struct {
    flags: constants.FetchFlags = .{},
    /// Path of the broker's socket.
    path: ?[:0]const u8,
    /// Name of the published share.
    name: ?[:0]const u8,
    token: Token,
    /// User id of `broker_user` in the flags.
    broker_user: u32 = 0,
};

pub const BrokerOptions = struct {
    /// Path of the socket.
    path: ?[:0]const u8,
    /// Ids of users that may fetch; none for only the user of the broker.
    users: []const u32 = &.{},
    client_timeout_ns: u64 = 0,
    max_bytes_per_user: u64 = 0,
    /// Permission bits of the socket; 0 for 0600.
    mode: u32 = 0,
    max_clients: u32 = 0,
    max_clients_per_user: u32 = 0,
};

/// What a token grants.
pub const PublishOptions = struct {
    flags: constants.PublishFlags = .{},
    /// Fetches that the token permits; 0 for no limit.
    max_uses: u64 = 0,
    /// Nanoseconds that the token is valid; 0 for as long as the name is published.
    lifetime_ns: u64 = 0,
};

pub const BrokerInfo = struct { publications: u64, clients: u64, granted: u64, refused: u64 };

/// A server that publishes shares by name at a socket path.
pub const Broker = struct {
    handle: *c.kvmem_broker,

    pub fn init(options: BrokerOptions, diagnostics: ?*Diagnostics) Error!Broker {
        var o = core.toC(c.kvmem_broker_options, options);
        if (options.users.len > 0) o.users = options.users.ptr;
        o.num_users = options.users.len;
        var handle: ?*c.kvmem_broker = null;
        try call(diagnostics, c.kvmem_broker_create, .{ &o, &handle });
        return .{ .handle = handle.? };
    }

    /// Ends the thread of the broker, removes its socket, and releases its shares.
    pub fn deinit(self: Broker) void {
        c.kvmem_broker_destroy(self.handle);
    }

    /// Publishes a share under a name. The broker keeps the share alive while it is published.
    pub fn publish(
        self: Broker,
        name: [:0]const u8,
        share: Share,
        options: PublishOptions,
        diagnostics: ?*Diagnostics,
    ) Error!Token {
        const o = core.toC(c.kvmem_publish_options, options);
        var token: c.kvmem_token = .{};
        try call(diagnostics, c.kvmem_broker_publish, .{ self.handle, name.ptr, share.handle, &o, &token });
        return token.bytes;
    }

    /// Another token for a published share.
    pub fn grant(self: Broker, name: [:0]const u8, options: PublishOptions, diagnostics: ?*Diagnostics) Error!Token {
        const o = core.toC(c.kvmem_publish_options, options);
        var token: c.kvmem_token = .{};
        try call(diagnostics, c.kvmem_broker_grant, .{ self.handle, name.ptr, &o, &token });
        return token.bytes;
    }

    /// Withdraws a published share and all its tokens.
    pub fn unpublish(self: Broker, name: [:0]const u8, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_broker_unpublish, .{ self.handle, name.ptr });
    }

    pub fn info(self: Broker, diagnostics: ?*Diagnostics) Error!BrokerInfo {
        return core.get(BrokerInfo, c.kvmem_broker_info, diagnostics, c.kvmem_broker_get_info, .{self.handle});
    }
};
