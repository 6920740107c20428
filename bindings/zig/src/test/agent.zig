// SPDX-License-Identifier: Apache-2.0
const std = @import("std");
const kvmem = @import("../kvmem.zig");
const common = @import("common.zig");
const expect = std.testing.expect;
const expectEqual = std.testing.expectEqual;
const expectError = std.testing.expectError;
const expectEqualStrings = std.testing.expectEqualStrings;
const shape = common.shape;
const patience = common.patience;
const fill = common.fill;
const sameBlock = common.sameBlock;
const agent = common.agent;

test "NIXL" {
    const owner = try agent("owner", .{});
    defer owner.deinit();
    const reader = try agent("reader", .{});
    defer reader.deinit();
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
    var diagnostics: kvmem.Diagnostics = .{};
    defer diagnostics.deinit();
    try expectError(error.Unsupported, remote.bytes(0, 0, 0, &diagnostics));
    try expect(std.mem.indexOf(u8, diagnostics.message(), "peer") != null);
    const transfer = try kvmem.Transfer.start(remote, local, .{}, .{
        .pairs = &.{.{ .source = 6, .destination = 2 }},
        .notification = "block 6 is read",
    }, null);
    try transfer.wait(patience, null);
    transfer.deinit();
    try sameBlock(cache, 6, local, 2);
    const messages = try owner.takeNotifications(patience, null);
    defer messages.deinit();
    try expectEqual(1, messages.count());
    try expectEqualStrings("block 6 is read", messages.get(0).data);
    try reader.notify("owner", "bye", null);
    try expectError(error.Busy, registration.deregister(null));
    try expectError(error.InvalidState, owner.sendMetadata("127.0.0.1", 1, null));
    try expectError(error.InvalidState, owner.fetchPeer("reader", "127.0.0.1", 1, 0, null));
    try reader.invalidatePeer("owner", null);
    const path = try kvmem.nixlPath(null);
    defer path.deinit();
    try kvmem.loadNixl(path.bytes(), null);
}
