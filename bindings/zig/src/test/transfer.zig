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
const build = common.build;
const fill = common.fill;
const sameBlock = common.sameBlock;

test "transfers and queues" {
    const source = try build(shape);
    defer source.deinit();
    var separate = shape;
    separate.order = kvmem.constants.order.layer_separate;
    const destination = try build(separate);
    defer destination.deinit();
    try fill(source, 1);
    const queue = try kvmem.Queue.init(null);
    defer queue.deinit();
    try expect(try queue.fd(null) >= 0);
    var buffer: [4]kvmem.Completion = undefined;
    try expectEqual(0, (try queue.poll(&buffer, null)).len);
    try expectError(error.TimedOut, queue.wait(1, &buffer, null));

    const transfer = try kvmem.Transfer.init(source, destination, .{
        .flags = .{ .by_layer = true, .report_release = true },
        .queue = queue,
        .layers_per_completion = 3,
    }, null);
    defer transfer.deinit();
    try transfer.prepare(.{
        .pairs = &.{ .{ .source = 2, .destination = 5 }, .{ .source = 3, .destination = 0 } },
        .user_data = 9,
    }, null);
    try expectError(error.InvalidState, transfer.poll(null));
    try transfer.submit(null, null);
    try transfer.waitLayers(2, patience, null);
    try transfer.wait(patience, null);
    try expect(try transfer.poll(null));
    try expectEqual(3, (try transfer.info(null)).layers_moved);
    const moved = try queue.wait(patience, buffer[0..1], null);
    try expectEqual(constants.CompletionKind.layers_moved, moved[0].kind);
    try expectEqual(3, moved[0].num_layers);
    const completed = try queue.wait(patience, &buffer, null);
    try expectEqual(1, completed.len);
    try expectEqual(9, completed[0].user_data);
    try expectEqual(constants.CompletionKind.run_ended, completed[0].kind);
    try expectEqual(1, completed[0].released);
    try expect(completed[0].failure() == null);
    try sameBlock(source, 2, destination, 5);
    try sameBlock(source, 3, destination, 0);
    const info = try transfer.info(null);
    try expectEqual(2 * 1536, info.bytes);
    try expectEqualStrings("memcpy", kvmem.methodName(info.method));
    var methods: [4]kvmem.ComparedMethod = undefined;
    const compared = try transfer.methods(&methods, null);
    try expectEqual(1, compared.len);
    try expectEqual(constants.Method.memcpy, compared[0].method);
    try expectEqual(constants.Choice.used, compared[0].choice);
    try expectEqual(0, compared[0].reasonText().len);
    const text = try transfer.explain(null);
    defer text.deinit();
    try expect(text.bytes().len > 0);
    try transfer.submit(.{ .pairs = &.{.{ .source = 7, .destination = 1 }}, .user_data = 3, .run_timeout_ns = kvmem.forever }, null);
    try transfer.wait(patience, null);
    try transfer.cancel(null);
    try sameBlock(source, 7, destination, 1);
    try expectError(error.OutOfRange, transfer.submit(.{ .pairs = &.{.{ .source = 8, .destination = 1 }} }, null));
    try expectError(error.InvalidArgument, transfer.submit(.{
        .pairs = &.{.{ .source = 1, .destination = 1 }},
        .checksums = &.{ 1, 2 },
    }, null));

    // Block tables.
    var wide = shape;
    wide.page_size = 8;
    const other = try build(wide);
    defer other.deinit();
    const tables = try kvmem.Transfer.start(source, other, .{}, .{
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
    const corrupt = try kvmem.Transfer.start(source, destination, .{ .queue = queue }, .{
        .pairs = &.{.{ .source = 1, .destination = 1 }},
        .checksums = &.{0},
    }, null);
    defer corrupt.deinit();
    try expectError(error.Corrupt, corrupt.wait(patience, null));
}

test "accesses of a run in flight" {
    var big = shape;
    big.num_blocks = 64;
    big.num_layers = 64;
    big.inner_dim = 1024;
    const source = try build(big);
    defer source.deinit();
    const destination = try build(big);
    defer destination.deinit();
    const transfer = try kvmem.Transfer.init(source, destination, .{}, null);
    defer transfer.deinit();
    var pairs: [64]kvmem.BlockPair = undefined;
    for (&pairs, 0..) |*pair, block| pair.* = .{ .source = @intCast(block), .destination = @intCast(block) };
    var buffer: [4]kvmem.BlockAccess = undefined;
    var count: usize = 0;
    while (count == 0) { // until the run is in flight when that is asked
        try transfer.submit(.{ .pairs = &pairs, .user_data = 5 }, null);
        count = try source.accesses(&.{ 9, 3, 9 }, &buffer, null);
        try transfer.wait(patience, null);
    }
    try expectEqual(2, count);
    for (buffer[0..2], [_]u32{ 3, 9 }) |access, block| {
        try expectEqual(block, access.block);
        try expectEqual(constants.Accessor.run, access.accessor);
        try expect(access.reads == 1 and access.writes == 0 and access.user_data == 5 and access.pid == 0);
        try expectEqual(0, access.agentName().len);
    }
    try expectEqual(0, try source.accesses(&.{ 3, 9 }, &buffer, null));
}

test "leases of blocks" {
    const layout = try build(shape);
    defer layout.deinit();
    var buffer: [4]kvmem.BlockAccess = undefined;
    {
        const reader = try layout.lease(&.{1}, .{}, null);
        defer reader.deinit();
        try expectEqual(std.math.maxInt(u64), try reader.remaining(null));
        try expectEqual(1, try layout.accesses(&.{ 0, 1 }, &buffer, null));
        try expectEqual(constants.Accessor.lease, buffer[0].accessor);
        try expect(buffer[0].block == 1 and buffer[0].reads == 1 and buffer[0].writes == 0 and buffer[0].pid != 0);
        try expectEqual(std.math.maxInt(u64), buffer[0].remaining_ns);
        const hour = 3600 * std.time.ns_per_s;
        try reader.renew(hour, null);
        const remaining = try reader.remaining(null);
        try expect(remaining > 0 and remaining <= hour);
        const writer = try layout.lease(&.{0}, .{ .flags = .{ .writes = true }, .duration_ns = hour }, null);
        defer writer.deinit();
        try expectEqual(1, try layout.accesses(&.{0}, &buffer, null));
        try expect(buffer[0].writes == 1 and buffer[0].remaining_ns <= hour + std.time.ns_per_ms);
    }
    try expectEqual(0, try layout.accesses(&.{ 0, 1 }, &buffer, null));
    try expectError(error.InvalidArgument, layout.lease(&.{}, .{}, null));
}
