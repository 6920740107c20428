// SPDX-License-Identifier: Apache-2.0
//! Steps that read and write memory.
const std = @import("std");
const kvmem = @import("kvmem");
const Step = @import("step.zig").Step;
const Fault = @import("step.zig").Fault;
const Outcome = @import("calls.zig").Outcome;

pub const table = .{ .{ "write", write }, .{ "read", read }, .{ "fill", fill }, .{ "expect", expect } };

fn hexBytes(s: *Step) Fault![]u8 {
    const text = s.in.get("bytes") orelse "";
    const bytes = try s.gpa().alloc(u8, text.len / 2);
    return std.fmt.hexToBytes(bytes, text) catch s.fail("not hexadecimal bytes: {s}", .{text});
}

fn part(s: *Step, size: usize) Outcome![]u8 {
    const memory = try (try s.object(.region, s.name)).bytes(&s.diagnostics);
    return memory[try s.number("offset")..][0..size];
}

fn write(s: *Step) Outcome!void {
    const bytes = try hexBytes(s);
    @memcpy(try part(s, bytes.len), bytes);
}

fn same(s: *Step, expected: []const u8, found: []const u8) Outcome!void {
    if (!std.mem.eql(u8, expected, found)) return s.fail("expected {x}, found {x}", .{ expected, found });
}

fn read(s: *Step) Outcome!void {
    const bytes = try hexBytes(s);
    try same(s, bytes, try part(s, bytes.len));
}

/// Addresses of the elements of a block, in the order of layers, outer slots, tokens, heads and elements.
fn elements(s: *Step, layout: kvmem.Layout, block: u64) Outcome!struct { addresses: []u64, width: usize } {
    const info = try layout.info(&s.diagnostics);
    const heads = @max(info.num_heads, 1);
    var list: std.ArrayList(u64) = .empty;
    for (0..info.num_layers) |layer| for (0..info.outer_dim) |outer| for (0..info.page_size) |token| for (0..heads) |head| {
        const base = info.bases[
            layer * info.layer_step + outer * info.outer_step + token * info.token_step +
                head * info.head_step
        ];
        const row = base + block * info.block_stride + layer * info.layer_stride + outer * info.outer_stride +
            token * info.token_stride + head * info.head_stride;
        for (0..info.inner_dim / heads) |element| try list.append(s.gpa(), row + element * info.element_stride);
    };
    return .{ .addresses = list.items, .width = info.dtype_width };
}

fn pattern(seed: u64, i: u64) u8 {
    return @truncate(31 *% seed +% 7 *% i +% 13 *% (i / 256));
}

fn fill(s: *Step) Outcome!void {
    const block, const seed = .{ try s.number("block"), try s.number("seed") };
    const found = try elements(s, try s.object(.layout, s.name), block);
    var i: u64 = 0;
    for (found.addresses) |address| {
        for (@as([*]u8, @ptrFromInt(address))[0..found.width]) |*byte| {
            byte.* = pattern(seed, i);
            i += 1;
        }
    }
}

fn expect(s: *Step) Outcome!void {
    const found = try elements(s, try s.object(.layout, s.name), try s.number("block"));
    var bytes: std.ArrayList(u8) = .empty;
    for (found.addresses) |address| {
        try bytes.appendSlice(s.gpa(), @as([*]const u8, @ptrFromInt(address))[0..found.width]);
    }
    var expected = try hexBytes(s);
    if (s.in.get("seed")) |seed| {
        expected = try s.gpa().alloc(u8, bytes.items.len);
        for (expected, 0..) |*byte, i| byte.* = pattern(try s.parse(seed), i);
    }
    try same(s, expected, bytes.items);
}
