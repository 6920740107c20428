// SPDX-License-Identifier: Apache-2.0
//! Calls whose arguments are an object, block ids and numbers: region_get_holders is Region.holders, and its keys are the
//! arguments in their order. An array that a call fills is the last word of its name.
const std = @import("std");
const kvmem = @import("kvmem");
const Step = @import("step.zig").Step;
const calls = @import("calls.zig");
const Outcome = calls.Outcome;

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
    for (types[1 .. types.len - 1]) |Argument| {
        if (@typeInfo(Argument) != .int and Argument != []const u32 and !isFilled(Argument)) return false;
    }
    const Payload = Result(Function) orelse return false;
    return Payload == void or isFilled(Payload) or @typeInfo(Payload) == .@"struct" and !@hasDecl(Payload, "deinit");
}

/// An array of numbers that the call fills.
fn isFilled(comptime T: type) bool {
    return T == []u32 or T == []u64;
}

/// What a function returns if it does not fail.
fn Result(comptime Function: type) ?type {
    const returned = @typeInfo(Function).@"fn".return_type orelse return null;
    return if (@typeInfo(returned) == .error_union) @typeInfo(returned).error_union.payload else null;
}

fn call(s: *Step, value: anytype, comptime name: []const u8) Outcome!void {
    const function = @field(@TypeOf(value), name);
    var arguments: std.meta.ArgsTuple(@TypeOf(function)) = undefined;
    arguments[0] = value;
    arguments[arguments.len - 1] = &s.diagnostics;
    const word = s.call[if (std.mem.lastIndexOfScalar(u8, s.call, '_')) |at| at + 1 else 0..];
    const words = s.in.words.items;
    var given: usize = 0;
    var size: usize = 64;
    inline for (1..arguments.len - 1) |i| {
        const Argument = @TypeOf(arguments[i]);
        if (comptime isFilled(Argument)) {
            arguments[i] = try s.gpa().alloc(std.meta.Child(Argument), size);
        } else {
            if (given == words.len) return s.fail("{s} has more arguments than {d}", .{ s.call, given });
            const key = words[given].key;
            given += 1;
            if (Argument == []const u32) {
                arguments[i] = try s.numbers(key) orelse &.{};
                size = arguments[i].len;
            } else arguments[i] = @intCast(try s.number(key));
        }
    }
    if (given != words.len) return s.fail("{s} has {d} arguments", .{ s.call, given });
    const result = try @call(.auto, function, arguments);
    if (comptime isFilled(@TypeOf(result))) return calls.putNumbers(s, word, result);
    if (@TypeOf(result) != void) return s.putAll(result);
    inline for (1..arguments.len - 1) |i| {
        if (comptime isFilled(@TypeOf(arguments[i]))) try calls.putNumbers(s, word, arguments[i]);
    }
}

/// Spells a name as the tables do: checkOwner is check_owner.
fn snake(comptime name: []const u8) []const u8 {
    var text: []const u8 = "";
    for (name) |letter| {
        text = text ++ if (std.ascii.isUpper(letter)) "_" ++ &[_]u8{std.ascii.toLower(letter)} else &[_]u8{letter};
    }
    return text;
}
