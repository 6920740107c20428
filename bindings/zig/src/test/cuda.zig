// SPDX-License-Identifier: Apache-2.0
const std = @import("std");
const kvmem = @import("../kvmem.zig");
const common = @import("common.zig");
const constants = kvmem.constants;
const expect = std.testing.expect;
const expectEqual = std.testing.expectEqual;
const expectError = std.testing.expectError;
const shape = common.shape;
const patience = common.patience;
const build = common.build;
const fill = common.fill;
const sameBlock = common.sameBlock;

test "CUDA" {
    const cuda = kvmem.cuda;
    _ = cuda.cudaInfo(null) catch |failure| {
        if (failure == error.UnavailableCuda and std.c.getenv("KVMEM_TEST_CUDA") == null) return error.SkipZigTest;
        return failure;
    };
    const device = try cuda.cudaDeviceInfo(0, null);
    try expect(device.capabilities.vmm);
    try expectEqual(0, try cuda.findCudaDevice(device.uuid, null));
    try expect((try cuda.cudaDeviceInfo(0, null)).can_access & 1 == 1);
    const rates = try cuda.copyRates(0, 0, null);
    defer rates.deinit();
    try expectEqual(device.uuid, (try cuda.describeRates(rates.bytes(), null)).uuid);
    const text = try cuda.describeRatesText(rates.bytes(), null);
    text.deinit();
    try cuda.setCopyRates(0, 0, rates.bytes(), null);
    try cuda.useDefaultRates(0, null);
    const pinned = try kvmem.Region.initPinned(.{ .size = 1 << 16 }, null);
    pinned.deinit();

    const host = try build(shape);
    defer host.deinit();
    try fill(host, 8);
    const layout = try kvmem.Layout.init(.{ .config = shape, .memory = .{ .device = .{} } }, null);
    defer layout.deinit();
    const pairs = [_]kvmem.BlockPair{.{ .source = 1, .destination = 4 }};
    const transfer = try kvmem.Transfer.start(host, layout, .{}, .{ .pairs = &pairs }, null);
    defer transfer.deinit();
    try transfer.wait(patience, null);
    try sameBlock(host, 1, layout, 4);
    // The default stream is one of a current context, and this thread has none.
    try expectError(error.InvalidArgument, transfer.submitOnStream(null, null, null));
    try expectError(error.InvalidArgument, transfer.submitOnStream(.{ .pairs = &pairs }, null, null));
    try expectError(error.OutOfRange, transfer.waitOnStream(99, null, null));

    const region = try layout.region(0, null);
    defer region.deinit();
    const address = (try region.info(null)).address;
    const adopted = try kvmem.Region.adoptDevice(address, 4096, 0, null, null, null);
    adopted.deinit();
    const ipc = try cuda.exportIpc(address, null);
    try expectError(error.InvalidArgument, kvmem.Region.openIpc(.{ .handle = ipc.handle, .size = 4096 }, null));
    const elastic = try kvmem.Region.initElastic(.{ .size = 1 << 28 }, null);
    defer elastic.deinit();
    try elastic.commit(0, 1, null);
    try expectEqual(1, (try elastic.info(null)).num_committed);
    const owned = try kvmem.Region.initDevice(.{ .size = 4096 }, null);
    owned.deinit();
    const growing = try kvmem.Layout.init(.{ .config = shape, .memory = .{ .elastic = .{} } }, null);
    growing.deinit();

    var options: cuda.VmmOptions = .{ .flags = .{ .posix_fd = true } };
    options.size = try cuda.vmmGranularity(options, .minimum, null);
    const memory = try cuda.VmmMemory.init(options, null);
    defer memory.deinit();
    const range = try cuda.VmmRange.init(options.size, 0, null);
    defer range.deinit();
    const mapping = try range.map(0, memory, null);
    defer mapping.deinit();
    try expectEqual(range.span.address, mapping.span.address);
    try mapping.setAccess(0, .read_write, null);
    try expectEqual(constants.Access.read_write, try mapping.getAccess(0, null));
    const retained = try cuda.VmmMemory.retain(range.span.address, null);
    retained.deinit();
    const fd = try memory.exportFd(null);
    defer _ = std.c.close(fd);
    const imported = try cuda.VmmMemory.importFd(fd, options.size, cuda.any_device, null);
    imported.deinit();
    try expectError(error.InvalidState, memory.exportFabric(null));
    if (cuda.VmmMemory.importFabric(@splat(0), options.size, cuda.any_device, null)) |_| return error.ZeroesAreAHandle else |_| {}
}
