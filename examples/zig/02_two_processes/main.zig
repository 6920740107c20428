// SPDX-License-Identifier: Apache-2.0
//! A prefill process owns a KV cache. A decode process reads blocks of it over NIXL, maps the cache through a share, offloads
//! blocks to a file and restores them. Every byte is verified.
const std = @import("std");
const kvmem = @import("kvmem");

const shape: kvmem.LayoutConfig = .{
    .num_blocks = 16,
    .num_layers = 4,
    .outer_dim = 2, // keys and values
    .page_size = 16, // tokens
    .inner_dim = 8 * 128, // heads x dim
    .dtype_width = 2,
    .order = kvmem.constants.order.fully_contiguous,
};

/// Blocks that decode reads.
const pairs = [_]kvmem.BlockPair{
    .{ .source = 3, .destination = 11 },
    .{ .source = 7, .destination = 0 },
    .{ .source = 8, .destination = 1 },
};

const patience_ns = 30 * std.time.ns_per_s;

extern "c" fn socketpair(domain: c_int, kind: c_int, protocol: c_int, ends: *[2]c_int) c_int;
extern "c" fn fork() c_int;

pub fn main() !void {
    const AF_UNIX = 1;
    const SOCK_STREAM = 1;
    var ends: [2]c_int = undefined;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, &ends) != 0) return error.Socket;
    // fork comes before the first call of kvmem: neither NIXL nor kvmem's handles work in a forked child.
    const child = fork();
    if (child < 0) return error.Fork;
    _ = std.c.close(ends[if (child != 0) 1 else 0]);
    var diagnostics: kvmem.Diagnostics = .{};
    defer diagnostics.deinit();
    const run = if (child == 0) prefill(ends[1], &diagnostics) else decode(ends[0], &diagnostics);
    run catch |failure| {
        std.debug.print("{s}\n", .{diagnostics.message()});
        return failure;
    };
    if (child == 0) return;
    var status: c_int = undefined;
    if (std.c.waitpid(child, &status, 0) != child or status != 0) return error.Prefill;
}

/// Registers memory, builds a layout on it, fills it, and sends decode what it needs to access it.
fn prefill(socket: i32, diagnostics: *kvmem.Diagnostics) !void {
    const agent = try kvmem.Agent.init("prefill", .{}, diagnostics);
    defer agent.deinit();
    try agent.createBackend("UCX", &.{}, diagnostics);
    const size = (try shape.requirements(diagnostics)).total_size;
    const region = try kvmem.Region.initSystem(.{ .size = size, .flags = .{ .shareable = true } }, diagnostics);
    defer region.deinit();
    const registration = try region.register(agent, diagnostics);
    defer registration.deinit();
    const cache = try kvmem.Layout.init(.{
        .config = shape,
        .memory = .{ .registrations = &.{registration} },
    }, diagnostics);
    defer cache.deinit();
    for (0..shape.num_blocks) |block| for (0..shape.num_layers) |layer| for (0..shape.outer_dim) |outer| {
        const memory = try cache.bytes(@intCast(block), layer, outer, diagnostics);
        for (memory, 0..) |*byte, i| byte.* = element(block, layer, outer, i);
    };

    // Two byte slices make blocks readable by a peer: the metadata of the agent, and the descriptor of the layout.
    const metadata = try agent.metadata(diagnostics);
    defer metadata.deinit();
    const descriptor = try cache.exportDescriptor(diagnostics);
    defer descriptor.deinit();
    try send(socket, metadata.bytes());
    try send(socket, descriptor.bytes());
    const share = try kvmem.Share.initLayout(cache, .{ .flags = .{ .read_only = true } }, diagnostics);
    defer share.deinit();
    try share.send(socket, patience_ns, diagnostics);

    // The memory must exist until decode has reported that it has read it.
    const messages = try agent.takeNotifications(patience_ns, diagnostics);
    messages.deinit();
}

fn decode(socket: i32, diagnostics: *kvmem.Diagnostics) !void {
    const agent = try kvmem.Agent.init("decode", .{}, diagnostics);
    defer agent.deinit();
    try agent.createBackend("UCX", &.{}, diagnostics);
    var separate = shape;
    separate.order = kvmem.constants.order.layer_separate;
    const cache = try kvmem.Layout.init(.{
        .config = separate,
        .memory = .{ .system = .{} },
        .agent = agent,
    }, diagnostics);
    defer cache.deinit();

    const gpa = std.heap.c_allocator;
    const metadata = try receive(gpa, socket);
    defer gpa.free(metadata);
    const descriptor = try receive(gpa, socket);
    defer gpa.free(descriptor);
    const name = try agent.loadPeer(metadata, diagnostics);
    name.deinit();
    const remote = try kvmem.Layout.import(agent, descriptor, diagnostics);
    defer remote.deinit();
    const share = try kvmem.Share.receive(socket, patience_ns, diagnostics);
    defer share.deinit();

    // The message of the transfer notifies prefill of its end.
    try move(remote, cache, &pairs, "done", diagnostics);
    try verify(cache, diagnostics);
    std.debug.print("blocks read over NIXL have prefill's bytes\n", .{});

    const mapped = try share.openLayout(.{ .flags = .{ .mapped_only = true } }, diagnostics);
    defer mapped.deinit();
    for (pairs) |pair| {
        var theirs: [1]u32 = undefined;
        var ours: [1]u32 = undefined;
        try mapped.checksums(&.{pair.source}, &theirs, kvmem.forever, diagnostics);
        try cache.checksums(&.{pair.destination}, &ours, kvmem.forever, diagnostics);
        if (theirs[0] != ours[0]) return error.OtherBytes;
    }
    std.debug.print("blocks of the mapped cache have the same checksums\n", .{});
    try offload(cache, diagnostics);
    std.debug.print("blocks restored from the file have prefill's bytes\n", .{});
}

/// Moves blocks and waits for the end.
fn move(
    from: kvmem.Layout,
    to: kvmem.Layout,
    blocks: []const kvmem.BlockPair,
    message: ?[]const u8,
    diagnostics: *kvmem.Diagnostics,
) !void {
    const transfer = try kvmem.Transfer.start(from, to, .{}, .{ .pairs = blocks, .notification = message }, diagnostics);
    defer transfer.deinit();
    try transfer.wait(patience_ns, diagnostics);
}

/// Moves blocks to a temporary file, wipes them and restores them.
fn offload(cache: kvmem.Layout, diagnostics: *kvmem.Diagnostics) !void {
    const store = try kvmem.Layout.init(.{ .config = shape, .memory = .{ .disk = .{} } }, diagnostics);
    defer store.deinit();
    var out: [pairs.len]kvmem.BlockPair = undefined;
    var in: [pairs.len]kvmem.BlockPair = undefined;
    for (pairs, 0..) |pair, i| {
        out[i] = .{ .source = pair.destination, .destination = @intCast(i) };
        in[i] = .{ .source = @intCast(i), .destination = pair.destination };
    }
    try move(cache, store, &out, null, diagnostics);
    for (pairs) |pair| for (0..shape.num_layers) |layer| for (0..shape.outer_dim) |outer|
        @memset(try cache.bytes(pair.destination, layer, outer, diagnostics), 0);
    if (verify(cache, diagnostics)) |_| return error.NotWiped else |_| {}
    try move(store, cache, &in, null, diagnostics);
    try verify(cache, diagnostics);
}

/// Compares each byte of the blocks that decode has read.
fn verify(cache: kvmem.Layout, diagnostics: *kvmem.Diagnostics) !void {
    for (pairs) |pair| for (0..shape.num_layers) |layer| for (0..shape.outer_dim) |outer| {
        const memory = try cache.bytes(pair.destination, layer, outer, diagnostics);
        for (memory, 0..) |byte, i| if (byte != element(pair.source, layer, outer, i)) return error.OtherBytes;
    };
}

/// What prefill writes to a byte of a block.
fn element(block: usize, layer: usize, outer: usize, i: usize) u8 {
    return @truncate(block * 31 + layer * 7 + outer * 3 + i);
}

fn send(socket: i32, message: []const u8) !void {
    const size: u64 = message.len;
    try writeAll(socket, std.mem.asBytes(&size));
    try writeAll(socket, message);
}

fn receive(gpa: std.mem.Allocator, socket: i32) ![]u8 {
    var size: u64 = undefined;
    try readAll(socket, std.mem.asBytes(&size));
    const message = try gpa.alloc(u8, size);
    errdefer gpa.free(message);
    try readAll(socket, message);
    return message;
}

fn writeAll(socket: i32, bytes: []const u8) !void {
    var rest = bytes;
    while (rest.len > 0) {
        const written = std.c.write(socket, rest.ptr, rest.len);
        if (written <= 0) return error.Socket;
        rest = rest[@intCast(written)..];
    }
}

fn readAll(socket: i32, bytes: []u8) !void {
    var rest = bytes;
    while (rest.len > 0) {
        const found = std.c.read(socket, rest.ptr, rest.len);
        if (found <= 0) return error.Socket;
        rest = rest[@intCast(found)..];
    }
}
