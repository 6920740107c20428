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
const agent = common.agent;

/// The next event, which must be the only one.
fn expectEvent(directory: kvmem.Directory, kind: kvmem.DirectoryChange, version: u64) !void {
    const events = try directory.takeEvents(patience, null);
    defer events.deinit();
    try expectEqual(1, events.count());
    const event = events.get(0);
    try expectEqual(kind, event.kind);
    try expectEqualStrings("publisher", event.agent);
    try expectEqual(version, event.version);
    try expectEqual(0, event.status);
    try expectEqualStrings("", event.message);
    try expectEqual(@as(usize, 1), events.count());
}

test "an agent is published, found, watched and withdrawn" {
    var buffer: [64]u8 = undefined;
    const folder = try std.fmt.bufPrintSentinel(&buffer, "/tmp/kvmem-zig-directory-{d}", .{std.c.getpid()}, 0);
    defer _ = std.c.rmdir(folder.ptr);

    const publisher_agent = try agent("publisher", .{});
    defer publisher_agent.deinit();
    const reader = try agent("reader", .{});
    defer reader.deinit();
    const cache = try kvmem.Layout.init(.{
        .config = shape,
        .memory = .{ .system = .{} },
        .agent = publisher_agent,
    }, null);
    defer cache.deinit();

    const publisher = try kvmem.Directory.init(.{ .folder = folder }, null);
    const watcher = try kvmem.Directory.init(.{ .folder = folder }, null);
    defer watcher.deinit();
    const queue = try kvmem.Queue.init(null);
    defer queue.deinit();
    try watcher.watch("publisher", patience, null);
    try watcher.reportEvents(queue, 7, null);
    try expectError(error.NotFound, watcher.lookUp("publisher", patience, null));
    try expectError(error.TimedOut, watcher.waitFor("publisher", 1_000_000, null));
    try publisher.publish(publisher_agent, &.{kvmem.NamedLayout.init("cache", cache)}, patience, null);
    const awaited = try watcher.waitFor("publisher", patience, null);
    defer awaited.deinit();
    try expectEqual(1, (try awaited.info(null)).version);
    var completions: [1]kvmem.Completion = undefined;
    try expectEqual(7, (try queue.wait(patience, &completions, null))[0].user_data);
    try watcher.reportEvents(null, 0, null);
    try expectEvent(watcher, .published, 1);

    const entry = try watcher.lookUp("publisher", patience, null);
    defer entry.deinit();
    try watcher.check(entry, patience, null);
    const info = try entry.info(null);
    try expectEqualStrings("publisher", info.agent);
    try expect(info.incarnation != 0 and info.metadata.len > 0);
    try expectEqual(1, info.version);
    try expectEqual(1, info.layout_count);
    const published = try entry.layout(0, null);
    try expectEqualStrings("cache", published.name);
    const exported = try cache.exportDescriptor(null);
    defer exported.deinit();
    try expectEqualStrings(exported.bytes(), published.descriptor);
    try entry.load(reader, null);
    const opening: kvmem.OpenOptions = .{ .flags = .{ .remote = true }, .agent = reader };
    const remote = try entry.openLayout("cache", opening, patience, null);
    remote.deinit();
    try expectError(error.NotFound, entry.openLayout("other", opening, patience, null));

    try publisher.publish(publisher_agent, &.{}, patience, null);
    try expectEvent(watcher, .updated, 2);
    try expectError(error.Stale, watcher.check(entry, patience, null));
    try publisher.withdraw("publisher", patience, null);
    try expectEvent(watcher, .withdrawn, 2);
    try expectError(error.NotFound, publisher.withdraw("publisher", patience, null));
    try publisher.publish(publisher_agent, &.{}, patience, null);
    publisher.deinit(); // withdraws
    try expectError(error.NotFound, watcher.check(entry, patience, null));
    try watcher.unwatch("publisher", patience, null);
    try expectError(error.NotFound, watcher.unwatch(null, patience, null));

    var diagnostics: kvmem.Diagnostics = .{};
    defer diagnostics.deinit();
    try expectError(error.InvalidArgument, kvmem.Directory.init(.{}, &diagnostics));
    try expect(std.mem.indexOf(u8, diagnostics.message(), "folder or endpoints") != null);
    const endpoints = [_][*:0]const u8{"http://user:secret@127.0.0.1:1"};
    try expectError(error.InvalidArgument, kvmem.Directory.init(.{ .endpoints = &endpoints, .lease_seconds = 5 }, &diagnostics));
    try expect(std.mem.indexOf(u8, diagnostics.message(), "secret") == null);
}

test "a layout that is published with a broker is mapped" {
    var buffer: [64]u8 = undefined;
    const folder = try std.fmt.bufPrintSentinel(&buffer, "/tmp/kvmem-zig-offered-{d}", .{std.c.getpid()}, 0);
    defer _ = std.c.rmdir(folder.ptr);
    var path_buffer: [64]u8 = undefined;
    const path = try std.fmt.bufPrintSentinel(&path_buffer, "/tmp/kvmem-zig-broker-{d}", .{std.c.getpid()}, 0);

    const publisher = try agent("publisher", .{});
    defer publisher.deinit();
    const cache = try kvmem.Layout.init(.{
        .config = shape,
        .memory = .{ .system = .{ .flags = .{ .shareable = true } } },
        .agent = publisher,
    }, null);
    defer cache.deinit();
    const broker = try kvmem.Broker.init(.{ .path = path }, null);
    defer broker.deinit();
    const directory = try kvmem.Directory.init(.{ .folder = folder }, null);
    defer directory.deinit();
    const writable = (kvmem.ShareOptions{}).toC();
    try directory.publish(publisher, &.{
        kvmem.NamedLayout.initOffered("cache", cache, broker, &writable),
        kvmem.NamedLayout.init("plain", cache),
    }, patience, null);
    const entry = try directory.lookUp("publisher", patience, null);
    defer entry.deinit();
    const opened = try entry.openLayout("cache", .{ .flags = .{ .read_write = true } }, patience, null);
    defer opened.deinit();
    try expectEqual(.local, (try opened.info(null)).locality);
    try expectError(error.Unsupported, entry.openLayout("plain", .{}, patience, null));
}
