// SPDX-License-Identifier: Apache-2.0
//! GPUs, and regions that need the driver.
const kvmem = @import("kvmem");
const constants = kvmem.constants;
const Step = @import("step.zig").Step;
const Fault = @import("step.zig").Fault;
const calls = @import("calls.zig");
const Outcome = calls.Outcome;

pub const table = .{
    .{ "region_create_pinned", createPinned },   .{ "region_create_device", createDevice },
    .{ "region_create_elastic", createElastic }, .{ "cuda_get_info", cudaInfo },
    .{ "cuda_get_device_info", deviceInfo },
};

fn ordinal(s: *Step, key: []const u8) Fault!i32 {
    return @intCast(try s.number32(key));
}

fn createPinned(s: *Step) Outcome!void {
    try calls.free(s);
    const options: kvmem.PinnedOptions = .{
        .flags = try s.flags(constants.PinnedFlags, "flags"),
        .size = try s.number("size"),
        .device = try ordinal(s, "device"),
    };
    try s.state.add(s.name, .{ .region = try kvmem.Region.initPinned(options, &s.diagnostics) });
}

fn createDevice(s: *Step) Outcome!void {
    try calls.free(s);
    const options: kvmem.DeviceOptions = .{ .size = try s.number("size"), .device = try ordinal(s, "device") };
    try s.state.add(s.name, .{ .region = try kvmem.Region.initDevice(options, &s.diagnostics) });
}

fn createElastic(s: *Step) Outcome!void {
    try calls.free(s);
    const options: kvmem.ElasticOptions = .{
        .size = try s.number("size"),
        .extent_size = try s.number("extent_size"),
        .device = try ordinal(s, "device"),
    };
    try s.state.add(s.name, .{ .region = try kvmem.Region.initElastic(options, &s.diagnostics) });
}

fn cudaInfo(s: *Step) Outcome!void {
    try s.putAll(try kvmem.cuda.cudaInfo(&s.diagnostics));
}

fn deviceInfo(s: *Step) Outcome!void {
    try s.putAll(try kvmem.cuda.cudaDeviceInfo(try ordinal(s, "device"), &s.diagnostics));
}
