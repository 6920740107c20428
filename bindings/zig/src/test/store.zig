// SPDX-License-Identifier: Apache-2.0
const std = @import("std");
const kvmem = @import("../kvmem.zig");
const common = @import("common.zig");
const expect = std.testing.expect;
const expectEqual = std.testing.expectEqual;
const expectEqualSlices = std.testing.expectEqualSlices;
const expectError = std.testing.expectError;
const patience = common.patience;

fn keys(comptime numbers: []const u8) kvmem.StoreKeys {
    comptime var bytes: [32 * numbers.len]u8 = undefined;
    inline for (numbers, 0..) |number, index| {
        comptime @memset(bytes[32 * index ..][0..32], number);
    }
    const joined = bytes;
    return .{ .bytes = &joined, .size = 32 };
}

fn options(path: [:0]const u8) kvmem.StoreOptions {
    var config = common.shape;
    config.num_blocks = 4;
    return .{ .path = path, .config = config, .identity = &.{
        kvmem.StoreValue.init("model", "llama"),
        kvmem.StoreValue.init("dtype", "bf16"),
    } };
}

const Folder = struct {
    directory: std.testing.TmpDir,
    buffer: [128]u8 = undefined,

    fn path(self: *Folder) ![:0]const u8 {
        return std.fmt.bufPrintSentinel(&self.buffer, ".zig-cache/tmp/{s}/store", .{self.directory.sub_path}, 0);
    }
};

test "blocks survive in a store" {
    var folder: Folder = .{ .directory = std.testing.tmpDir(.{}) };
    defer folder.directory.cleanup();
    const path = try folder.path();
    const source = try common.build(common.shape);
    defer source.deinit();
    const destination = try common.build(common.shape);
    defer destination.deinit();
    try common.fill(source, 1);
    {
        const store = try kvmem.Store.init(options(path), patience, null);
        defer store.deinit();
        const run = try store.put(source, .{ .keys = keys(&.{ 0, 1 }), .blocks = &.{ 5, 2 } }, .{}, null);
        defer run.deinit();
        try expectEqual(2, try run.wait(patience, null));
        const again = try store.put(source, .{ .keys = keys(&.{ 0, 1 }), .blocks = &.{ 5, 2 } }, .{}, null);
        defer again.deinit();
        try expectEqual(0, try again.wait(patience, null));
        try expect(again.transfer == null);
        try store.flush(patience, null);
    }
    var reopened = options(path);
    reopened.config.num_blocks = 0;
    const store = try kvmem.Store.init(reopened, patience, null);
    defer store.deinit();
    const queue = try kvmem.Queue.init(null);
    defer queue.deinit();
    const run = try store.get(
        destination,
        .{ .keys = keys(&.{ 0, 1, 2 }), .blocks = &.{ 0, 1, 3 }, .user_data = 77 },
        .{ .queue = queue },
        null,
    );
    defer run.deinit();
    try expectEqual(2, try run.wait(patience, null));
    var completions: [2]kvmem.Completion = undefined;
    const completed = try queue.wait(patience, &completions, null);
    try expectEqual(1, completed.len);
    try expectEqual(77, completed[0].user_data);
    try common.sameBlock(source, 5, destination, 0);
    try common.sameBlock(source, 2, destination, 1);
    var found: [3]bool = undefined;
    try store.contains(keys(&.{ 0, 2, 1 }), &found, null);
    try expectEqual([3]bool{ true, false, true }, found);
    try expectEqual(1, try store.pin(keys(&.{ 1, 2 }), null));
    var entries: [8]kvmem.StoreEntry = undefined;
    const listed = try store.list(0, &entries, null);
    try expectEqual(2, listed.len);
    try expectEqualSlices(u8, keys(&.{0}).bytes, listed[0].key());
    try expect(listed[0].parent() == null and listed[0].is_pinned == 0);
    try expectEqualSlices(u8, keys(&.{0}).bytes, listed[1].parent().?);
    try expectEqual(1, listed[1].is_pinned);
    try expectEqual(1, try store.unpin(keys(&.{1}), null));
    try expectEqual(1, try store.remove(keys(&.{ 1, 3 }), patience, null));
    try expectEqual(0, try store.verify(patience, null));
    const info = try store.info(null);
    try expectEqual(4, info.num_slots);
    try expectEqual(1, info.num_stored);
    try expectEqual(2, info.num_hits);
    try expectEqual(kvmem.constants.Durability.strict, info.durability);
    const text = try kvmem.Store.describe(path, null);
    defer text.deinit();
    try expect(std.mem.indexOf(u8, text.bytes(), "model is 'llama'") != null);
}

test "a store has blocks of other sizes" {
    var folder: Folder = .{ .directory = std.testing.tmpDir(.{}) };
    defer folder.directory.cleanup();
    const store = try kvmem.Store.init(options(try folder.path()), patience, null);
    defer store.deinit();
    var large = common.shape;
    large.page_size = 8;
    const source = try common.build(large);
    defer source.deinit();
    const destination = try common.build(common.shape);
    defer destination.deinit();
    const expected = try common.build(common.shape);
    defer expected.deinit();
    try common.fill(source, 3);
    const stored = try store.put(source, .{ .keys = keys(&.{ 0, 1, 2 }), .blocks = &.{ 4, 1 } }, .{}, null);
    defer stored.deinit();
    try expectEqual(3, try stored.wait(patience, null));
    const loaded = try store.get(destination, .{ .keys = keys(&.{ 0, 1, 2 }), .blocks = &.{ 0, 1, 2 } }, .{}, null);
    defer loaded.deinit();
    try expectEqual(3, try loaded.wait(patience, null));
    const transfer = try kvmem.Transfer.start(source, expected, .{}, .{
        .source_table = .{ .blocks = &.{ 4, 1 } },
        .destination_table = .{ .blocks = &.{ 0, 1, 2 } },
        .num_tokens = 12,
    }, null);
    defer transfer.deinit();
    try transfer.wait(patience, null);
    for (0..3) |block| try common.sameBlock(expected, @intCast(block), destination, @intCast(block));
}

test "misuse of a store is named" {
    var folder: Folder = .{ .directory = std.testing.tmpDir(.{}) };
    defer folder.directory.cleanup();
    const path = try folder.path();
    const source = try common.build(common.shape);
    defer source.deinit();
    const store = try kvmem.Store.init(options(path), patience, null);
    defer store.deinit();
    var diagnostics: kvmem.Diagnostics = .{};
    defer diagnostics.deinit();
    try expectError(error.Busy, kvmem.Store.init(options(path), patience, &diagnostics));
    try expect(std.mem.indexOf(u8, diagnostics.message(), "this process") != null);
    var found: [2]bool = undefined;
    try expectError(error.InvalidArgument, store.contains(keys(&.{0}), &found, &diagnostics));
    try expectError(error.InvalidArgument, store.contains(.{ .bytes = &@as([15]u8, @splat(1)), .size = 15 }, found[0..1], &diagnostics));
    try expect(std.mem.indexOf(u8, diagnostics.message(), "15 bytes") != null);
    const cut: kvmem.StoreKeys = .{ .bytes = keys(&.{ 0, 1 }).bytes[0..63], .size = 32 };
    try expectError(error.InvalidArgument, store.contains(cut, found[0..1], &diagnostics));
    try expectError(error.InvalidArgument, store.remove(cut, patience, &diagnostics));
    try expectError(error.InvalidArgument, store.put(source, .{ .keys = cut, .blocks = &.{0} }, .{}, &diagnostics));
    try expect(std.mem.indexOf(u8, diagnostics.message(), "no whole number of keys") != null);
    try expectError(error.InvalidArgument, store.put(source, .{ .keys = keys(&.{0}), .blocks = &.{ 0, 1 } }, .{}, &diagnostics));
    try expect(std.mem.indexOf(u8, diagnostics.message(), "num_blocks is 2") != null);
    try expectError(
        error.InvalidArgument,
        store.put(source, .{ .keys = keys(&.{0}), .blocks = &.{0}, .parent = "short" }, .{}, &diagnostics),
    );
}
