// SPDX-License-Identifier: Apache-2.0
const std = @import("std");
const c = @import("c");
const core = @import("core.zig");
const constants = @import("constants.zig");
const regions = @import("region.zig");
const Agent = @import("agent.zig").Agent;
const nixl = @import("nixl.zig");
const Registration = @import("agent.zig").Registration;
const Region = regions.Region;
const Diagnostics = core.Diagnostics;
const Error = core.Error;
const call = core.call;

/// Shape of a KV cache. `kind` selects a shape of NVIDIA Dynamo's KVBM, and `order` any order of axes: set one of the two.
pub const LayoutConfig = struct {
    num_blocks: u64 = 0,
    num_layers: u64 = 0,
    /// 2 if keys and values are separate, 1 if they are combined (MLA).
    outer_dim: u64 = 0,
    /// Tokens per block.
    page_size: u64 = 0,
    /// Elements per token in one layer and outer slot, such as KV heads × head size.
    inner_dim: u64 = 0,
    /// Bytes per element: 1, 2, 4 or 8.
    dtype_width: u64 = 0,
    /// `constants.order`, or any other order of axes from the outermost to the innermost, such as "L/BHNOC".
    order: ?[:0]const u8 = null,
    /// KV heads; 0 if unknown. An order in which C does not follow H requires it.
    num_heads: u64 = 0,
    /// Alignment of blocks in bytes, a power of two; 0 for 1.
    alignment: u64 = 0,
    /// Strides in bytes; 0 if tight.
    block_stride: u64 = 0,
    layer_stride: u64 = 0,
    outer_stride: u64 = 0,
    token_stride: u64 = 0,
    head_stride: u64 = 0,
    element_stride: u64 = 0,
    /// What the blocks contain, such as the model and the data type, in any bytes; at most 2048.
    identity: []const u8 = "",

    /// Memory that the shape needs. Allocates nothing.
    pub fn requirements(self: LayoutConfig, diagnostics: ?*Diagnostics) Error!Requirements {
        const config = core.toC(c.kvmem_layout_config, self);
        return core.get(
            Requirements,
            c.kvmem_layout_requirements,
            diagnostics,
            c.kvmem_layout_get_requirements,
            .{&config},
        );
    }
};

pub const Requirements = struct { num_regions: u64, region_size: u64, total_size: u64, allocation_size: u64 };

/// Memory of a layout: to allocate, or of the caller.
pub const Memory = union(enum) {
    system: regions.SystemOptions,
    disk: regions.DiskOptions,
    pinned: regions.PinnedOptions,
    device: regions.DeviceOptions,
    elastic: regions.ElasticOptions,
    /// One, or one per index of the axes that have separate regions.
    regions: []const Region,
    registrations: []const Registration,
};

pub const LayoutOptions = struct {
    config: LayoutConfig,
    memory: Memory,
    /// Makes the layout accessible to peers.
    agent: ?Agent = null,
};

/// A layout that becomes a part of another one.
pub const Part = extern struct {
    name: [*:0]const u8,
    layout: *c.kvmem_layout,

    pub fn init(name: [:0]const u8, layout: Layout) Part {
        return .{ .name = name.ptr, .layout = layout.handle };
    }
};

/// An access to a block that may be in progress.
pub const BlockAccess = extern struct {
    block: u32,
    accessor: constants.Accessor,
    /// 1 if the block may be read, written.
    reads: u32,
    writes: u32,
    /// That of a run.
    user_data: u64,
    /// Nanoseconds until a lease ends; the largest number if it has no end.
    remaining_ns: u64,
    /// That of a peer or of the holder of a lease, as it says.
    pid: u32,
    reserved: u32,
    /// NUL-terminated; `agentName` is the text.
    agent: [64]u8,

    /// The name of the agent of a peer.
    pub fn agentName(self: *const BlockAccess) []const u8 {
        return std.mem.sliceTo(&self.agent, 0);
    }
};

pub const LeaseOptions = struct {
    flags: constants.LeaseFlags = .{},
    /// Nanoseconds after which the lease ends; 0: at `deinit`, or of a remote layout after as long as its owner keeps leases.
    duration_ns: u64 = 0,
    /// Nanoseconds in which the owner of a remote layout must reply; 0 for 5 s.
    timeout_ns: u64 = 0,
};

/// A lease of blocks: an announcement to the owner of memory that this process uses them.
pub const Lease = struct {
    handle: *c.kvmem_lease,

    /// Ends the lease.
    pub fn deinit(self: Lease) void {
        c.kvmem_lease_destroy(self.handle);
    }

    /// Has it end after a duration from now on; 0: at `deinit`. Fails with `Stale` if it is over.
    pub fn renew(self: Lease, duration_ns: u64, diagnostics: ?*Diagnostics) Error!void {
        return call(diagnostics, c.kvmem_lease_renew, .{ self.handle, duration_ns });
    }

    /// Nanoseconds until it ends: 0 if it is over, the largest number if it ends at `deinit`.
    pub fn remaining(self: Lease, diagnostics: ?*Diagnostics) Error!u64 {
        var ns: u64 = 0;
        try call(diagnostics, c.kvmem_lease_get_remaining, .{ self.handle, &ns });
        return ns;
    }
};

/// Range of contiguous bytes.
pub const Block = struct { address: u64, size: u64 };

/// Properties of a layout, and the numbers to compute addresses with; see `kvmem_layout_info`. Its pointers are valid as long as
/// the layout.
pub const LayoutInfo = struct {
    num_blocks: u64,
    num_layers: u64,
    outer_dim: u64,
    page_size: u64,
    inner_dim: u64,
    dtype_width: u64,
    alignment: u64,
    num_heads: u64,
    device_id: u64,
    num_regions: u64,
    tier: constants.Tier,
    locality: constants.Locality,
    memory_type: constants.MemoryType,
    /// Parts that it was combined from; 0 if it was not combined.
    num_parts: u32,
    /// NUL-terminated; `orderText` is the text.
    order: [8]u8,
    block_stride: u64,
    layer_stride: u64,
    outer_stride: u64,
    token_stride: u64,
    head_stride: u64,
    element_stride: u64,
    identity: []const u8,
    /// `partNames` are the names.
    part_names: [*c]const [*c]const u8,
    /// `agentName` is the name.
    agent: [*c]const u8,
    /// Start of each region: `num_regions` of them; null for a layout with parts.
    bases: [*c]const u64,
    layer_step: u64,
    outer_step: u64,
    token_step: u64,
    head_step: u64,
    /// Bytes of one block in one layer and outer slot, if they are contiguous; otherwise 0.
    piece_size: u64,
    row_size: u64,

    /// Name of the agent that it was built with, or of the peer; null for none.
    pub fn agentName(self: *const LayoutInfo) ?[:0]const u8 {
        return if (self.agent == null) null else std.mem.span(@as([*:0]const u8, @ptrCast(self.agent)));
    }

    /// Names of its parts, in their order.
    pub fn partNames(self: *const LayoutInfo) []const [*:0]const u8 {
        if (self.part_names == null) return &.{};
        return @as([*]const [*:0]const u8, @ptrCast(self.part_names))[0..self.num_parts];
    }

    pub fn orderText(self: *const LayoutInfo) []const u8 {
        return std.mem.sliceTo(&self.order, 0);
    }
};

pub const ServeOptions = struct {
    flags: constants.ServeFlags = .{},
    /// Bytes of staging memory; 0 for 16 MiB.
    staging_size: u64 = 0,
    /// Time that the owner waits for a peer that neither reads nor writes, before it ends the session; 0 for 30 s.
    stall_timeout_ns: u64 = 0,
    /// Time after which a lease of a peer ends at the latest, unless the peer renews it; 0 for 60 s.
    max_lease_ns: u64 = 0,
};

/// Location of each block of a KV cache. It keeps its regions and registrations alive.
pub const Layout = struct {
    handle: *c.kvmem_layout,

    /// Builds a layout. Everything is checked before anything is allocated, and a failure changes nothing.
    pub fn init(options: LayoutOptions, diagnostics: ?*Diagnostics) Error!Layout {
        const config = core.toC(c.kvmem_layout_config, options.config);
        var o = core.toC(c.kvmem_layout_options, .{});
        o.config = &config;
        if (options.agent) |agent| o.agent = agent.handle;
        var system: c.kvmem_system_options = undefined;
        var disk: c.kvmem_disk_options = undefined;
        var pinned: c.kvmem_pinned_options = undefined;
        var device: c.kvmem_device_options = undefined;
        var elastic: c.kvmem_elastic_options = undefined;
        o.source = c.KVMEM_LAYOUT_ALLOCATE;
        switch (options.memory) {
            .system => |memory| {
                system = core.toC(c.kvmem_system_options, memory);
                o.system = &system;
            },
            .disk => |memory| {
                disk = core.toC(c.kvmem_disk_options, memory);
                o.disk = &disk;
            },
            .pinned => |memory| {
                pinned = regions.pinnedToC(memory);
                o.pinned = &pinned;
            },
            .device => |memory| {
                device = core.toC(c.kvmem_device_options, memory);
                o.device = &device;
            },
            .elastic => |memory| {
                elastic = core.toC(c.kvmem_elastic_options, memory);
                o.elastic = &elastic;
            },
            // A Region and a Registration are nothing but their handle.
            .regions => |list| {
                o.source = c.KVMEM_LAYOUT_REGIONS;
                o.regions = @ptrCast(list.ptr);
                o.count = list.len;
            },
            .registrations => |list| {
                o.source = c.KVMEM_LAYOUT_REGISTRATIONS;
                o.registrations = @ptrCast(list.ptr);
                o.count = list.len;
            },
        }
        var handle: ?*c.kvmem_layout = null;
        try call(diagnostics, c.kvmem_layout_build, .{ &o, &handle });
        return .{ .handle = handle.? };
    }

    comptime {
        std.debug.assert(@sizeOf(Region) == @sizeOf(*anyopaque) and @sizeOf(Registration) == @sizeOf(*anyopaque));
    }

    /// Creates a remote layout from the descriptor of a peer (`exportDescriptor`), whose metadata must be loaded.
    pub fn import(agent: Agent, descriptor: []const u8, diagnostics: ?*Diagnostics) Error!Layout {
        var handle: ?*c.kvmem_layout = null;
        try call(diagnostics, c.kvmem_layout_import, .{ agent.handle, core.pointer(descriptor), descriptor.len, &handle });
        return .{ .handle = handle.? };
    }

    /// Creates a remote layout over raw memory of a peer, which need not use kvmem: one descriptor per region.
    pub fn initRemote(
        agent: Agent,
        owner: [:0]const u8,
        shape: LayoutConfig,
        descriptors: []const nixl.Descriptor,
        diagnostics: ?*Diagnostics,
    ) Error!Layout {
        const config = core.toC(c.kvmem_layout_config, shape);
        var handle: ?*c.kvmem_layout = null;
        try call(diagnostics, c.kvmem_layout_create_remote, .{
            agent.handle, owner.ptr, &config, nixl.firstOf(descriptors), descriptors.len, &handle,
        });
        return .{ .handle = handle.? };
    }

    /// Combines layouts that share block ids to one layout, such as data and scales.
    pub fn combine(parts: []const Part, diagnostics: ?*Diagnostics) Error!Layout {
        var handle: ?*c.kvmem_layout = null;
        const list: [*c]const c.kvmem_layout_part = @ptrCast(parts.ptr);
        try call(diagnostics, c.kvmem_layout_combine, .{ list, parts.len, &handle });
        return .{ .handle = handle.? };
    }

    /// One part of a layout that was combined, as a separate layout.
    pub fn part(self: Layout, name: [:0]const u8, diagnostics: ?*Diagnostics) Error!Layout {
        var handle: ?*c.kvmem_layout = null;
        try call(diagnostics, c.kvmem_layout_get_part, .{ self.handle, name.ptr, &handle });
        return .{ .handle = handle.? };
    }

    pub fn deinit(self: Layout) void {
        c.kvmem_layout_destroy(self.handle);
    }

    /// Allocates memory for the first blocks of an elastic layout and frees that of the others.
    pub fn resize(self: Layout, num_blocks: u64, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_layout_resize, .{ self.handle, num_blocks });
    }

    /// Range of one block in one layer and outer slot. Fails with Unsupported if the bytes are not contiguous.
    pub fn block(self: Layout, id: u32, layer: u64, outer: u64, diagnostics: ?*Diagnostics) Error!Block {
        return core.get(Block, c.kvmem_block, diagnostics, c.kvmem_layout_get_block, .{ self.handle, id, layer, outer });
    }

    /// Range of one head of one token of a block. Every layout has it.
    pub fn row(
        self: Layout,
        id: u32,
        layer: u64,
        outer: u64,
        token: u64,
        head: u64,
        diagnostics: ?*Diagnostics,
    ) Error!Block {
        return core.get(Block, c.kvmem_block, diagnostics, c.kvmem_layout_get_row, .{
            self.handle, id, layer, outer, token, head,
        });
    }

    /// Memory of one block in one layer and outer slot, if it is host memory of this process or mapped here.
    pub fn bytes(self: Layout, id: u32, layer: u64, outer: u64, diagnostics: ?*Diagnostics) Error![]u8 {
        try self.inHostMemory(diagnostics);
        return slice(try self.block(id, layer, outer, diagnostics));
    }

    /// Memory of one head of one token of a block, as `bytes` returns that of a block.
    pub fn rowBytes(
        self: Layout,
        id: u32,
        layer: u64,
        outer: u64,
        token: u64,
        head: u64,
        diagnostics: ?*Diagnostics,
    ) Error![]u8 {
        try self.inHostMemory(diagnostics);
        return slice(try self.row(id, layer, outer, token, head, diagnostics));
    }

    fn inHostMemory(self: Layout, diagnostics: ?*Diagnostics) Error!void {
        const found = try self.info(diagnostics);
        if (found.locality == .remote)
            return core.fail(
                diagnostics,
                c.KVMEM_STATUS_UNSUPPORTED,
                "the layout belongs to a peer; only transfers can access its memory",
            );
        if (found.tier != .system and found.tier != .pinned)
            return core.fail(
                diagnostics,
                c.KVMEM_STATUS_UNSUPPORTED,
                "the layout is not in host memory; its blocks have addresses, but no slices",
            );
    }

    fn slice(range: Block) []u8 {
        return @as([*]u8, @ptrFromInt(range.address))[0..range.size];
    }

    /// Computes the CRC32C of blocks. `out` has as many elements as `blocks`. Fails with TimedOut if not all checksums are
    /// computed within `timeout_ns` nanoseconds.
    pub fn checksums(
        self: Layout,
        blocks: []const u32,
        out: []u32,
        timeout_ns: u64,
        diagnostics: ?*Diagnostics,
    ) Error!void {
        if (blocks.len != out.len)
            return core.fail(
                diagnostics,
                c.KVMEM_STATUS_INVALID_ARGUMENT,
                "blocks and out differ in length; out receives one checksum per block",
            );
        try call(
            diagnostics,
            c.kvmem_layout_checksum,
            .{ self.handle, blocks.ptr, blocks.len, timeout_ns, out.ptr },
        );
    }

    /// Gives each block an epoch, in a region of host memory, which keeps its contents, or for null in a new one, as 0.
    pub fn createEpochs(self: Layout, table: ?Region, diagnostics: ?*Diagnostics) Error!void {
        const handle: ?*c.kvmem_region = if (table) |given| given.handle else null;
        try call(diagnostics, c.kvmem_layout_create_epochs, .{ self.handle, handle });
    }

    /// Adds 1 to the epochs of some blocks. `out` receives the new ones, and has as many elements as `blocks`.
    pub fn raiseEpochs(self: Layout, blocks: []const u32, out: []u64, diagnostics: ?*Diagnostics) Error!void {
        try checkEpochs(blocks, out, diagnostics);
        try call(diagnostics, c.kvmem_layout_raise_epochs, .{ self.handle, blocks.ptr, blocks.len, out.ptr });
    }

    /// The current epochs of some blocks. `out` has as many elements as `blocks`.
    pub fn epochs(self: Layout, blocks: []const u32, out: []u64, diagnostics: ?*Diagnostics) Error!void {
        try checkEpochs(blocks, out, diagnostics);
        try call(diagnostics, c.kvmem_layout_get_epochs, .{ self.handle, blocks.ptr, blocks.len, out.ptr });
    }

    /// Which of some blocks may still be read or written, and by whom: as many as fit `buffer`. Returns the number of all.
    pub fn accesses(
        self: Layout,
        blocks: []const u32,
        buffer: []BlockAccess,
        diagnostics: ?*Diagnostics,
    ) Error!usize {
        const found: [*]c.kvmem_block_access = @ptrCast(buffer.ptr);
        var count: usize = 0;
        try call(diagnostics, c.kvmem_layout_get_accesses, .{ self.handle, blocks.ptr, blocks.len, found, buffer.len, &count });
        return count;
    }

    /// Leases blocks of memory that is mapped here, so that its owner sees by `accesses` who uses them.
    pub fn lease(self: Layout, blocks: []const u32, options: LeaseOptions, diagnostics: ?*Diagnostics) Error!Lease {
        const o = core.toC(c.kvmem_lease_options, options);
        var handle: ?*c.kvmem_lease = null;
        try call(diagnostics, c.kvmem_lease_create, .{ self.handle, blocks.ptr, blocks.len, &o, &handle });
        return .{ .handle = handle.? };
    }

    fn checkEpochs(blocks: []const u32, out: []u64, diagnostics: ?*Diagnostics) Error!void {
        if (blocks.len != out.len)
            return core.fail(
                diagnostics,
                c.KVMEM_STATUS_INVALID_ARGUMENT,
                "blocks and out differ in length; out receives one epoch per block",
            );
    }

    pub fn info(self: Layout, diagnostics: ?*Diagnostics) Error!LayoutInfo {
        return core.get(LayoutInfo, c.kvmem_layout_info, diagnostics, c.kvmem_layout_get_info, .{self.handle});
    }

    /// One of the regions of the layout, as a new handle.
    pub fn region(self: Layout, index: usize, diagnostics: ?*Diagnostics) Error!Region {
        var handle: ?*c.kvmem_region = null;
        try call(diagnostics, c.kvmem_layout_get_region, .{ self.handle, index, &handle });
        return .{ .handle = handle.? };
    }

    /// Serves transfers of the layout to peers, as long as it exists. Get the metadata of the agent, and export the layout, after
    /// this call.
    pub fn serve(self: Layout, options: ServeOptions, diagnostics: ?*Diagnostics) Error!void {
        const o = core.toC(c.kvmem_serve_options, options);
        return call(diagnostics, c.kvmem_layout_serve, .{ self.handle, &o });
    }

    /// Serializes the layout for a peer, which also needs the metadata of the agent.
    pub fn exportDescriptor(self: Layout, diagnostics: ?*Diagnostics) Error!core.Blob {
        return core.getBlob(diagnostics, c.kvmem_layout_export, .{self.handle});
    }
};
