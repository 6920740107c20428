// SPDX-License-Identifier: Apache-2.0
//! Regions in host memory and in files.
const std = @import("std");
const kvmem = @import("kvmem");
const constants = kvmem.constants;
const Step = @import("step.zig").Step;
const Fault = @import("step.zig").Fault;
const calls = @import("calls.zig");
const Outcome = calls.Outcome;
const Adopted = @import("state.zig").Adopted;

pub const table = .{
    .{ "region_create_system", createSystem }, .{ "region_create_disk", createDisk },
    .{ "region_create_view", createView },     .{ "region_adopt_host", adoptHost },
    .{ "region_get_info", regionInfo },        .{ "region_get_path", regionPath },

    .{ "await_release", awaitRelease },
};

fn region(s: *Step) Fault!kvmem.Region {
    return s.object(.region, s.name);
}

fn createSystem(s: *Step) Outcome!void {
    try calls.free(s);
    const options: kvmem.SystemOptions = .{
        .flags = try s.flags(constants.SystemFlags, "flags"),
        .size = try s.number("size"),
        .huge_page_size = try s.number("huge_page_size"),
        .prefault_threads = try s.number32("prefault_threads"),
    };
    try s.state.add(s.name, .{ .region = try kvmem.Region.initSystem(options, &s.diagnostics) });
}

pub fn disk(s: *Step, flags: []const u8) Fault!kvmem.DiskOptions {
    return .{
        .flags = try s.flags(constants.DiskFlags, flags),
        .path = s.path("path"),
        .directory = s.path("directory"),
    };
}

fn createDisk(s: *Step) Outcome!void {
    try calls.free(s);
    var options = try disk(s, "flags");
    options.size = try s.number("size");
    try s.state.add(s.name, .{ .region = try kvmem.Region.initDisk(options, &s.diagnostics) });
}

fn createView(s: *Step) Outcome!void {
    try calls.free(s);
    const parent = try s.object(.region, s.in.get("region") orelse "");
    const view = try parent.view(try s.number("offset"), try s.number("size"), &s.diagnostics);
    try s.state.add(s.name, .{ .region = view });
}

fn adoptHost(s: *Step) Outcome!void {
    try calls.free(s);
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
    try s.putBlob("path", try (try region(s)).path(&s.diagnostics));
}

fn awaitRelease(s: *Step) Outcome!void {
    for (s.state.adopted.items) |adopted| if (std.mem.eql(u8, adopted.name, s.name)) {
        while (!adopted.released.load(.acquire)) std.Thread.yield() catch {};
        return;
    };
    return s.fail("no region {s} was adopted", .{s.name});
}
