// SPDX-License-Identifier: Apache-2.0
const std = @import("std");
const c = @import("c");
const core = @import("core.zig");
const constants = @import("constants.zig");
const Agent = @import("agent.zig").Agent;
const Descriptor = @import("nixl.zig").Descriptor;
const Registration = @import("agent.zig").Registration;
const Diagnostics = core.Diagnostics;
const Error = core.Error;
const call = core.call;

pub const SystemOptions = struct {
    flags: constants.SystemFlags = .{},
    /// Bytes, at least 1. 0 in the options of a layout, which computes it.
    size: u64 = 0,
    /// Page size in bytes, from the reserved pool: 2097152 or 1073741824; 0 for ordinary pages.
    huge_page_size: u64 = 0,
    /// NUMA node of `numa_bind`; 0 without that flag.
    numa_node: u32 = 0,
    /// Threads that touch every page before the call returns; 0: pages are allocated on first access.
    prefault_threads: u32 = 0,
};

pub const PinnedOptions = struct {
    flags: constants.PinnedFlags = .{},
    /// Bytes, at least 1. 0 in the options of a layout, which computes it.
    size: u64 = 0,
    /// Bytes per page lock; 0 for 64 GiB.
    chunk_size: u64 = 0,
    /// Called between chunks; another result than 0 cancels. Not called for a layout.
    progress: ?*const fn (done: u64, total: u64, user_data: ?*anyopaque) callconv(.c) i32 = null,
    /// Passed to `progress`.
    user_data: ?*anyopaque = null,
    /// GPU that accesses the memory.
    device: i32 = 0,
    numa_node: u32 = 0,
    /// Threads that touch the pages; 0 for one per core, at most 8.
    threads: u32 = 0,
};

pub const DeviceOptions = struct {
    /// Bytes, at least 1. 0 in the options of a layout, which computes it.
    size: u64 = 0,
    device: i32 = 0,
};

pub const ElasticOptions = struct {
    flags: constants.ElasticFlags = .{},
    /// Maximum size in bytes. 0 in the options of a layout, which computes it.
    size: u64 = 0,
    /// Bytes per extent; 0 for 64 MiB. 0 in the options of a layout.
    extent_size: u64 = 0,
    device: i32 = 0,
};

pub const DiskOptions = struct {
    flags: constants.DiskFlags = .{},
    /// Bytes, at least 1; 0 with `open_existing` for the whole file. 0 in the options of a layout.
    size: u64 = 0,
    /// Path of the file; null for a temporary file.
    path: ?[:0]const u8 = null,
    /// Directory of a temporary file; null for $TMPDIR, or /tmp.
    directory: ?[:0]const u8 = null,
};

pub const ObjectOptions = struct {
    /// What all keys begin with, 1 to 1014 bytes.
    key_prefix: ?[:0]const u8 = null,
    /// Bytes of an object at most, usually the block stride of the layout.
    object_size: u64 = 0,
    /// Number of objects, usually the number of blocks of the layout.
    count: u64 = 0,
};

pub const BlockOptions = struct {
    /// Number of the device, as the backend knows it.
    device_id: u64 = 0,
    /// Bytes from the start of the device.
    offset: u64 = 0,
    /// Bytes, at least 1.
    size: u64 = 0,
    /// I/O is aligned to this power of two; 0 for 1.
    alignment: u64 = 0,
    /// What the backend needs to register the part.
    metadata: []const u8 = &.{},
};

/// Called on a thread of the library when it no longer uses adopted memory.
pub const Release = *const fn (user_data: ?*anyopaque) callconv(.c) void;

pub const AdoptMemfdOptions = struct {
    flags: constants.AdoptFlags = .{},
    offset: u64 = 0,
    size: u64,
    /// Address at which the caller has mapped this part of the file; null: the library maps it.
    address: ?*anyopaque = null,
    release: ?Release = null,
    user_data: ?*anyopaque = null,
    /// Memory file, not 0. The caller may close it after the call.
    fd: i32,
};

pub const RegionInfo = struct {
    /// First byte: a host address, a device address, or an offset in the file.
    address: u64,
    size: u64,
    memory_page_size: u64,
    alignment: u64,
    flags: constants.RegionFlags,
    tier: constants.Tier,
    origin: constants.Origin,
    device: i32,
    numa_node: i32,
    fd: i32,
    registration_count: u32,
    /// Extents that the addresses of elastic memory can hold. This and the next two fields of a view are those of its region.
    num_extents: u64,
    num_committed: u64,
    /// Number of times that the memory at any address has changed.
    generation: u64,
};

pub const Residency = struct { resident_bytes: u64, transparent_huge_bytes: u64, swapped_bytes: u64 };
pub const Holders = struct {
    references: u64,
    views: u64,
    registrations: u64,
    shares: u64,
    importers: u64,
    handles: u64,
};

/// C structs of options, also for layouts.
pub fn pinnedToC(options: PinnedOptions) c.kvmem_pinned_options {
    var result = core.toC(c.kvmem_pinned_options, options);
    result.progress = options.progress;
    result.user_data = options.user_data;
    return result;
}

/// A range of memory on one tier. Views, registrations, layouts, shares and transfers keep the memory allocated.
pub const Region = struct {
    handle: *c.kvmem_region,

    fn create(diagnostics: ?*Diagnostics, function: anytype, arguments: anytype) Error!Region {
        var handle: ?*c.kvmem_region = null;
        try call(diagnostics, function, arguments ++ .{&handle});
        return .{ .handle = handle.? };
    }

    /// Allocates host memory, page-aligned and zeroed.
    pub fn initSystem(options: SystemOptions, diagnostics: ?*Diagnostics) Error!Region {
        const o = core.toC(c.kvmem_system_options, options);
        return create(diagnostics, c.kvmem_region_create_system, .{&o});
    }

    /// Allocates page-locked host memory.
    pub fn initPinned(options: PinnedOptions, diagnostics: ?*Diagnostics) Error!Region {
        const o = pinnedToC(options);
        return create(diagnostics, c.kvmem_region_create_pinned, .{&o});
    }

    /// Allocates GPU memory. Its content is undefined.
    pub fn initDevice(options: DeviceOptions, diagnostics: ?*Diagnostics) Error!Region {
        const o = core.toC(c.kvmem_device_options, options);
        return create(diagnostics, c.kvmem_region_create_device, .{&o});
    }

    /// Reserves GPU addresses for memory that grows and shrinks.
    pub fn initElastic(options: ElasticOptions, diagnostics: ?*Diagnostics) Error!Region {
        const o = core.toC(c.kvmem_elastic_options, options);
        return create(diagnostics, c.kvmem_region_create_elastic, .{&o});
    }

    /// Creates or opens a file of fixed size.
    pub fn initDisk(options: DiskOptions, diagnostics: ?*Diagnostics) Error!Region {
        const o = core.toC(c.kvmem_disk_options, options);
        return create(diagnostics, c.kvmem_region_create_disk, .{&o});
    }

    /// Adopts host memory of the caller, which must stay mapped until `release` is called. If the call fails, it is not.
    pub fn adoptHost(
        memory: []u8,
        flags: constants.AdoptFlags,
        release: ?Release,
        user_data: ?*anyopaque,
        diagnostics: ?*Diagnostics,
    ) Error!Region {
        var o = core.toC(c.kvmem_adopt_options, .{ .flags = flags, .size = memory.len });
        o.address = memory.ptr;
        o.release = release;
        o.user_data = user_data;
        return create(diagnostics, c.kvmem_region_adopt_host, .{&o});
    }

    /// Adopts GPU memory of the caller, such as a tensor.
    pub fn adoptDevice(
        address: u64,
        size: u64,
        device: i32,
        release: ?Release,
        user_data: ?*anyopaque,
        diagnostics: ?*Diagnostics,
    ) Error!Region {
        var o = core.toC(c.kvmem_adopt_options, .{ .size = size });
        o.address = @ptrFromInt(address);
        o.release = release;
        o.user_data = user_data;
        return create(diagnostics, c.kvmem_region_adopt_device, .{ &o, device });
    }

    /// Names objects of an object store. Nothing is read or written.
    pub fn initObject(options: ObjectOptions, diagnostics: ?*Diagnostics) Error!Region {
        const o = core.toC(c.kvmem_object_options, options);
        return create(diagnostics, c.kvmem_region_create_object, .{&o});
    }

    /// Names a part of a block device. Nothing is opened.
    pub fn initBlock(options: BlockOptions, diagnostics: ?*Diagnostics) Error!Region {
        var o = core.toC(c.kvmem_block_options, options);
        o.metadata = if (options.metadata.len > 0) options.metadata.ptr else null;
        o.metadata_size = options.metadata.len;
        return create(diagnostics, c.kvmem_region_create_block, .{&o});
    }

    /// Adopts a part of a memory file of the caller, so that it can be shared with other processes.
    pub fn adoptMemfd(options: AdoptMemfdOptions, diagnostics: ?*Diagnostics) Error!Region {
        var o = core.toC(c.kvmem_adopt_memfd_options, options);
        o.address = options.address;
        o.release = options.release;
        o.user_data = options.user_data;
        return create(diagnostics, c.kvmem_region_adopt_memfd, .{&o});
    }

    /// Opens GPU memory of another process.
    pub fn openIpc(options: @import("cuda.zig").IpcOptions, diagnostics: ?*Diagnostics) Error!Region {
        const o = core.toC(c.kvmem_ipc_options, options);
        return create(diagnostics, c.kvmem_region_open_ipc, .{&o});
    }

    /// Destroys the handle. The memory is freed when nothing refers to it any more.
    pub fn deinit(self: Region) void {
        c.kvmem_region_destroy(self.handle);
    }

    /// Creates a region that is a part of this one. It keeps the memory of its parent.
    pub fn view(self: Region, offset: u64, size: u64, diagnostics: ?*Diagnostics) Error!Region {
        return create(diagnostics, c.kvmem_region_create_view, .{ self.handle, offset, size });
    }

    /// Allocates memory for a part of an elastic region, in whole extents.
    pub fn commit(self: Region, offset: u64, size: u64, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_region_commit, .{ self.handle, offset, size });
    }

    /// Frees the memory of whole extents.
    pub fn decommit(self: Region, offset: u64, size: u64, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_region_decommit, .{ self.handle, offset, size });
    }

    /// The number of descriptors of its memory: one per span that is registered.
    pub fn descriptorCount(self: Region, diagnostics: ?*Diagnostics) Error!usize {
        var count: usize = 0;
        try call(diagnostics, c.kvmem_region_get_descriptors, .{ self.handle, null, 0, &count });
        return count;
    }

    /// Its memory as descriptors, which refer to the region; fails with OutOfRange if there are more than `space` has.
    pub fn descriptors(self: Region, space: []Descriptor, diagnostics: ?*Diagnostics) Error![]Descriptor {
        var count: usize = 0;
        const first: [*c]c.kvmem_nixl_descriptor = @ptrCast(space.ptr);
        try call(diagnostics, c.kvmem_region_get_descriptors, .{ self.handle, first, space.len, &count });
        return space[0..count];
    }

    /// Waits until the written data of a disk region is durable.
    pub fn sync(self: Region, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_region_sync, .{self.handle});
    }

    /// Fails with PeerLost if the owner of an imported region has freed it or has ended.
    pub fn checkOwner(self: Region, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_region_check_owner, .{self.handle});
    }

    /// Absolute path of the file of a disk region, as text.
    pub fn path(self: Region, diagnostics: ?*Diagnostics) Error!core.Blob {
        return core.getBlob(diagnostics, c.kvmem_region_get_path, .{self.handle});
    }

    /// Name of an agent that the region is registered with, as text.
    pub fn agentName(self: Region, index: usize, diagnostics: ?*Diagnostics) Error!core.Blob {
        return core.getBlob(diagnostics, c.kvmem_region_get_agent, .{ self.handle, index });
    }

    pub fn info(self: Region, diagnostics: ?*Diagnostics) Error!RegionInfo {
        return core.get(RegionInfo, c.kvmem_region_info, diagnostics, c.kvmem_region_get_info, .{self.handle});
    }

    pub fn residency(self: Region, diagnostics: ?*Diagnostics) Error!Residency {
        return core.get(Residency, c.kvmem_region_residency, diagnostics, c.kvmem_region_get_residency, .{self.handle});
    }

    pub fn holders(self: Region, diagnostics: ?*Diagnostics) Error!Holders {
        return core.get(Holders, c.kvmem_region_holders, diagnostics, c.kvmem_region_get_holders, .{self.handle});
    }

    /// Memory of a region in host memory. Valid while the region, or another object that uses its memory, exists. Memory of
    /// a read-only region must not be written.
    pub fn bytes(self: Region, diagnostics: ?*Diagnostics) Error![]u8 {
        const found = try self.info(diagnostics);
        if (found.tier != .system and found.tier != .pinned)
            return core.fail(
                diagnostics,
                c.KVMEM_STATUS_UNSUPPORTED,
                "the region is not in host memory; it has an address, but no slice",
            );
        return @as([*]u8, @ptrFromInt(found.address))[0..found.size];
    }

    /// Registers the region with an agent: with all its backends that accept the type of the memory.
    pub fn register(self: Region, agent: Agent, diagnostics: ?*Diagnostics) Error!Registration {
        var handle: ?*c.kvmem_registration = null;
        try call(diagnostics, c.kvmem_region_register, .{ self.handle, agent.handle, &handle });
        return .{ .handle = handle.? };
    }
};
