// SPDX-License-Identifier: Apache-2.0
//! Layouts.
const std = @import("std");
const kvmem = @import("kvmem");
const constants = kvmem.constants;
const Step = @import("step.zig").Step;
const Fault = @import("step.zig").Fault;
const calls = @import("calls.zig");
const Outcome = calls.Outcome;
const Object = @import("state.zig").Object;
const disk = @import("regions.zig").disk;

pub const table = .{
    .{ "layout_get_requirements", layoutRequirements }, .{ "layout_build", layoutBuild },
    .{ "layout_combine", layoutCombine },               .{ "layout_get_part", layoutPart },
    .{ "layout_get_info", layoutInfo },                 .{ "layout_get_block", layoutBlock },
    .{ "layout_get_row", layoutRow },                   .{ "layout_get_region", layoutRegion },
    .{ "layout_checksum", layoutChecksum },             .{ "layout_create_epochs", createEpochs },
    .{ "layout_get_accesses", accesses },               .{ "lease_create", leaseCreate },
    .{ "lease_get_remaining", leaseRemaining },         .{ "layout_serve", layoutServe },
};

fn layout(s: *Step) Fault!kvmem.Layout {
    return s.object(.layout, s.name);
}

pub fn shape(s: *Step) Fault!kvmem.LayoutConfig {
    var config: kvmem.LayoutConfig = .{};
    inline for (comptime std.meta.fieldNames(kvmem.LayoutConfig)) |name| {
        if (@TypeOf(@field(config, name)) == u64) @field(config, name) = try s.number(name);
    }
    config.order = s.text("order");
    config.identity = s.text("identity") orelse "";
    return config;
}

fn layoutRequirements(s: *Step) Outcome!void {
    try s.putAll(try (try shape(s)).requirements(&s.diagnostics));
}

/// The objects of a list; null without the key.
fn objects(s: *Step, comptime kind: std.meta.Tag(Object), key: []const u8) Fault!?[]@FieldType(Object, @tagName(kind)) {
    var list: std.ArrayList(@FieldType(Object, @tagName(kind))) = .empty;
    var words = std.mem.tokenizeScalar(u8, s.in.get(key) orelse return null, ',');
    while (words.next()) |name| try list.append(s.gpa(), try s.object(kind, name));
    return list.items;
}

fn layoutBuild(s: *Step) Outcome!void {
    try calls.free(s);
    const system: kvmem.SystemOptions = .{ .flags = try s.flags(constants.SystemFlags, "system_flags") };
    const file = try disk(s, "disk_flags");
    const device = try s.number32("device");
    const tier = try s.constant(constants.Tier, "memory", "");
    const agent: ?kvmem.Agent = if (s.in.get("agent")) |name| try s.object(.agent, name) else null;
    const memory: kvmem.Memory = if (try objects(s, .region, "regions")) |list|
        .{ .regions = list }
    else if (try objects(s, .registration, "registrations")) |list|
        .{ .registrations = list }
    else switch (tier) {
        .system => .{ .system = system },
        .disk => .{ .disk = file },
        .pinned => .{ .pinned = .{ .device = @intCast(device) } },
        .device => .{ .device = .{ .device = @intCast(device) } },
        .elastic => .{ .elastic = .{ .device = @intCast(device) } },
        .default, .object, .block, _ => return s.fail("a layout without memory", .{}),
    };
    const built = try kvmem.Layout.init(.{ .config = try shape(s), .memory = memory, .agent = agent }, &s.diagnostics);
    try s.state.add(s.name, .{ .layout = built });
}

fn layoutCombine(s: *Step) Outcome!void {
    try calls.free(s);
    var parts: std.ArrayList(kvmem.LayoutPart) = .empty;
    var words = std.mem.tokenizeScalar(u8, s.in.get("parts") orelse "", ',');
    while (words.next()) |word| {
        const name, const layout_name = try s.pair(word);
        const part = try s.object(.layout, layout_name);
        try parts.append(s.gpa(), .init(try s.gpa().dupeSentinel(u8, name, 0), part));
    }
    try s.state.add(s.name, .{ .layout = try kvmem.Layout.combine(parts.items, &s.diagnostics) });
}

fn layoutPart(s: *Step) Outcome!void {
    try calls.free(s);
    const of = try s.object(.layout, s.in.get("layout") orelse "");
    try s.state.add(s.name, .{ .layout = try of.part(s.text("name") orelse "", &s.diagnostics) });
}

fn layoutInfo(s: *Step) Outcome!void {
    const info = try (try layout(s)).info(&s.diagnostics);
    try s.putAll(info);
    try s.put("order", info.orderText());
    try s.put("identity", info.identity);
    try s.put("agent", info.agentName() orelse "");
    var names: std.ArrayList(u8) = .empty;
    for (info.partNames(), 0..) |name, i| {
        if (i > 0) try names.append(s.gpa(), ',');
        try names.appendSlice(s.gpa(), std.mem.span(name));
    }
    try s.put("part_names", names.items);
}

fn putRange(s: *Step, range: kvmem.Block) Outcome!void {
    const info = try (try layout(s)).info(&s.diagnostics);
    try s.put("offset", range.address - info.bases[0]);
    try s.put("size", range.size);
}

fn layoutBlock(s: *Step) Outcome!void {
    const block, const layer, const outer = .{ try s.number32("block"), try s.number("layer"), try s.number("outer") };
    try putRange(s, try (try layout(s)).block(block, layer, outer, &s.diagnostics));
}

fn layoutRow(s: *Step) Outcome!void {
    const block, const layer, const outer = .{ try s.number32("block"), try s.number("layer"), try s.number("outer") };
    const token, const head = .{ try s.number("token"), try s.number("head") };
    try putRange(s, try (try layout(s)).row(block, layer, outer, token, head, &s.diagnostics));
}

fn layoutRegion(s: *Step) Outcome!void {
    try calls.free(s);
    const of = try s.object(.layout, s.in.get("layout") orelse "");
    try s.state.add(s.name, .{ .region = try of.region(try s.number("index"), &s.diagnostics) });
}

fn layoutChecksum(s: *Step) Outcome!void {
    const blocks = try s.numbers("blocks") orelse &.{};
    const checksums = try s.gpa().alloc(u32, blocks.len);
    const limit = try s.numberOr("timeout_ns", kvmem.forever);
    try (try layout(s)).checksums(blocks, checksums, limit, &s.diagnostics);
    try calls.putNumbers(s, "checksums", checksums);
}

fn createEpochs(s: *Step) Outcome!void {
    const region: ?kvmem.Region = if (s.in.get("table")) |name| try s.object(.region, name) else null;
    try (try layout(s)).createEpochs(region, &s.diagnostics);
}

fn accesses(s: *Step) Outcome!void {
    const blocks = try s.numbers("blocks") orelse &.{};
    const count = try (try layout(s)).accesses(blocks, &.{}, &s.diagnostics);
    try s.put("count", count);
}

fn layoutServe(s: *Step) Outcome!void {
    const options: kvmem.ServeOptions = .{
        .staging_size = try s.number("staging_size"),
        .max_lease_ns = try s.number("max_lease_ns"),
    };
    try (try layout(s)).serve(options, &s.diagnostics);
}

fn leaseCreate(s: *Step) Outcome!void {
    try calls.free(s);
    const of = try s.object(.layout, s.in.get("layout") orelse "");
    const blocks = try s.numbers("blocks") orelse &.{};
    const options: kvmem.LeaseOptions = .{
        .flags = try s.flags(constants.LeaseFlags, "flags"),
        .duration_ns = try s.number("duration_ns"),
        .timeout_ns = try s.number("timeout_ns"),
    };
    try s.state.add(s.name, .{ .lease = try of.lease(blocks, options, &s.diagnostics) });
}

fn leaseRemaining(s: *Step) Outcome!void {
    try s.put("remaining_ns", try (try s.object(.lease, s.name)).remaining(&s.diagnostics));
}
