// SPDX-License-Identifier: Apache-2.0
const std = @import("std");
const kvmem = @import("../kvmem.zig");
const constants = kvmem.constants;
const expect = std.testing.expect;
const expectEqual = std.testing.expectEqual;
const expectError = std.testing.expectError;

test "regions" {
    const region = try kvmem.Region.initSystem(.{ .size = 1 << 16, .prefault_threads = 1 }, null);
    const view = try region.view(4096, 4096, null);
    defer view.deinit();
    try expectEqual(1, (try region.holders(null)).views);
    try expect((try region.residency(null)).resident_bytes >= 1 << 16);
    try region.checkOwner(null);
    try expectError(error.InvalidArgument, region.commit(0, 1, null));
    try expectError(error.InvalidArgument, region.decommit(0, 1, null));
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
    try expectError(error.InvalidArgument, kvmem.Region.adoptMemfd(.{ .fd = -1, .size = 4096 }, null));
}
