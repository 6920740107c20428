// SPDX-License-Identifier: Apache-2.0
//! Two KV caches in host memory, laid out differently; a block moves from the first to the second.
const std = @import("std");
const kvmem = @import("kvmem");

fn build(order: [:0]const u8, diagnostics: *kvmem.Diagnostics) !kvmem.Layout {
    return kvmem.Layout.init(.{
        .config = .{
            .num_blocks = 64,
            .num_layers = 32,
            .outer_dim = 2, // keys and values
            .page_size = 16, // tokens
            .inner_dim = 8 * 128, // heads x dim
            .dtype_width = 2,
            .order = order,
        },
        .memory = .{ .system = .{} },
    }, diagnostics);
}

fn run(diagnostics: *kvmem.Diagnostics) !void {
    const prefill = try build(kvmem.constants.order.fully_contiguous, diagnostics);
    defer prefill.deinit();
    const decode = try build(kvmem.constants.order.layer_separate, diagnostics);
    defer decode.deinit();
    const text = "the keys of block 7";
    const keys = try prefill.bytes(7, 31, 0, diagnostics); // block 7, layer 31, keys
    @memcpy(keys[0..text.len], text);

    const transfer = try kvmem.Transfer.start(prefill, decode, .{}, .{
        .pairs = &.{.{ .source = 7, .destination = 42 }},
    }, diagnostics);
    defer transfer.deinit();
    try transfer.wait(kvmem.forever, diagnostics);
    const moved = try decode.bytes(42, 31, 0, diagnostics);
    std.debug.print("block 42 has {s}\n", .{moved[0..text.len]});
}

pub fn main() !void {
    var diagnostics: kvmem.Diagnostics = .{};
    defer diagnostics.deinit();
    run(&diagnostics) catch |failure| {
        std.debug.print("{s}\n", .{diagnostics.message()});
        return failure;
    };
}
