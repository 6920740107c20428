// SPDX-License-Identifier: Apache-2.0
//! The calls of the tables. Each returns null, or how the call failed.
const std = @import("std");
const kvmem = @import("kvmem");
const constants = kvmem.constants;
const step_ = @import("step.zig");
const Step = step_.Step;
const Fault = step_.Fault;
const Adopted = @import("state.zig").Adopted;
const transfers = @import("transfers.zig");
const memory = @import("memory.zig");

pub const Failure = kvmem.Error || error{InProgress};

/// Of a call: faults of the run, and failures of kvmem. OutOfMemory is one of kvmem.
pub const Outcome = Fault || Failure;

const own = .{
    .{ "status_name", statusName },               .{ "region_create_system", createSystem },
    .{ "region_create_disk", createDisk },        .{ "region_create_view", createView },
    .{ "region_adopt_host", adoptHost },          .{ "region_get_info", regionInfo },
    .{ "region_get_path", regionPath },           .{ "region_get_holders", regionHolders },
    .{ "region_get_residency", regionResidency }, .{ "region_sync", regionSync },
    .{ "region_check_owner", regionCheckOwner },  .{ "region_commit", regionCommit },
    .{ "region_decommit", regionDecommit },       .{ "layout_get_requirements", layoutRequirements },
    .{ "layout_build", layoutBuild },             .{ "layout_get_info", layoutInfo },
    .{ "layout_get_strides", layoutStrides },     .{ "layout_get_block", layoutBlock },
    .{ "layout_get_row", layoutRow },             .{ "layout_get_region", layoutRegion },
    .{ "layout_checksum", layoutChecksum },       .{ "layout_resize", layoutResize },
    .{ "destroy", destroy },                      .{ "await_release", awaitRelease },
};

const all = own ++ transfers.table ++ memory.table;

/// How a call ended: no failure is OK.
pub const Ended = struct { failure: ?Failure = null };

pub fn run(s: *Step) Fault!Ended {
    inline for (all) |entry| {
        if (std.mem.eql(u8, entry[0], s.call)) {
            entry[1](s) catch |failure| switch (failure) {
                error.Fault => return error.Fault,
                error.NoSpaceLeft => return error.NoSpaceLeft,
                else => |known| return .{ .failure = known },
            };
            return .{};
        }
    }
    return s.fail("there is no call {s}", .{s.call});
}

/// Name of a failure in C, without its prefix.
pub fn nameOf(failure: Failure) []const u8 {
    if (failure == error.InProgress) return "IN_PROGRESS";
    var status: i32 = -1;
    while (status > -1000) : (status -= 1) {
        if (kvmem.errorOf(status).? == failure) return kvmem.statusName(status)["KVMEM_STATUS_".len..];
    }
    return "UNKNOWN";
}

/// The name of a call that creates an object must be free. To be called before the call.
pub fn free(s: *Step) Fault!void {
    if (s.state.find(s.name) != null) return s.fail("there is an object {s} already", .{s.name});
}

fn statusName(s: *Step) Outcome!void {
    const value = std.fmt.parseInt(i32, s.in.get("value") orelse "", 0) catch return s.fail("expected a status", .{});
    try s.put("name", kvmem.statusName(value)["KVMEM_STATUS_".len..]);
}

// ---- regions ----

fn region(s: *Step) Fault!kvmem.Region {
    return s.object(.region, s.name);
}

fn createSystem(s: *Step) Outcome!void {
    try free(s);
    const options: kvmem.SystemOptions = .{
        .flags = try s.flags(constants.SystemFlags, "flags"),
        .size = try s.number("size"),
        .huge_page_size = try s.number("huge_page_size"),
        .prefault_threads = try s.number32("prefault_threads"),
    };
    try s.state.add(s.name, .{ .region = try kvmem.Region.initSystem(options, &s.diagnostics) });
}

fn disk(s: *Step, flags: []const u8) Fault!kvmem.DiskOptions {
    return .{
        .flags = try s.flags(constants.DiskFlags, flags),
        .path = s.path("path"),
        .directory = s.path("directory"),
    };
}

fn createDisk(s: *Step) Outcome!void {
    try free(s);
    var options = try disk(s, "flags");
    options.size = try s.number("size");
    try s.state.add(s.name, .{ .region = try kvmem.Region.initDisk(options, &s.diagnostics) });
}

fn createView(s: *Step) Outcome!void {
    try free(s);
    const parent = try s.object(.region, s.in.get("region") orelse "");
    const view = try parent.view(try s.number("offset"), try s.number("size"), &s.diagnostics);
    try s.state.add(s.name, .{ .region = view });
}

fn adoptHost(s: *Step) Outcome!void {
    try free(s);
    const gpa = s.gpa();
    const bytes = try gpa.alignedAlloc(u8, .fromByteUnits(4096), try s.number("size"));
    @memset(bytes, 0);
    const adopted = try gpa.create(Adopted);
    adopted.* = .{ .name = try gpa.dupe(u8, s.name) };
    const flags = try s.flags(constants.AdoptFlags, "flags");
    const found = try kvmem.Region.adoptHost(bytes, flags, Adopted.release, adopted, &s.diagnostics);
    try s.state.adopted.append(gpa, adopted);
    try s.state.add(s.name, .{ .region = found });
}

fn regionInfo(s: *Step) Outcome!void {
    try s.putAll(try (try region(s)).info(&s.diagnostics));
}

fn regionPath(s: *Step) Outcome!void {
    const path = try (try region(s)).path(&s.diagnostics);
    defer path.deinit();
    try s.put("path", path.bytes());
}

fn regionHolders(s: *Step) Outcome!void {
    try s.putAll(try (try region(s)).holders(&s.diagnostics));
}

fn regionResidency(s: *Step) Outcome!void {
    _ = try (try region(s)).residency(&s.diagnostics);
}

fn regionSync(s: *Step) Outcome!void {
    try (try region(s)).sync(&s.diagnostics);
}

fn regionCheckOwner(s: *Step) Outcome!void {
    try (try region(s)).checkOwner(&s.diagnostics);
}

fn regionCommit(s: *Step) Outcome!void {
    try (try region(s)).commit(try s.number("offset"), try s.number("size"), &s.diagnostics);
}

fn regionDecommit(s: *Step) Outcome!void {
    try (try region(s)).decommit(try s.number("offset"), try s.number("size"), &s.diagnostics);
}

// ---- layouts ----

fn layout(s: *Step) Fault!kvmem.Layout {
    return s.object(.layout, s.name);
}

fn shape(s: *Step) Fault!kvmem.LayoutConfig {
    var config: kvmem.LayoutConfig = .{};
    inline for (comptime std.meta.fieldNames(kvmem.LayoutConfig)) |name| {
        if (@TypeOf(@field(config, name)) == u64) @field(config, name) = try s.number(name);
    }
    config.kind = try s.constant(constants.LayoutKind, "kind", "");
    config.block_dim = try s.constant(constants.BlockDim, "block_dim", "block_dim_");
    config.order = s.text("order");
    return config;
}

fn layoutRequirements(s: *Step) Outcome!void {
    try s.putAll(try (try shape(s)).requirements(&s.diagnostics));
}

fn layoutBuild(s: *Step) Outcome!void {
    try free(s);
    const system: kvmem.SystemOptions = .{ .flags = try s.flags(constants.SystemFlags, "system_flags") };
    const file = try disk(s, "disk_flags");
    var source: ?kvmem.Memory = null;
    if (s.in.get("memory")) |word| {
        if (std.mem.eql(u8, word, "system")) {
            source = .{ .system = system };
        } else if (std.mem.eql(u8, word, "disk")) {
            source = .{ .disk = file };
        } else return s.fail("no word {s} for memory", .{word});
    }
    if (s.in.get("regions")) |names| {
        var list: std.ArrayList(kvmem.Region) = .empty;
        var words = std.mem.tokenizeScalar(u8, names, ',');
        while (words.next()) |name| try list.append(s.gpa(), try s.object(.region, name));
        source = .{ .regions = list.items };
    }
    const chosen = source orelse return s.fail("a layout without memory", .{});
    const built = try kvmem.Layout.init(.{ .config = try shape(s), .memory = chosen }, &s.diagnostics);
    try s.state.add(s.name, .{ .layout = built });
}

fn layoutInfo(s: *Step) Outcome!void {
    const info = try (try layout(s)).info(&s.diagnostics);
    try s.putAll(info);
    try s.put("order", info.orderText());
    // The words of these constants have their prefix in the tables.
    for (s.results.items) |*result| if (std.mem.eql(u8, result.key, "block_dim")) {
        result.value = try std.fmt.allocPrint(s.gpa(), "block_dim_{s}", .{result.value});
    };
}

fn layoutStrides(s: *Step) Outcome!void {
    const strides = try (try layout(s)).strides(&s.diagnostics);
    try s.putAll(strides);
    try s.put("num_bases", strides.bases.len);
}

fn putRange(s: *Step, range: kvmem.Block) Outcome!void {
    const strides = try (try layout(s)).strides(&s.diagnostics);
    try s.put("offset", range.address - strides.bases[0]);
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
    try free(s);
    const of = try s.object(.layout, s.in.get("layout") orelse "");
    try s.state.add(s.name, .{ .region = try of.region(try s.number("index"), &s.diagnostics) });
}

fn layoutChecksum(s: *Step) Outcome!void {
    const blocks = try s.numbers("blocks") orelse &.{};
    const checksums = try s.gpa().alloc(u32, blocks.len);
    try (try layout(s)).checksums(blocks, checksums, &s.diagnostics);
    var text: std.ArrayList(u8) = .empty;
    for (checksums, 0..) |checksum, i| {
        if (i > 0) try text.append(s.gpa(), ',');
        var digits: [16]u8 = undefined;
        try text.appendSlice(s.gpa(), try std.fmt.bufPrint(&digits, "{d}", .{checksum}));
    }
    try s.put("checksums", text.items);
}

fn layoutResize(s: *Step) Outcome!void {
    try (try layout(s)).resize(try s.number("num_blocks"), &s.diagnostics);
}

// ---- steps that are no function ----

fn destroy(s: *Step) Outcome!void {
    if (s.state.find(s.name) == null) return s.fail("there is no object {s}", .{s.name});
    s.state.destroy(s.name);
}

fn awaitRelease(s: *Step) Outcome!void {
    for (s.state.adopted.items) |adopted| if (std.mem.eql(u8, adopted.name, s.name)) {
        while (!adopted.released.load(.acquire)) std.Thread.yield() catch {};
        return;
    };
    return s.fail("no region {s} was adopted", .{s.name});
}
