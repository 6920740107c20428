// SPDX-License-Identifier: Apache-2.0
//! Calls whose arguments are an object and numbers: region_get_holders is Region.holders, and its keys are the arguments in
//! their order.
const std = @import("std");
const kvmem = @import("kvmem");
const Step = @import("step.zig").Step;
const Outcome = @import("calls.zig").Outcome;

/// Returns false if there is no such method.
pub fn run(s: *Step) Outcome!bool {
    @setEvalBranchQuota(20000);
    const object = s.state.find(s.name) orelse return false;
    switch (object.*) {
        inline else => |value, noun| inline for (@typeInfo(@TypeOf(value)).@"struct".decl_names) |name| {
            if (comptime isSimple(@TypeOf(value), name)) {
                const method = comptime snake(name);
                if (std.mem.eql(u8, s.call, @tagName(noun) ++ "_" ++ method) or
                    std.mem.eql(u8, s.call, @tagName(noun) ++ "_get_" ++ method))
                {
                    try call(s, value, name);
                    return true;
                }
            }
        },
    }
    return false;
}

fn isSimple(comptime T: type, comptime name: []const u8) bool {
    const Function = @TypeOf(@field(T, name));
    if (@typeInfo(Function) != .@"fn") return false;
    const Arguments = std.meta.ArgsTuple(Function);
    const types = @typeInfo(Arguments).@"struct".field_types;
    if (types.len < 2 or types[0] != T or types[types.len - 1] != ?*kvmem.Diagnostics) return false;
    for (types[1 .. types.len - 1]) |Argument| if (@typeInfo(Argument) != .int) return false;
    const Payload = Result(Function) orelse return false;
    return Payload == void or @typeInfo(Payload) == .@"struct" and !@hasDecl(Payload, "deinit");
}

/// What a function returns if it does not fail.
fn Result(comptime Function: type) ?type {
    const returned = @typeInfo(Function).@"fn".return_type orelse return null;
    return if (@typeInfo(returned) == .error_union) @typeInfo(returned).error_union.payload else null;
}

fn call(s: *Step, value: anytype, comptime name: []const u8) Outcome!void {
    const function = @field(@TypeOf(value), name);
    var arguments: std.meta.ArgsTuple(@TypeOf(function)) = undefined;
    if (s.in.words.items.len != arguments.len - 2) return s.fail("{s} has {d} numbers", .{ s.call, arguments.len - 2 });
    arguments[0] = value;
    inline for (1..arguments.len - 1) |i| arguments[i] = @intCast(try s.number(s.in.words.items[i - 1].key));
    arguments[arguments.len - 1] = &s.diagnostics;
    const result = try @call(.auto, function, arguments);
    if (@TypeOf(result) != void) try s.putAll(result);
}

/// Spells a name as the tables do: checkOwner is check_owner.
fn snake(comptime name: []const u8) []const u8 {
    var text: []const u8 = "";
    for (name) |letter| {
        text = text ++ if (std.ascii.isUpper(letter)) "_" ++ &[_]u8{std.ascii.toLower(letter)} else &[_]u8{letter};
    }
    return text;
}
