// SPDX-License-Identifier: Apache-2.0
const std = @import("std");
const kvmem = @import("../kvmem.zig");
const common = @import("common.zig");
const constants = kvmem.constants;
const expect = std.testing.expect;
const expectEqual = std.testing.expectEqual;
const expectError = std.testing.expectError;
const expectEqualStrings = std.testing.expectEqualStrings;
const shape = common.shape;
const patience = common.patience;
const build = common.build;
const fill = common.fill;
const sameBlock = common.sameBlock;

test "layouts" {
    const layout = try build(shape);
    defer layout.deinit();
    const requirements = try shape.requirements(null);
    try expectEqual(8 * 3 * 2 * 4 * 32 * 2, requirements.total_size);
    const info = try layout.info(null);
    try expectEqualStrings(constants.order.fully_contiguous, info.orderText());
    try expectEqual(constants.Locality.local, info.locality);
    const block = try layout.block(5, 2, 1, null);
    try expectEqual(
        info.bases[0] + 5 * info.block_stride + 2 * info.layer_stride + info.outer_stride,
        block.address,
    );
    const row = try layout.rowBytes(5, 2, 1, 3, 0, null);
    row[0] = 77;
    try expectEqual(77, (try layout.bytes(5, 2, 1, null))[3 * 64]);
    try expectError(error.OutOfRange, layout.block(8, 0, 0, null));
    try expectError(error.InvalidState, layout.resize(2, null));
    try expect(info.agentName() == null);
    try expectError(error.InvalidState, layout.exportDescriptor(null));
    const region = try layout.region(0, null);
    defer region.deinit();
    const own = try kvmem.Layout.init(.{ .config = shape, .memory = .{ .regions = &.{region} } }, null);
    own.deinit();
    var ordered = shape;
    ordered.order = "L/OBNHC";
    ordered.num_heads = 2;
    const separate = try build(ordered);
    defer separate.deinit();
    try expectEqual(3, (try separate.info(null)).num_regions);
}

test "parts" {
    const data = try build(shape);
    defer data.deinit();
    var small = shape;
    small.inner_dim = 2;
    const scales = try build(small);
    defer scales.deinit();
    const other = try build(shape);
    defer other.deinit();
    try fill(data, 6);
    const source = try kvmem.Layout.combine(&.{ .init("scales", scales), .init("data", data) }, null);
    defer source.deinit();
    const destination = try kvmem.Layout.combine(&.{.init("data", other)}, null);
    defer destination.deinit();
    const combined = try source.info(null);
    try expectEqual(2, combined.partNames().len);
    try expectEqualStrings("data", std.mem.span(combined.partNames()[0]));
    const part = try source.part("data", null);
    defer part.deinit();
    const transfer = try kvmem.Transfer.start(source, destination, .{ .parts = &.{"data"} }, .{
        .pairs = &.{.{ .source = 3, .destination = 4 }},
    }, null);
    defer transfer.deinit();
    try transfer.wait(patience, null);
    try sameBlock(part, 3, other, 4);
    try expectError(error.NotFound, source.part("nothing", null));
    try expectError(error.Unsupported, source.block(0, 0, 0, null));
}
