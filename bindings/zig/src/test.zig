// SPDX-License-Identifier: Apache-2.0
const std = @import("std");
const c = @import("c");
const kvmem = @import("kvmem.zig");
const constants = kvmem.constants;
const expect = std.testing.expect;
const expectEqual = std.testing.expectEqual;
const expectError = std.testing.expectError;
const expectEqualStrings = std.testing.expectEqualStrings;

const shape: kvmem.LayoutConfig = .{
    .num_blocks = 8,
    .num_layers = 3,
    .outer_dim = 2,
    .page_size = 4,
    .inner_dim = 32,
    .dtype_width = 2,
    .kind = .fully_contiguous,
};

/// Ends a test that would wait for ever.
const patience: u64 = 60 * std.time.ns_per_s;

fn build(config: kvmem.LayoutConfig) !kvmem.Layout {
    return kvmem.Layout.init(.{ .config = config, .memory = .{ .system = .{} } }, null);
}

fn upper(comptime text: []const u8) []const u8 {
    var result: [text.len]u8 = undefined;
    for (text, 0..) |letter, i| result[i] = std.ascii.toUpper(letter);
    const final = result;
    return &final;
}

/// Each flag and value is that of the constant of its name in the header.
fn checkConstants(comptime T: type, comptime prefix: []const u8) !void {
    @setEvalBranchQuota(10000);
    switch (@typeInfo(T)) {
        .@"struct" => inline for (comptime std.meta.fieldNames(T)) |name| {
            if (comptime std.mem.eql(u8, name, "_")) continue;
            var flags: T = .{};
            @field(flags, name) = true;
            const value: u64 = @bitCast(flags);
            try expectEqual(@as(u64, @field(c, "KVMEM_" ++ prefix ++ upper(name))), value);
        },
        else => inline for (comptime std.meta.fieldNames(T)) |name| {
            const constant = comptime "KVMEM_" ++ prefix ++ upper(name);
            if (comptime @hasDecl(c, constant)) {
                try expectEqual(@as(u32, @field(c, constant)), @backingInt(@field(T, name)));
            } else {
                try expectEqualStrings("default", name);
                try expectEqual(0, @backingInt(@field(T, name)));
            }
        },
    }
}

/// The types of `constants`, and the prefix of their constants in the header.
const types = .{
    .{ "LogLevel", "LOG_" },
    .{ "Domain", "DOMAIN_" },
    .{ "Tier", "TIER_" },
    .{ "SystemFlags", "SYSTEM_" },
    .{ "PinnedFlags", "PINNED_" },
    .{ "ElasticFlags", "ELASTIC_" },
    .{ "DiskFlags", "DISK_" },
    .{ "AdoptFlags", "ADOPT_" },
    .{ "Origin", "ORIGIN_" },
    .{ "RegionFlags", "REGION_" },
    .{ "MemoryType", "MEMORY_" },
    .{ "LayoutKind", "LAYOUT_" },
    .{ "BlockDim", "BLOCK_DIM_" },
    .{ "Locality", "LOCALITY_" },
    .{ "TransferFlags", "TRANSFER_" },
    .{ "Compute", "COMPUTE_" },
    .{ "Choice", "CHOICE_" },
    .{ "ServeFlags", "SERVE_" },
    .{ "Path", "PATH_" },
    .{ "ShareFlags", "SHARE_" },
    .{ "Transport", "SHARE_" },
    .{ "OpenFlags", "OPEN_" },
    .{ "SharedObject", "SHARED_" },
    .{ "PublishFlags", "PUBLISH_" },
    .{ "FetchFlags", "FETCH_" },
    .{ "AgentFlags", "AGENT_" },
    .{ "NixlFlags", "NIXL_" },
    .{ "Operation", "REQUEST_" },
    .{ "SyncMode", "SYNC_" },
    .{ "CudaCapabilities", "CUDA_" },
    .{ "RatesSource", "RATES_" },
    .{ "IpcFlags", "IPC_" },
    .{ "VmmLocation", "VMM_" },
    .{ "VmmFlags", "VMM_" },
    .{ "Granularity", "GRANULARITY_" },
    .{ "Access", "ACCESS_" },
};

test "constants are those of the header" {
    inline for (types) |pair| try checkConstants(@field(constants, pair[0]), pair[1]);
    // No type is left out.
    try expectEqual(@typeInfo(constants).@"struct".decl_names.len, types.len);
}

test "versions" {
    try expectEqual(kvmem.header_abi_version, kvmem.abiVersion());
    try expect(std.mem.startsWith(u8, kvmem.version(), "0.1."));
    try expect(kvmem.versionNumber() >= 100);
}

test "errors have a message and a cause" {
    var diagnostics: kvmem.Diagnostics = .{};
    defer diagnostics.deinit();
    try expectEqualStrings("", diagnostics.message());
    const disk: kvmem.DiskOptions = .{ .path = "/nowhere/file", .size = 4096 };
    try expectError(error.NotFound, kvmem.Region.initDisk(disk, &diagnostics));
    try expect(std.mem.indexOf(u8, diagnostics.message(), "/nowhere/file") != null);
    try expectEqualStrings("ENOENT", diagnostics.cause().?.name);
    try expectEqual(constants.Domain.errno, diagnostics.cause().?.domain);
    try expectEqualStrings("KVMEM_STATUS_NOT_FOUND", kvmem.statusName(diagnostics.status()));
    try expect(kvmem.statusMessage(diagnostics.status()).len > 0);
    // The next failure replaces it, and none is needed.
    try expectError(error.InvalidArgument, kvmem.Region.initSystem(.{}, &diagnostics));
    try expect(diagnostics.cause() == null);
    try expectError(error.InvalidArgument, kvmem.Region.initSystem(.{}, null));
}

test "regions" {
    const region = try kvmem.Region.initSystem(.{ .size = 1 << 16, .prefault_threads = 1 }, null);
    const view = try region.view(4096, 4096, null);
    defer view.deinit();
    try expectEqual(1, (try region.holders(null)).views);
    try expect((try region.residency(null)).resident_bytes >= 1 << 16);
    try region.checkOwner(null);
    try expectError(error.InvalidArgument, region.commit(0, 1, null));
    try expectError(error.InvalidArgument, region.decommit(0, 1, null));
    try expectError(error.InvalidArgument, region.elasticInfo(null));
    try expectError(error.NotFound, region.path(null));
    try expectError(error.NotFound, region.agentName(0, null));
    try region.sync(null);
    region.deinit();
    // The view keeps the memory.
    const memory = try view.bytes(null);
    memory[7] = 42;
    const info = try view.info(null);
    try expectEqual(constants.Origin.view, info.origin);
    try expectEqual(constants.Tier.system, info.tier);
    try expectEqual(4096, info.size);

    const disk = try kvmem.Region.initDisk(.{ .size = 4096, .flags = .{ .buffered = true } }, null);
    defer disk.deinit();
    try expect((try disk.info(null)).flags.temporary);
    try expectError(error.Unsupported, disk.bytes(null));
}

var released: std.atomic.Value(bool) = .init(false);

fn release(_: ?*anyopaque) callconv(.c) void {
    released.store(true, .release);
}

test "adopted memory" {
    const memory = try std.testing.allocator.alignedAlloc(u8, .fromByteUnits(4096), 4096);
    const region = try kvmem.Region.adoptHost(memory, .{}, release, null, null);
    memory[9] = 5;
    try expectEqual(5, (try region.bytes(null))[9]);
    try expectEqual(constants.Origin.adopted, (try region.info(null)).origin);
    region.deinit();
    while (!released.load(.acquire)) std.Thread.yield() catch {};
    std.testing.allocator.free(memory);
    try expectError(error.InvalidArgument, kvmem.Region.adoptFile(.{ .fd = -1, .size = 4096 }, null));
}

test "layouts" {
    const layout = try build(shape);
    defer layout.deinit();
    const requirements = try shape.requirements(null);
    try expectEqual(8 * 3 * 2 * 4 * 32 * 2, requirements.total_size);
    const info = try layout.info(null);
    try expectEqualStrings("BLONC", info.orderText());
    try expectEqual(constants.Locality.local, info.locality);
    const strides = try layout.strides(null);
    const block = try layout.block(5, 2, 1, null);
    try expectEqual(
        strides.bases[0] + 5 * strides.block_stride + 2 * strides.layer_stride + strides.outer_stride,
        block.address,
    );
    const row = try layout.rowBytes(5, 2, 1, 3, 0, null);
    row[0] = 77;
    try expectEqual(77, (try layout.bytes(5, 2, 1, null))[3 * 64]);
    try expectError(error.OutOfRange, layout.block(8, 0, 0, null));
    try expectError(error.InvalidState, layout.resize(2, null));
    try expectError(error.NotFound, layout.agentName(null));
    try expectError(error.InvalidState, layout.exportDescriptor(null));
    const picture = try layout.draw(1, null);
    defer picture.deinit();
    try expect(std.mem.startsWith(u8, picture.bytes(), "<svg"));

    const region = try layout.region(0, null);
    defer region.deinit();
    const own = try kvmem.Layout.init(.{ .config = shape, .memory = .{ .regions = &.{region} } }, null);
    own.deinit();
    var ordered = shape;
    ordered.kind = .default;
    ordered.order = "L/OBNHC";
    ordered.num_heads = 2;
    const separate = try build(ordered);
    defer separate.deinit();
    try expectEqual(3, (try separate.info(null)).num_regions);
}

fn sameBlock(a: kvmem.Layout, block: u32, b: kvmem.Layout, other: u32) !void {
    var first: [1]u32 = undefined;
    var second: [1]u32 = undefined;
    try a.checksums(&.{block}, &first, null);
    try b.checksums(&.{other}, &second, null);
    try expectEqual(first, second);
}

fn fill(layout: kvmem.Layout, seed: usize) !void {
    for (0..8) |block| for (0..3) |layer| for (0..2) |outer| {
        for (try layout.bytes(@intCast(block), layer, outer, null), 0..) |*byte, i|
            byte.* = @truncate(seed + i * 7 + block * 31 + layer * 5 + outer * 3);
    };
}

test "transfers and queues" {
    const source = try build(shape);
    defer source.deinit();
    var separate = shape;
    separate.kind = .layer_separate;
    const destination = try build(separate);
    defer destination.deinit();
    try fill(source, 1);
    const queue = try kvmem.Queue.init(null);
    defer queue.deinit();
    try expect(try queue.fd(null) >= 0);
    var buffer: [4]kvmem.Completion = undefined;
    try expectEqual(0, (try queue.poll(&buffer, null)).len);
    try expectError(error.TimedOut, queue.wait(0, &buffer, null));

    const transfer = try kvmem.Transfer.init(source, destination, .{
        .pairs = &.{ .{ .source = 2, .destination = 5 }, .{ .source = 3, .destination = 0 } },
        .flags = .{ .by_layer = true },
        .queue = queue,
        .user_data = 9,
    }, null);
    defer transfer.deinit();
    try expectError(error.InvalidState, transfer.poll(null));
    try transfer.submit(null);
    try transfer.waitLayers(2, patience, null);
    try transfer.wait(patience, null);
    try expect(try transfer.poll(null));
    try expectEqual(3, try transfer.layers(null));
    const completed = try queue.wait(patience, &buffer, null);
    try expectEqual(1, completed.len);
    try expectEqual(9, completed[0].user_data);
    try expect(completed[0].failure() == null);
    try sameBlock(source, 2, destination, 5);
    try sameBlock(source, 3, destination, 0);
    const info = try transfer.info(null);
    try expectEqual(2 * 1536, info.bytes);
    try expectEqualStrings("memcpy", kvmem.pathName(info.path));
    try expectEqual(constants.Path.memcpy, (try transfer.explain(null)).path);
    try expectEqual(constants.Choice.used, (try transfer.pathChoice(0, null)).?.choice);
    try expect(try transfer.pathChoice(100, null) == null);
    const remark = try transfer.pathChoiceReason(0, null);
    defer remark.deinit();
    try expectEqual(0, remark.bytes().len);
    const text = try transfer.explainText(null);
    defer text.deinit();
    try expect(text.bytes().len > 0);
    try transfer.submitPairs(.{ .pairs = &.{.{ .source = 7, .destination = 1 }}, .user_data = 3 }, null);
    try transfer.wait(patience, null);
    try transfer.cancel(null);
    try sameBlock(source, 7, destination, 1);
    try expectError(error.OutOfRange, transfer.submitPairs(.{ .pairs = &.{.{ .source = 8, .destination = 1 }} }, null));
    try expectError(error.InvalidArgument, transfer.submitPairs(.{
        .pairs = &.{.{ .source = 1, .destination = 1 }},
        .checksums = &.{ 1, 2 },
    }, null));

    // Block tables.
    var wide = shape;
    wide.page_size = 8;
    const other = try build(wide);
    defer other.deinit();
    const tables = try kvmem.Transfer.start(source, other, .{
        .source_table = .{ .blocks = &.{ 4, 1 } },
        .destination_table = .{ .blocks = &.{3} },
        .num_tokens = 8,
    }, null);
    defer tables.deinit();
    try tables.wait(patience, null);
    try std.testing.expectEqualSlices(
        u8,
        try source.rowBytes(1, 2, 1, 3, 0, null),
        try other.rowBytes(3, 2, 1, 7, 0, null),
    );

    // A failed run.
    const corrupt = try kvmem.Transfer.start(source, destination, .{
        .pairs = &.{.{ .source = 1, .destination = 1 }},
        .checksums = &.{0},
        .queue = queue,
    }, null);
    defer corrupt.deinit();
    try expectError(error.Corrupt, corrupt.wait(patience, null));
}

test "parts" {
    const data = try build(shape);
    defer data.deinit();
    var small = shape;
    small.inner_dim = 2;
    const scales = try build(small);
    defer scales.deinit();
    const other = try build(shape);
    defer other.deinit();
    try fill(data, 6);
    const source = try kvmem.Layout.combine(&.{ .init("scales", scales), .init("data", data) }, null);
    defer source.deinit();
    const destination = try kvmem.Layout.combine(&.{.init("data", other)}, null);
    defer destination.deinit();
    try expectEqual(2, (try source.info(null)).num_parts);
    const name = try source.partName(0, null);
    defer name.deinit();
    try expectEqualStrings("data", name.bytes());
    const part = try source.part("data", null);
    defer part.deinit();
    const transfer = try kvmem.Transfer.start(source, destination, .{
        .pairs = &.{.{ .source = 3, .destination = 4 }},
        .parts = &.{"data"},
    }, null);
    defer transfer.deinit();
    try transfer.wait(patience, null);
    try sameBlock(part, 3, other, 4);
    try expectError(error.NotFound, source.part("nothing", null));
    try expectError(error.Unsupported, source.block(0, 0, 0, null));
}

test "shares and brokers" {
    const layout = try kvmem.Layout.init(.{
        .config = shape,
        .memory = .{ .system = .{ .flags = .{ .shareable = true } } },
    }, null);
    defer layout.deinit();
    try fill(layout, 3);
    const share = try kvmem.Share.initLayout(layout, .{ .flags = .{ .read_only = true } }, null);
    defer share.deinit();
    const info = try share.info(null);
    try expect(info.read_only and info.object == .layout and info.transport == .fd);
    const fds = [_]i32{ try share.fd(0, null), try share.fd(1, null) };
    const received = try kvmem.Share.initReceived(share.data(), &fds, null);
    defer received.deinit();
    const opened = try received.openLayout(.{ .flags = .{ .mapped_only = true } }, null);
    defer opened.deinit();
    try sameBlock(layout, 3, opened, 3);
    try expectError(error.InvalidArgument, received.openRegion(.{}, null));
    try expectError(error.InvalidArgument, share.send(-1, 0, null));
    try expectError(error.InvalidArgument, kvmem.Share.receive(-1, 0, null));

    const region = try layout.region(0, null);
    defer region.deinit();
    const whole = try kvmem.Share.initRegion(region, .{}, null);
    defer whole.deinit();

    var path: [64]u8 = undefined;
    const socket = try std.fmt.bufPrintSentinel(&path, "/tmp/kvmem-zig-{d}", .{std.c.getpid()}, 0);
    const broker = try kvmem.Broker.init(.{ .path = socket }, null);
    defer broker.deinit();
    const token = try broker.publish("cache", whole, .{ .max_uses = 1 }, null);
    const fetched = try kvmem.Share.fetch(.{ .path = socket, .name = "cache", .token = token }, null);
    fetched.deinit();
    const fetch: kvmem.FetchOptions = .{ .path = socket, .name = "cache", .token = token };
    try expectError(error.PermissionDenied, kvmem.Share.fetch(fetch, null));
    _ = try broker.grant("cache", .{ .flags = .{ .read_only = true } }, null);
    try expectEqual(1, (try broker.info(null)).granted);
    try broker.unpublish("cache", null);
    try expectError(error.NotFound, broker.unpublish("cache", null));
}

test "NIXL" {
    const owner = kvmem.Agent.init("owner", .{}, null) catch |failure| {
        if (failure == error.UnavailableNixl and std.c.getenv("KVMEM_NIXL_LIBRARY") == null) return error.SkipZigTest;
        return failure;
    };
    defer owner.deinit();
    const reader = try kvmem.Agent.init("reader", .{}, null);
    defer reader.deinit();
    try owner.createBackend("UCX", &.{}, null);
    try reader.createBackend("UCX", &.{}, null);
    try expectEqualStrings("owner", owner.name());
    const size = (try shape.requirements(null)).region_size;
    const region = try kvmem.Region.initSystem(.{ .size = size }, null);
    defer region.deinit();
    const registration = try region.register(owner, null);
    defer registration.deinit();
    try expect((try registration.info(null)).registered);
    const cache = try kvmem.Layout.init(.{ .config = shape, .memory = .{ .registrations = &.{registration} } }, null);
    defer cache.deinit();
    try fill(cache, 5);
    const local = try kvmem.Layout.init(.{ .config = shape, .memory = .{ .system = .{} }, .agent = reader }, null);
    defer local.deinit();
    try expectError(error.NotFound, reader.checkPeer("owner", null));
    const metadata = try owner.metadata(null);
    defer metadata.deinit();
    const name = try reader.loadPeer(metadata.bytes(), null);
    defer name.deinit();
    try expectEqualStrings("owner", name.bytes());
    try reader.checkPeer("owner", null);
    const descriptor = try cache.exportDescriptor(null);
    defer descriptor.deinit();
    const remote = try kvmem.Layout.import(reader, descriptor.bytes(), null);
    defer remote.deinit();
    try expectError(error.Unsupported, remote.bytes(0, 0, 0, null));
    const transfer = try kvmem.Transfer.start(remote, local, .{
        .pairs = &.{.{ .source = 6, .destination = 2 }},
        .notification = "block 6 is read",
    }, null);
    try transfer.wait(patience, null);
    transfer.deinit();
    try sameBlock(cache, 6, local, 2);
    const messages = try owner.takeNotifications(patience, null);
    defer messages.deinit();
    try expectEqual(1, messages.count());
    try expectEqualStrings("block 6 is read", (try messages.get(0, null)).data);
    try reader.notify("owner", "bye", null);
    try expectError(error.Busy, registration.deregister(null));
    try expectError(error.InvalidState, owner.sendMetadata("127.0.0.1", 1, null));
    try expectError(error.InvalidState, owner.fetchPeer("reader", "127.0.0.1", 1, 0, null));
    try reader.invalidatePeer("owner", null);
    const path = try kvmem.nixlPath(null);
    defer path.deinit();
    try kvmem.loadNixl(path.bytes(), null);
}

test "raw descriptors of NIXL" {
    const near = kvmem.Agent.init("near", .{ .flags = .{ .telemetry = true } }, null) catch |failure| {
        if (failure == error.UnavailableNixl and std.c.getenv("KVMEM_NIXL_LIBRARY") == null) return error.SkipZigTest;
        return failure;
    };
    defer near.deinit();
    const far = try kvmem.Agent.init("far", .{}, null);
    defer far.deinit();
    try near.createBackend("UCX", &.{}, null);
    try far.createBackend("UCX", &.{}, null);

    const plugins = try kvmem.Plugins.ofNixl(near, null);
    defer plugins.deinit();
    var has_ucx = false;
    for (0..plugins.count()) |index| {
        const plugin = try plugins.get(index, null);
        try expectEqual(plugin.failure != null, plugin.memory_types == 0);
        has_ucx = has_ucx or (std.mem.eql(u8, plugin.name, "UCX") and plugin.parameters.len > 0 and plugin.accepts(.dram));
    }
    try expect(has_ucx);
    const backends = try kvmem.Plugins.ofAgent(near, null);
    defer backends.deinit();
    try expectEqual(1, backends.count());
    try expectError(error.OutOfRange, backends.get(1, null));

    const here = try kvmem.Region.initSystem(.{ .size = 8192 }, null);
    defer here.deinit();
    const there = try kvmem.Region.initSystem(.{ .size = 8192 }, null);
    defer there.deinit();
    @memset(try there.bytes(null), 7);
    const local = try kvmem.Descriptors.init(.dram, null);
    defer local.deinit();
    try local.addRegion(here, null);
    const registration = try here.register(near, null);
    defer registration.deinit();
    const address = (try there.info(null)).address;
    const remote = try kvmem.Descriptors.init(.dram, null);
    defer remote.deinit();
    try remote.add(.{ .address = address, .size = 8192 }, null);
    const segments = try kvmem.Segments.register(far, remote, .{ .backends = &.{"UCX"} }, null);
    defer segments.deinit();
    const metadata = try far.metadata(null);
    defer metadata.deinit();
    (try near.loadPeer(metadata.bytes(), null)).deinit();
    try near.connect("far", .{}, null);
    try expectError(error.NotFound, near.connect("far", .{ .backends = &.{"POSIX"} }, null));

    const queue = try kvmem.Queue.init(null);
    defer queue.deinit();
    try far.reportNotifications(queue, 9, null);
    const read = try kvmem.Request.init(near, .read, local, "far", remote, .{
        .notification = "read",
        .timeout_ns = patience,
    }, null);
    defer read.deinit();
    try expectError(error.InvalidState, read.poll(null));
    try read.post("", null);
    try read.wait(patience, null);
    try expect(try read.poll(null));
    try expectEqual(7, (try here.bytes(null))[8191]);
    try expectEqual(8192, (try read.telemetry(null)).bytes);
    try expectEqual(8192, (try near.telemetry(null)).bytes_read);
    try expectError(error.InvalidState, far.telemetry(null));
    _ = try read.estimate(null);
    const backend = try read.backend(null);
    defer backend.deinit();
    try expectEqualStrings("UCX", backend.bytes());
    var completions: [4]kvmem.Completion = undefined;
    try expectEqual(9, (try queue.wait(patience, &completions, null))[0].user_data);
    try far.reportNotifications(null, 0, null);
    const messages = try far.takeNotifications(patience, null);
    defer messages.deinit();
    try expectEqualStrings("read", (try messages.get(0, null)).data);

    const ours = try kvmem.Prepared.init(near, null, local, .{}, null);
    defer ours.deinit();
    const theirs = try kvmem.Prepared.init(near, "far", remote, .{}, null);
    defer theirs.deinit();
    @memset(try here.bytes(null), 3);
    const write = try kvmem.Request.make(.write, ours, &.{0}, theirs, &.{0}, .{}, null);
    defer write.deinit();
    try write.post("", null);
    try write.wait(patience, null);
    try expectEqual(3, (try there.bytes(null))[0]);
    try expectError(error.OutOfRange, kvmem.Request.make(.write, ours, &.{1}, theirs, &.{0}, .{}, null));

    // A layout over the same memory, which its owner only named.
    const size = (try shape.requirements(null)).region_size;
    const whole = try kvmem.Descriptors.init(.dram, null);
    defer whole.deinit();
    try whole.add(.{ .address = address, .size = @min(size, 4096) }, null);
    if (size > 8192) try expectError(error.OutOfRange, kvmem.Layout.initRemote(near, "far", shape, whole, null));

    try expectEqual(1, try near.invalidateAllPeers(null));
    try expectError(error.Stale, read.post("", null));
    try segments.deregister(null);
    const empty = try kvmem.Descriptors.init(.dram, null);
    defer empty.deinit();
    const partial = try near.partialMetadata(empty, .{}, null);
    defer partial.deinit();
    try expect(partial.bytes().len > 0);
    try expectError(error.InvalidArgument, kvmem.MemoryView.init(near, empty, .{}, null));
    try expectError(error.InvalidState, near.withdrawMetadata("127.0.0.1", 1, null));
    try expectError(error.InvalidState, near.sendPartialMetadata(empty, "127.0.0.1", 1, null));
}

test "a list of descriptors" {
    const list = try kvmem.Descriptors.init(.object, null);
    defer list.deinit();
    try list.add(.{ .size = 100, .device_id = 7, .metadata = "key" }, null);
    try list.add(.{ .address = 4096, .size = 200, .agent = "far" }, null);
    try expectEqualStrings("key", (try list.get(0, null)).metadata);
    try expectEqualStrings("far", (try list.get(1, null)).agent.?);
    try expectEqual(null, (try list.get(0, null)).agent);
    const bytes = try list.exportBytes(null);
    defer bytes.deinit();
    const again = try kvmem.Descriptors.import(bytes.bytes(), null);
    defer again.deinit();
    try expectEqual(constants.MemoryType.object, again.memoryType());
    try expectEqual(2, again.count());
    try again.remove(1, null);
    try again.set(0, .{ .address = 8, .size = 16 }, null);
    const text = try again.print(null);
    defer text.deinit();
    try expect(std.mem.indexOf(u8, text.bytes(), "address 0x8, 16 bytes") != null);
    try again.resize(3, null);
    try again.trim(null);
    try again.clear(null);
    try expectEqual(0, again.count());
    try expectError(error.OutOfRange, again.get(0, null));
    try expectError(error.Corrupt, kvmem.Descriptors.import("no list", null));
}

test "CUDA" {
    const cuda = kvmem.cuda;
    _ = cuda.cudaInfo(null) catch |failure| {
        if (failure == error.UnavailableCuda and std.c.getenv("KVMEM_TEST_CUDA") == null) return error.SkipZigTest;
        return failure;
    };
    const device = try cuda.cudaDeviceInfo(0, null);
    try expect(device.capabilities.vmm);
    try expectEqual(0, try cuda.findCudaDevice(device.uuid, null));
    try expect(try cuda.canAccess(0, 0, null));
    const rates = try cuda.copyRates(0, null);
    defer rates.deinit();
    try expectEqual(device.uuid, (try cuda.describeRates(rates.bytes(), null)).uuid);
    const text = try cuda.describeRatesText(rates.bytes(), null);
    text.deinit();
    try cuda.setCopyRates(0, rates.bytes(), null);
    try cuda.useDefaultRates(0, null);
    try expectError(error.InvalidArgument, cuda.peerRates(0, 0, null));
    try expectError(error.InvalidArgument, cuda.setPeerRates(0, 0, rates.bytes(), null));
    const pinned = try kvmem.Region.initPinned(.{ .size = 1 << 16 }, null);
    pinned.deinit();

    const host = try build(shape);
    defer host.deinit();
    try fill(host, 8);
    const layout = try kvmem.Layout.init(.{ .config = shape, .memory = .{ .device = .{} } }, null);
    defer layout.deinit();
    const pairs = [_]kvmem.BlockPair{.{ .source = 1, .destination = 4 }};
    const transfer = try kvmem.Transfer.start(host, layout, .{ .pairs = &pairs }, null);
    defer transfer.deinit();
    try transfer.wait(patience, null);
    try sameBlock(host, 1, layout, 4);
    // The default stream is one of a current context, and this thread has none.
    try expectError(error.InvalidArgument, transfer.submitOnStream(null, null));
    try expectError(error.InvalidArgument, transfer.submitPairsOnStream(.{ .pairs = &pairs }, null, null));
    try expectError(error.InvalidArgument, kvmem.Transfer.startOnStream(host, layout, .{ .pairs = &pairs }, null, null));
    try expectError(error.OutOfRange, transfer.waitOnStream(99, null, null));

    const region = try layout.region(0, null);
    defer region.deinit();
    const address = (try region.info(null)).address;
    const adopted = try kvmem.Region.adoptDevice(address, 4096, 0, null, null, null);
    adopted.deinit();
    const ipc = try cuda.exportIpc(address, null);
    try expectError(error.InvalidArgument, kvmem.Region.openIpc(.{ .handle = ipc.handle, .size = 4096 }, null));
    const elastic = try kvmem.Region.initElastic(.{ .size = 1 << 28 }, null);
    defer elastic.deinit();
    try elastic.commit(0, 1, null);
    try expectEqual(1, (try elastic.elasticInfo(null)).num_committed);
    const owned = try kvmem.Region.initDevice(.{ .size = 4096 }, null);
    owned.deinit();
    const growing = try kvmem.Layout.init(.{ .config = shape, .memory = .{ .elastic = .{} } }, null);
    growing.deinit();

    var options: cuda.VmmOptions = .{ .flags = .{ .posix_fd = true } };
    options.size = try cuda.vmmGranularity(options, .minimum, null);
    const memory = try cuda.VmmMemory.init(options, null);
    defer memory.deinit();
    const range = try cuda.VmmRange.init(options.size, 0, null);
    defer range.deinit();
    const mapping = try range.map(0, memory, null);
    defer mapping.deinit();
    try expectEqual((try range.span(null)).address, (try mapping.span(null)).address);
    try mapping.setAccess(0, .read_write, null);
    try expectEqual(constants.Access.read_write, try mapping.getAccess(0, null));
    const retained = try cuda.VmmMemory.retain((try range.span(null)).address, null);
    retained.deinit();
    const fd = try memory.exportFd(null);
    defer _ = std.c.close(fd);
    const imported = try cuda.VmmMemory.importFd(fd, options.size, cuda.any_device, null);
    imported.deinit();
    try expectError(error.InvalidState, memory.exportFabric(null));
    if (cuda.VmmMemory.importFabric(@splat(0), options.size, cuda.any_device, null)) |_| return error.ZeroesAreAHandle else |_| {}
}

var lines: std.atomic.Value(u32) = .init(0);

fn receive(count: *std.atomic.Value(u32), _: constants.LogLevel, target: [:0]const u8, _: [:0]const u8) void {
    if (std.mem.startsWith(u8, target, "kvmem")) _ = count.fetchAdd(1, .acq_rel);
}

test "log" {
    try kvmem.setLog(.debug, &lines, receive, null);
    const region = try kvmem.Region.initSystem(.{ .size = 4096 }, null);
    region.deinit();
    try kvmem.removeLog(null);
    try expect(lines.load(.acquire) > 0);
}
