// SPDX-License-Identifier: Apache-2.0
const std = @import("std");
const c = @import("c");
const kvmem = @import("../kvmem.zig");
const constants = kvmem.constants;
const types = @import("types.zig").types;
const expectEqual = std.testing.expectEqual;
const expectEqualStrings = std.testing.expectEqualStrings;

fn upper(comptime text: []const u8) []const u8 {
    var result: [text.len]u8 = undefined;
    for (text, 0..) |letter, i| result[i] = std.ascii.toUpper(letter);
    const final = result;
    return &final;
}

/// Each flag and value is that of the constant of its name in the header.
fn checkConstants(comptime T: type, comptime prefix: []const u8) !void {
    @setEvalBranchQuota(10000);
    switch (@typeInfo(T)) {
        .@"struct" => inline for (comptime std.meta.fieldNames(T)) |name| {
            if (comptime std.mem.eql(u8, name, "_")) continue;
            var flags: T = .{};
            @field(flags, name) = true;
            const value: u64 = @bitCast(flags);
            try expectEqual(@as(u64, @field(c, "KVMEM_" ++ prefix ++ upper(name))), value);
        },
        else => inline for (comptime std.meta.fieldNames(T)) |name| {
            const constant = comptime "KVMEM_" ++ prefix ++ upper(name);
            if (comptime @hasDecl(c, constant)) {
                try expectEqual(@as(u32, @field(c, constant)), @backingInt(@field(T, name)));
            } else {
                try expectEqualStrings("default", name);
                try expectEqual(0, @backingInt(@field(T, name)));
            }
        },
    }
}

test "constants are those of the header" {
    inline for (types) |pair| try checkConstants(@field(constants, pair[0]), pair[1]);
    // No type is left out. `order` has texts.
    try expectEqual(@typeInfo(constants).@"struct".decl_names.len, types.len + 1);
    inline for (comptime @typeInfo(constants.order).@"struct".decl_names) |name| {
        try expectEqualStrings(@field(c, "KVMEM_ORDER_" ++ upper(name)), @field(constants.order, name));
    }
}
