// SPDX-License-Identifier: Apache-2.0
//! Stores.
const std = @import("std");
const kvmem = @import("kvmem");
const constants = kvmem.constants;
const Step = @import("step.zig").Step;
const Fault = @import("step.zig").Fault;
const calls = @import("calls.zig");
const layouts = @import("layouts.zig");
const transfers = @import("transfers.zig");
const Outcome = calls.Outcome;

pub const table = .{
    .{ "store_open", open },                        .{ "store_put", put },       .{ "store_get", get },
    .{ "store_contains", contains },                .{ "store_remove", remove }, .{ "store_pin", pin },
    .{ "store_unpin", unpin },                      .{ "store_list", list },     .{ "store_get_info", info },
    .{ "store_flush", flush },                      .{ "store_verify", verify }, .{ "store_open_namespace", openNamespace },
    .{ "store_remove_namespace", removeNamespace },
};

const key_size = 32;

fn open(s: *Step) Outcome!void {
    try calls.free(s);
    var values: std.ArrayList(kvmem.StoreValue) = .empty;
    var words = std.mem.tokenizeScalar(u8, s.in.get("values") orelse "", ',');
    while (words.next()) |word| {
        const name, const value = try s.pair(word);
        try values.append(s.gpa(), kvmem.StoreValue.init(try s.gpa().dupeSentinel(u8, name, 0), value));
    }
    const made = try kvmem.Store.init(.{
        .path = s.path("path") orelse "",
        .config = try layouts.shape(s),
        .identity = values.items,
        .max_size = try s.number("max_size"),
        .durability = try s.constant(constants.Durability, "durability", ""),
        .eviction = try s.constant(constants.Eviction, "eviction", ""),
        .flags = try s.flags(constants.DiskFlags, "flags"),
    }, kvmem.forever, &s.diagnostics);
    try s.state.add(s.name, .{ .store = made });
}

fn nameOf(s: *Step) Fault![:0]const u8 {
    return s.gpa().dupeSentinel(u8, s.in.get("name") orelse "", 0);
}

fn openNamespace(s: *Step) Outcome!void {
    try calls.free(s);
    const of: kvmem.Store = try s.object(.store, s.in.get("store") orelse "");
    const opened = try of.openNamespace(.{
        .name = try nameOf(s),
        .quota = try s.number("quota"),
        .key = if (s.in.get("key") != null) try keyOf(s, try s.number("key")) else null,
    }, kvmem.forever, &s.diagnostics);
    try s.state.add(s.name, .{ .store = opened });
}

fn removeNamespace(s: *Step) Outcome!void {
    try s.put("count", try (try store(s)).removeNamespace(try nameOf(s), kvmem.forever, &s.diagnostics));
}

fn store(s: *Step) Fault!kvmem.Store {
    return s.object(.store, s.name);
}

fn keyOf(s: *Step, number: u64) Fault![]const u8 {
    const bytes = try s.gpa().alloc(u8, key_size);
    @memset(bytes, @intCast(number));
    return bytes;
}

fn keys(s: *Step) Fault!kvmem.StoreKeys {
    const numbers = try s.numbers("keys") orelse &.{};
    const bytes = try s.gpa().alloc(u8, key_size * numbers.len);
    for (numbers, 0..) |number, i| @memset(bytes[key_size * i ..][0..key_size], @intCast(number));
    return .{ .bytes = bytes, .size = key_size };
}

fn blocks(s: *Step) Fault!kvmem.StoreBlocks {
    return .{
        .keys = try keys(s),
        .blocks = try s.numbers("blocks") orelse &.{},
        .parent = if (s.in.get("parent") != null) try keyOf(s, try s.number("parent")) else null,
        .flags = try s.flags(constants.StoreFlags, "store_flags"),
    };
}

fn layout(s: *Step) Fault!kvmem.Layout {
    return s.object(.layout, s.in.get("layout") orelse "");
}

fn put(s: *Step) Outcome!void {
    const run = try (try store(s)).put(try layout(s), try blocks(s), try transfers.options(s), &s.diagnostics);
    try ended(s, run);
}

fn get(s: *Step) Outcome!void {
    const run = try (try store(s)).get(try layout(s), try blocks(s), try transfers.options(s), &s.diagnostics);
    try ended(s, run);
}

fn ended(s: *Step, run: kvmem.StoreRun) Outcome!void {
    defer run.deinit();
    try s.put("num_moved", try run.wait(kvmem.forever, &s.diagnostics));
}

fn contains(s: *Step) Outcome!void {
    const wanted = try keys(s);
    const found = try s.gpa().alloc(bool, wanted.count());
    try (try store(s)).contains(wanted, found, &s.diagnostics);
    const numbers = try s.gpa().alloc(u8, found.len);
    for (numbers, found) |*number, is_stored| number.* = @intFromBool(is_stored);
    try calls.putNumbers(s, "found", numbers);
}

fn remove(s: *Step) Outcome!void {
    try s.put("count", try (try store(s)).remove(try keys(s), kvmem.forever, &s.diagnostics));
}

fn pin(s: *Step) Outcome!void {
    try s.put("count", try (try store(s)).pin(try keys(s), &s.diagnostics));
}

fn unpin(s: *Step) Outcome!void {
    try s.put("count", try (try store(s)).unpin(try keys(s), &s.diagnostics));
}

fn list(s: *Step) Outcome!void {
    const space = try s.gpa().alloc(kvmem.StoreEntry, try s.number("capacity"));
    var text: std.ArrayList(u8) = .empty;
    for (try (try store(s)).list(try s.number("first_slot"), space, &s.diagnostics), 0..) |*entry, i| {
        if (i > 0) try text.append(s.gpa(), ',');
        const parent = if (entry.parent()) |bytes| try std.fmt.allocPrint(s.gpa(), "{d}", .{bytes[0]}) else "";
        try text.appendSlice(s.gpa(), try std.fmt.allocPrint(s.gpa(), "{d}:{s}:{d}", .{ entry.key()[0], parent, entry.is_pinned }));
    }
    try s.put("entries", text.items);
}

fn info(s: *Step) Outcome!void {
    try s.putAll(try (try store(s)).info(&s.diagnostics));
}

fn flush(s: *Step) Outcome!void {
    try (try store(s)).flush(try s.numberOr("timeout_ns", kvmem.forever), &s.diagnostics);
}

fn verify(s: *Step) Outcome!void {
    _ = try (try store(s)).verify(try s.numberOr("timeout_ns", kvmem.forever), &s.diagnostics);
}
