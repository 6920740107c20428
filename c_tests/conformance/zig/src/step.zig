// SPDX-License-Identifier: Apache-2.0
//! One line of a table: its words, and the comparison of what its call has returned.
const std = @import("std");
const kvmem = @import("kvmem");
const State = @import("state.zig").State;
const Object = @import("state.zig").Object;
const calls = @import("calls.zig");

pub const Fault = error{Fault} || std.mem.Allocator.Error || std.fmt.BufPrintError;

const Word = struct { key: []const u8, value: []const u8, known: bool = false };

/// key=value words; `get` marks a key as known.
pub const Values = struct {
    words: std.ArrayList(Word) = .empty,

    pub fn get(self: *Values, key: []const u8) ?[]const u8 {
        for (self.words.items) |*word| if (std.mem.eql(u8, word.key, key)) {
            word.known = true;
            return word.value;
        };
        return null;
    }
};

const Result = struct { key: []const u8, value: []const u8 };

pub const Step = struct {
    state: *State,
    fault: []const u8 = "",
    call: []const u8 = "",
    name: []const u8 = "",
    in: Values = .{},
    want: Values = .{},
    status: []const u8 = "OK",
    results: std.ArrayList(Result) = .empty,
    diagnostics: kvmem.Diagnostics = .{},

    pub fn gpa(self: *Step) std.mem.Allocator {
        return self.state.arena.allocator();
    }

    /// Ends the run with a message.
    pub fn fail(self: *Step, comptime format: []const u8, arguments: anytype) Fault {
        const Kept = struct {
            var text: [4096]u8 = undefined;
        };
        self.fault = std.fmt.bufPrint(&Kept.text, format, arguments) catch "the message is too long";
        return error.Fault;
    }

    pub fn text(self: *Step, key: []const u8) ?[:0]const u8 {
        const value = self.in.get(key) orelse return null;
        return self.gpa().dupeSentinel(u8, value, 0) catch null;
    }

    /// A path: `@name` is in the folder of the case.
    pub fn path(self: *Step, key: []const u8) ?[:0]const u8 {
        const value = self.in.get(key) orelse return null;
        return self.resolve(value) catch null;
    }

    fn resolve(self: *Step, value: []const u8) ![:0]const u8 {
        const gpa_ = self.gpa();
        if (value.len == 0 or value[0] != '@') return gpa_.dupeSentinel(u8, value, 0);
        return std.fmt.allocPrintSentinel(gpa_, "{s}/{s}", .{ self.state.folder, value[1..] }, 0);
    }

    pub fn number(self: *Step, key: []const u8) Fault!u64 {
        return self.numberOr(key, 0);
    }

    pub fn numberOr(self: *Step, key: []const u8, missing: u64) Fault!u64 {
        const value = self.in.get(key) orelse return missing;
        if (std.mem.eql(u8, value, "forever")) return kvmem.forever;
        return self.parse(value);
    }

    pub fn parse(self: *Step, value: []const u8) Fault!u64 {
        return std.fmt.parseInt(u64, value, 0) catch self.fail("expected a number, found {s}", .{value});
    }

    pub fn number32(self: *Step, key: []const u8) Fault!u32 {
        return @intCast(try self.number(key));
    }

    pub fn numbers(self: *Step, key: []const u8) Fault!?[]u32 {
        const value = self.in.get(key) orelse return null;
        var list: std.ArrayList(u32) = .empty;
        var words = std.mem.tokenizeScalar(u8, value, ',');
        while (words.next()) |word| try list.append(self.gpa(), @intCast(try self.parse(word)));
        return list.items;
    }

    pub fn wideNumbers(self: *Step, key: []const u8) Fault!?[]u64 {
        const value = self.in.get(key) orelse return null;
        var list: std.ArrayList(u64) = .empty;
        var words = std.mem.tokenizeScalar(u8, value, ',');
        while (words.next()) |word| try list.append(self.gpa(), try self.parse(word));
        return list.items;
    }

    /// "a:b"
    pub fn pair(self: *Step, word: []const u8) Fault!struct { []const u8, []const u8 } {
        const at = std.mem.indexOfScalar(u8, word, ':') orelse return self.fail("expected a pair, found {s}", .{word});
        return .{ word[0..at], word[at + 1 ..] };
    }

    pub fn flags(self: *Step, comptime T: type, key: []const u8) Fault!T {
        var result: T = .{};
        var words = std.mem.tokenizeScalar(u8, self.in.get(key) orelse return result, '+');
        while (words.next()) |word| {
            var found = false;
            inline for (comptime std.meta.fieldNames(T)) |name| {
                if (comptime std.mem.eql(u8, name, "_")) continue;
                if (std.mem.eql(u8, name, word)) {
                    @field(result, name) = true;
                    found = true;
                }
            }
            if (!found) return self.fail("no flag {s} for {s}", .{ word, key });
        }
        return result;
    }

    /// A constant; some words of the tables begin with `prefix`.
    pub fn constant(self: *Step, comptime T: type, key: []const u8, comptime prefix: []const u8) Fault!T {
        const word = self.in.get(key) orelse return @fromBackingInt(@intCast(0));
        inline for (comptime std.meta.fieldNames(T)) |name| {
            if (std.mem.eql(u8, prefix ++ name, word)) return @field(T, name);
        }
        return self.fail("no word {s} for {s}", .{ word, key });
    }

    /// Adds a result that the table may compare.
    pub fn put(self: *Step, key: []const u8, value: anytype) Fault!void {
        const format = comptime switch (@typeInfo(@TypeOf(value))) {
            .int, .comptime_int => "{d}",
            else => "{s}",
        };
        try self.results.append(self.gpa(), .{ .key = key, .value = try std.fmt.allocPrint(self.gpa(), format, .{value}) });
    }

    /// Adds the text of a blob, and destroys the blob.
    pub fn putBlob(self: *Step, key: []const u8, blob: kvmem.Blob) Fault!void {
        defer blob.deinit();
        try self.put(key, blob.bytes());
    }

    /// Adds all fields of a struct: numbers, constants and flags.
    pub fn putAll(self: *Step, values: anytype) Fault!void {
        inline for (comptime std.meta.fieldNames(@TypeOf(values))) |name| {
            const value = @field(values, name);
            switch (@typeInfo(@TypeOf(value))) {
                .int => try self.put(name, value),
                .bool => try self.put(name, @as(u8, @intFromBool(value))),
                .@"enum" => try self.put(name, @tagName(value)),
                .@"struct" => try self.putFlags(name, value),
                else => {},
            }
        }
    }

    fn putFlags(self: *Step, key: []const u8, value: anytype) Fault!void {
        var list: std.ArrayList(u8) = .empty;
        inline for (comptime std.meta.fieldNames(@TypeOf(value))) |name| {
            if (comptime std.mem.eql(u8, name, "_")) continue;
            if (@field(value, name)) {
                if (list.items.len > 0) try list.append(self.gpa(), '+');
                try list.appendSlice(self.gpa(), name);
            }
        }
        try self.put(key, list.items);
    }

    pub fn object(self: *Step, comptime kind: std.meta.Tag(Object), name: []const u8) Fault!@FieldType(Object, @tagName(kind)) {
        const found = self.state.find(name) orelse return self.fail("there is no object {s}", .{name});
        if (found.* != kind) return self.fail("{s} is a {t}", .{ name, found.* });
        return @field(found, @tagName(kind));
    }

    fn read(self: *Step, line: []const u8) Fault!void {
        var words = std.mem.tokenizeScalar(u8, line, ' ');
        self.call = words.next() orelse return self.fail("an empty step", .{});
        var to = &self.in;
        var first = true;
        while (words.next()) |word| : (first = false) {
            if (std.mem.eql(u8, word, "->")) {
                self.status = words.next() orelse return self.fail("-> without a status", .{});
                to = &self.want;
            } else if (std.mem.indexOfScalar(u8, word, '=')) |at| {
                try to.words.append(self.gpa(), .{ .key = word[0..at], .value = word[at + 1 ..] });
            } else if (first) {
                self.name = word;
            } else return self.fail("expected key=value, found {s}", .{word});
        }
    }

    pub fn run(self: *Step, line: []const u8) Fault!void {
        defer self.diagnostics.deinit();
        if (self.state.folder.len == 0) return self.fail("a step before the first case", .{});
        try self.read(line);
        // The status of a failure has its name in C.
        const found: []const u8 = if ((try calls.run(self)).failure) |failure| calls.nameOf(failure) else "OK";
        for (self.in.words.items) |word|
            if (!word.known) return self.fail("{s} has no key {s}", .{ self.call, word.key });
        if (!std.mem.eql(u8, found, self.status))
            return self.fail("expected {s}, found {s} {s}", .{ self.status, found, self.diagnostics.message() });
        if (!std.mem.eql(u8, found, "OK")) {
            self.results = .empty;
            const cause = self.diagnostics.cause();
            try self.put("domain", if (cause) |known| @tagName(known.domain) else "none");
            try self.put("cause", if (cause) |known| known.name else "");
            if (self.want.get("contains")) |part| {
                if (std.mem.indexOf(u8, self.diagnostics.message(), part) == null)
                    return self.fail("expected a message with {s}, found {s}", .{ part, self.diagnostics.message() });
            }
        }
        for (self.want.words.items) |word| if (!word.known) try self.compare(word);
    }

    fn compare(self: *Step, word: Word) Fault!void {
        for (self.results.items) |result| if (std.mem.eql(u8, result.key, word.key)) {
            const expected = self.resolve(word.value) catch return error.OutOfMemory;
            if (!try self.same(result.value, expected))
                return self.fail("expected {s}={s}, found {s}", .{ word.key, word.value, result.value });
            return;
        };
        return self.fail("{s} returns no {s}", .{ self.call, word.key });
    }

    /// Compares lists: numbers of any base, flags in any order.
    fn same(self: *Step, found: []const u8, expected: []const u8) Fault!bool {
        var a = std.mem.splitScalar(u8, found, ',');
        var b = std.mem.splitScalar(u8, expected, ',');
        while (a.next()) |left| {
            const right = b.next() orelse return false;
            const one = std.fmt.parseInt(u64, left, 0) catch null;
            const other = std.fmt.parseInt(u64, right, 0) catch null;
            if (one != null and other != null) {
                if (one.? != other.?) return false;
            } else if (!try self.sameSet(left, right)) return false;
        }
        return b.next() == null;
    }

    fn sameSet(self: *Step, left: []const u8, right: []const u8) Fault!bool {
        _ = self;
        if (left.len != right.len) return false;
        var words = std.mem.splitScalar(u8, left, '+');
        while (words.next()) |word| {
            var others = std.mem.splitScalar(u8, right, '+');
            const found = while (others.next()) |other| {
                if (std.mem.eql(u8, word, other)) break true;
            } else false;
            if (!found) return false;
        }
        return true;
    }
};
