// SPDX-License-Identifier: Apache-2.0
//! What several tests need.
const std = @import("std");
const kvmem = @import("../kvmem.zig");
const expectEqual = std.testing.expectEqual;

pub const shape: kvmem.LayoutConfig = .{
    .num_blocks = 8,
    .num_layers = 3,
    .outer_dim = 2,
    .page_size = 4,
    .inner_dim = 32,
    .dtype_width = 2,
    .order = kvmem.constants.order.fully_contiguous,
};

/// Ends a test that would wait for ever.
pub const patience: u64 = 60 * std.time.ns_per_s;

pub fn build(config: kvmem.LayoutConfig) !kvmem.Layout {
    return kvmem.Layout.init(.{ .config = config, .memory = .{ .system = .{} } }, null);
}

pub fn sameBlock(a: kvmem.Layout, block: u32, b: kvmem.Layout, other: u32) !void {
    var first: [1]u32 = undefined;
    var second: [1]u32 = undefined;
    try a.checksums(&.{block}, &first, kvmem.forever, null);
    try b.checksums(&.{other}, &second, kvmem.forever, null);
    try expectEqual(first, second);
}

pub fn fill(layout: kvmem.Layout, seed: usize) !void {
    for (0..8) |block| for (0..3) |layer| for (0..2) |outer| {
        for (try layout.bytes(@intCast(block), layer, outer, null), 0..) |*byte, i|
            byte.* = @truncate(seed + i * 7 + block * 31 + layer * 5 + outer * 3);
    };
}

/// An agent with UCX. Without NIXL the test is skipped, unless its library is named.
pub fn agent(name: [:0]const u8, options: kvmem.AgentOptions) !kvmem.Agent {
    const created = kvmem.Agent.init(name, options, null) catch |failure| {
        if (failure == error.UnavailableNixl and std.c.getenv("KVMEM_NIXL_LIBRARY") == null) return error.SkipZigTest;
        return failure;
    };
    errdefer created.deinit();
    try created.createBackend("UCX", &.{}, null);
    return created;
}
