// SPDX-License-Identifier: Apache-2.0
const std = @import("std");
const kvmem = @import("../kvmem.zig");
const common = @import("common.zig");
const expect = std.testing.expect;
const expectEqual = std.testing.expectEqual;
const expectError = std.testing.expectError;
const shape = common.shape;
const fill = common.fill;
const sameBlock = common.sameBlock;

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
    try expectEqual(2, (try share.fds(null)).len);
    const received = try kvmem.Share.initReceived(try share.data(null), try share.fds(null), null);
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
    const fetched = try kvmem.Share.fetch(.{ .path = socket, .name = "cache", .token = token }, kvmem.forever, null);
    fetched.deinit();
    const fetch: kvmem.FetchOptions = .{ .path = socket, .name = "cache", .token = token };
    try expectError(error.PermissionDenied, kvmem.Share.fetch(fetch, kvmem.forever, null));
    _ = try broker.grant("cache", .{ .flags = .{ .read_only = true } }, null);
    try expectEqual(1, (try broker.info(null)).granted);
    try broker.unpublish("cache", null);
    try expectError(error.NotFound, broker.unpublish("cache", null));
}
