// SPDX-License-Identifier: Apache-2.0
const std = @import("std");
const kvmem = @import("../kvmem.zig");
const common = @import("common.zig");
const constants = kvmem.constants;
const expect = std.testing.expect;
const expectEqual = std.testing.expectEqual;
const expectError = std.testing.expectError;
const expectEqualStrings = std.testing.expectEqualStrings;
const shape = common.shape;
const patience = common.patience;
const agent = common.agent;

test "raw descriptors of NIXL" {
    const near = try agent("near", .{ .flags = .{ .telemetry = true } });
    defer near.deinit();
    const far = try agent("far", .{});
    defer far.deinit();

    const plugins = try kvmem.Plugins.ofNixl(near, null);
    defer plugins.deinit();
    var has_ucx = false;
    for (0..plugins.count()) |index| {
        const plugin = plugins.get(index);
        try expectEqual(plugin.failure != null, plugin.memory_types == 0);
        has_ucx = has_ucx or (std.mem.eql(u8, plugin.name, "UCX") and plugin.parameters.len > 0 and plugin.accepts(.dram));
    }
    try expect(has_ucx);
    const backends = try kvmem.Plugins.ofAgent(near, null);
    defer backends.deinit();
    try expectEqual(1, backends.count());

    const here = try kvmem.Region.initSystem(.{ .size = 8192 }, null);
    defer here.deinit();
    const there = try kvmem.Region.initSystem(.{ .size = 8192 }, null);
    defer there.deinit();
    @memset(try there.bytes(null), 7);
    var space: [1]kvmem.Descriptor = undefined;
    try expectEqual(1, try here.descriptorCount(null));
    const local = try here.descriptors(&space, null);
    try expectEqual(8192, local[0].size);
    const registration = try here.register(near, null);
    defer registration.deinit();
    const address = (try there.info(null)).address;
    const remote = [_]kvmem.Descriptor{.{ .address = address, .size = 8192 }};
    const segments = try kvmem.Segments.register(far, &remote, .{ .backends = &.{"UCX"} }, null);
    defer segments.deinit();
    const metadata = try far.metadata(null);
    defer metadata.deinit();
    (try near.loadPeer(metadata.bytes(), null)).deinit();
    try near.connect("far", .{}, patience, null);
    try expectError(error.NotFound, near.connect("far", .{ .backends = &.{"POSIX"} }, patience, null));

    const queue = try kvmem.Queue.init(null);
    defer queue.deinit();
    try far.reportNotifications(queue, 9, null);
    const read = try kvmem.Request.init(near, .read, local, "far", &remote, .{
        .notification = "read",
        .run_timeout_ns = patience,
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
    try expectEqualStrings("read", messages.get(0).data);

    const ours = try kvmem.Prepared.init(near, null, local, .{}, null);
    defer ours.deinit();
    const theirs = try kvmem.Prepared.init(near, "far", &remote, .{}, null);
    defer theirs.deinit();
    @memset(try here.bytes(null), 3);
    const write = try kvmem.Request.make(.write, ours, &.{0}, theirs, &.{0}, .{}, null);
    defer write.deinit();
    try write.post("", null);
    try write.wait(patience, null);
    try expectEqual(3, (try there.bytes(null))[0]);
    try expectError(error.OutOfRange, kvmem.Request.make(.write, ours, &.{1}, theirs, &.{0}, .{}, null));
    try expectError(error.InvalidArgument, kvmem.Request.make(.write, ours, &.{ 0, 0 }, theirs, &.{0}, .{}, null));

    // A layout over the same memory, which its owner only named.
    const size = (try shape.requirements(null)).region_size;
    const whole = [_]kvmem.Descriptor{.{ .address = address, .size = @min(size, 4096) }};
    if (size > 8192) try expectError(error.OutOfRange, kvmem.Layout.initRemote(near, "far", shape, &whole, null));

    try expectEqual(1, try near.invalidateAllPeers(null));
    try expectError(error.Stale, read.post("", null));
    try segments.deregister(null);
    const partial = try near.partialMetadata(&.{}, .{}, null);
    defer partial.deinit();
    try expect(partial.bytes().len > 0);
    try expectError(error.InvalidArgument, kvmem.MemoryView.init(near, &.{}, .{}, null));
    try expectError(error.InvalidState, near.withdrawMetadata("127.0.0.1", 1, null));
    try expectError(error.InvalidState, near.sendPartialMetadata(&.{}, "127.0.0.1", 1, null));
}

test "no plugin accepts a memory type that this version does not know" {
    const plugin: kvmem.Plugin = .{ .name = "all", .failure = null, .parameters = &.{}, .memory_types = std.math.maxInt(u32) };
    try expect(plugin.accepts(.dram));
    try expect(!plugin.accepts(@fromBackingInt(32)));
}

test "descriptors are checked" {
    const one = try agent("checking", .{});
    defer one.deinit();
    const wrong = [_]kvmem.Descriptor{.{ .address = std.math.maxInt(u64), .size = 2 }};
    try expectError(error.OutOfRange, kvmem.Segments.register(one, &wrong, .{}, null));
    const mixed = [_]kvmem.Descriptor{ .{ .size = 1 }, (kvmem.Descriptor{ .memory_type = .object }).with("key") };
    try expectError(error.InvalidArgument, kvmem.Segments.register(one, &mixed, .{}, null));
    try expectError(error.InvalidArgument, kvmem.Request.init(one, .read, &wrong, "checking", &.{}, .{}, null));
}
