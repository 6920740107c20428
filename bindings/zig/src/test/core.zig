// SPDX-License-Identifier: Apache-2.0
//! Versions, errors, the log.
const std = @import("std");
const kvmem = @import("../kvmem.zig");
const common = @import("common.zig");
const constants = kvmem.constants;
const expect = std.testing.expect;
const expectEqual = std.testing.expectEqual;
const expectError = std.testing.expectError;
const expectEqualStrings = std.testing.expectEqualStrings;
const shape = common.shape;
const build = common.build;

test "versions" {
    try expectEqual(kvmem.header_abi_version, kvmem.abiVersion());
    try expect(std.mem.startsWith(u8, kvmem.version(), "0.1."));
}

test "statistics" {
    const region = try kvmem.Region.initSystem(.{ .size = 4096 }, null);
    defer region.deinit();
    const statistics = try kvmem.statistics(null);
    try expect(statistics.system_bytes >= 4096 and statistics.num_regions > 0);
    const requests = try kvmem.methodStatistics(null, null);
    try expectEqual(0, requests.latency_sums_ns[0]);
    const copies = try kvmem.methodStatistics(.memcpy, null);
    try expectEqual(0, copies.runs[@backingInt(constants.Direction.push)][0]);
    const text = try kvmem.statisticsText(null);
    defer text.deinit();
    try expect(std.mem.indexOf(u8, text.bytes(), "# TYPE kvmem_runs_total counter\n") != null);
    const trace = try kvmem.exportTrace(null);
    defer trace.deinit();
    try expect(std.mem.indexOf(u8, trace.bytes(), "\"traceEvents\":[") != null);
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

test "errors of the wrapper have a message, too" {
    var diagnostics: kvmem.Diagnostics = .{};
    defer diagnostics.deinit();
    const disk = try kvmem.Region.initDisk(.{ .size = 4096, .flags = .{ .buffered = true } }, null);
    defer disk.deinit();
    try expectError(error.NotFound, disk.path(&diagnostics));
    try expectError(error.Unsupported, disk.bytes(&diagnostics));
    try expectEqualStrings("KVMEM_STATUS_UNSUPPORTED", kvmem.statusName(diagnostics.status()));
    try expect(std.mem.indexOf(u8, diagnostics.message(), "host memory") != null);
    try expect(diagnostics.cause() == null);
    const layout = try build(shape);
    defer layout.deinit();
    var out: [1]u32 = undefined;
    try expectError(error.InvalidArgument, layout.checksums(&.{ 1, 2 }, &out, kvmem.forever, &diagnostics));
    try expect(std.mem.indexOf(u8, diagnostics.message(), "out") != null);
    // That of the library replaces it.
    try expectError(error.OutOfRange, layout.block(8, 0, 0, &diagnostics));
    try expectEqualStrings("KVMEM_STATUS_OUT_OF_RANGE", kvmem.statusName(diagnostics.status()));
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
