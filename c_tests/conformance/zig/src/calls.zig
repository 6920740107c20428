// SPDX-License-Identifier: Apache-2.0
//! The calls of the tables. Each returns null, or how the call failed.
const std = @import("std");
const kvmem = @import("kvmem");
const Step = @import("step.zig").Step;
const Fault = @import("step.zig").Fault;

pub const Failure = kvmem.Error || error{InProgress};

/// Of a call: faults of the run, and failures of kvmem. OutOfMemory is one of kvmem.
pub const Outcome = Fault || Failure;

const others = .{ .{ "status_name", statusName }, .{ "destroy", destroy } };

const all = others ++ @import("regions.zig").table ++ @import("gpu.zig").table ++ @import("layouts.zig").table ++
    @import("memory.zig").table ++ @import("agents.zig").table ++ @import("transfers.zig").table ++
    @import("shares.zig").table ++ @import("stores.zig").table;

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
    const is_simple = @import("simple.zig").run(s) catch |failure| switch (failure) {
        error.Fault => return error.Fault,
        error.NoSpaceLeft => return error.NoSpaceLeft,
        else => |known| return .{ .failure = known },
    };
    if (is_simple) return .{};
    return s.fail("there is no call {s}, or no object {s}", .{ s.call, s.name });
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

fn destroy(s: *Step) Outcome!void {
    if (s.state.find(s.name) == null) return s.fail("there is no object {s}", .{s.name});
    s.state.destroy(s.name);
}

/// A result that is a list of numbers.
pub fn putNumbers(s: *Step, key: []const u8, list: anytype) Fault!void {
    var text: std.ArrayList(u8) = .empty;
    for (list, 0..) |item, i| {
        if (i > 0) try text.append(s.gpa(), ',');
        try text.appendSlice(s.gpa(), try std.fmt.allocPrint(s.gpa(), "{d}", .{item}));
    }
    try s.put(key, text.items);
}
