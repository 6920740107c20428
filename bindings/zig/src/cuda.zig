// SPDX-License-Identifier: Apache-2.0
const c = @import("c");
const core = @import("core.zig");
const constants = @import("constants.zig");
const Diagnostics = core.Diagnostics;
const Error = core.Error;
const call = core.call;

pub const CudaInfo = struct {
    /// 1000 × major + 10 × minor.
    driver_version: i32,
    device_count: i32,
};

pub const Uuid = [16]u8;

pub const CudaDeviceInfo = struct {
    /// NUL-terminated.
    name: [64]u8,
    uuid: Uuid,
    total_memory: u64,
    capabilities: constants.CudaCapabilities,
    minimum_granularity: u64,
    recommended_granularity: u64,
    /// Destroyed, and kept until the GPU has finished its work, or for ever after a run whose end can't be detected.
    kept_objects: u64,
    kept_bytes: u64,
    /// Bit i: the memory of GPU i can be mapped.
    can_access: u64,
    compute_capability_major: u32,
    compute_capability_minor: u32,
    multiprocessors: u32,
    numa_node: i32,
};

/// Finds and initialises the CUDA driver. Fails with UnavailableCuda if there is none.
pub fn cudaInfo(diagnostics: ?*Diagnostics) Error!CudaInfo {
    return core.get(CudaInfo, c.kvmem_cuda_info, diagnostics, c.kvmem_cuda_get_info, .{});
}

pub fn cudaDeviceInfo(device: i32, diagnostics: ?*Diagnostics) Error!CudaDeviceInfo {
    return core.get(CudaDeviceInfo, c.kvmem_cuda_device_info, diagnostics, c.kvmem_cuda_get_device_info, .{device});
}

/// Ordinal of the GPU with a UUID.
pub fn findCudaDevice(uuid: Uuid, diagnostics: ?*Diagnostics) Error!i32 {
    var device: i32 = -1;
    try call(diagnostics, c.kvmem_cuda_find_device, .{ &uuid, &device });
    return device;
}

/// Copy rates of a GPU, or between two, of which `device` does the work, as opaque bytes. They are measured if they are not known
/// yet. A peer that is the device selects its own rates.
pub fn copyRates(device: i32, peer: i32, diagnostics: ?*Diagnostics) Error!core.Blob {
    return core.getBlob(diagnostics, c.kvmem_cuda_get_copy_rates, .{ device, peer });
}

/// Sets copy rates; empty ones are discarded, so that they are measured when they are needed next.
pub fn setCopyRates(device: i32, peer: i32, rates: []const u8, diagnostics: ?*Diagnostics) Error!void {
    try call(diagnostics, c.kvmem_cuda_set_copy_rates, .{ device, peer, core.pointer(rates), rates.len });
}

/// Sets the copy rates of a GPU, and between it and each other GPU, to the built-in ones.
pub fn useDefaultRates(device: i32, diagnostics: ?*Diagnostics) Error!void {
    try call(diagnostics, c.kvmem_cuda_use_default_rates, .{device});
}

pub const RatesInfo = struct {
    uuid: Uuid,
    peer_uuid: Uuid,
    read_bytes_per_second: f64,
    write_bytes_per_second: f64,
    launch_ns: f64,
    source: constants.RatesSource,
    num_defaults: u32,
};

/// Summary of copy rates. Needs neither a GPU nor a driver.
pub fn describeRates(rates: []const u8, diagnostics: ?*Diagnostics) Error!RatesInfo {
    var found: c.kvmem_rates_info = .{};
    try call(diagnostics, c.kvmem_cuda_describe_rates, .{ core.pointer(rates), rates.len, &found, null });
    return core.fromC(RatesInfo, found);
}

/// All rates as text for people.
pub fn describeRatesText(rates: []const u8, diagnostics: ?*Diagnostics) Error!core.Blob {
    return core.getBlob(diagnostics, c.kvmem_cuda_describe_rates, .{ core.pointer(rates), rates.len, null });
}

/// The data that another process needs to open GPU memory of this process.
pub const IpcHandle = struct {
    handle: [64]u8,
    uuid: Uuid,
    base: u64,
    base_size: u64,
    offset: u64,
    buffer_id: u64,
};

/// Handle with which another process opens GPU memory. It does not keep the memory allocated.
pub fn exportIpc(address: u64, diagnostics: ?*Diagnostics) Error!IpcHandle {
    return core.get(IpcHandle, c.kvmem_ipc_handle, diagnostics, c.kvmem_ipc_export, .{address});
}

/// GPU memory of another process, for `Region.openIpc`.
pub const IpcOptions = struct {
    flags: constants.IpcFlags = .{},
    handle: [64]u8,
    offset: u64 = 0,
    size: u64,
    base_size: u64 = 0,
    buffer_id: u64 = 0,
    device: i32 = 0,
    for_device: i32 = 0,
};

pub const VmmOptions = struct {
    flags: constants.VmmFlags = .{},
    /// Bytes, a multiple of the minimum granularity.
    size: u64 = 0,
    location: constants.VmmLocation = .default,
    /// The GPU, or the number of the NUMA node.
    id: i32 = 0,
};

/// For the device of imported memory: accept any location.
pub const any_device: i32 = c.KVMEM_VMM_ANY_DEVICE;

pub fn vmmGranularity(options: VmmOptions, which: constants.Granularity, diagnostics: ?*Diagnostics) Error!u64 {
    const o = core.toC(c.kvmem_vmm_options, options);
    var result: u64 = 0;
    try call(diagnostics, c.kvmem_vmm_get_granularity, .{ &o, @backingInt(which), &result });
    return result;
}

pub const Span = extern struct { address: u64, size: u64 };

/// Physical memory without an address.
pub const VmmMemory = struct {
    handle: *c.kvmem_vmm_memory,

    fn create(diagnostics: ?*Diagnostics, function: anytype, arguments: anytype) Error!VmmMemory {
        var handle: ?*c.kvmem_vmm_memory = null;
        try call(diagnostics, function, arguments ++ .{&handle});
        return .{ .handle = handle.? };
    }

    pub fn init(options: VmmOptions, diagnostics: ?*Diagnostics) Error!VmmMemory {
        const o = core.toC(c.kvmem_vmm_options, options);
        return create(diagnostics, c.kvmem_vmm_memory_create, .{&o});
    }

    pub fn importFd(fd: i32, size: u64, device: i32, diagnostics: ?*Diagnostics) Error!VmmMemory {
        return create(diagnostics, c.kvmem_vmm_memory_import_fd, .{ fd, size, device });
    }

    pub fn importFabric(fabric: [64]u8, size: u64, device: i32, diagnostics: ?*Diagnostics) Error!VmmMemory {
        const handle: c.kvmem_fabric_handle = .{ .bytes = fabric };
        return create(diagnostics, c.kvmem_vmm_memory_import_fabric, .{ &handle, size, device });
    }

    /// Retains memory that is mapped at an address in this process, such as by an engine.
    pub fn retain(address: u64, diagnostics: ?*Diagnostics) Error!VmmMemory {
        return create(diagnostics, c.kvmem_vmm_memory_retain, .{address});
    }

    pub fn deinit(self: VmmMemory) void {
        c.kvmem_vmm_memory_destroy(self.handle);
    }

    /// Exports the memory as a file descriptor, which the caller closes.
    pub fn exportFd(self: VmmMemory, diagnostics: ?*Diagnostics) Error!i32 {
        var fd: i32 = -1;
        try call(diagnostics, c.kvmem_vmm_memory_export_fd, .{ self.handle, &fd });
        return fd;
    }

    pub fn exportFabric(self: VmmMemory, diagnostics: ?*Diagnostics) Error![64]u8 {
        var handle: c.kvmem_fabric_handle = .{};
        try call(diagnostics, c.kvmem_vmm_memory_export_fabric, .{ self.handle, &handle });
        return handle.bytes;
    }
};

/// A reserved range of device addresses.
pub const VmmRange = struct {
    handle: *c.kvmem_vmm_range,
    span: Span,

    pub fn init(size: u64, alignment: u64, diagnostics: ?*Diagnostics) Error!VmmRange {
        var handle: ?*c.kvmem_vmm_range = null;
        var span: Span = undefined;
        try call(diagnostics, c.kvmem_vmm_range_create, .{ size, alignment, @as(*c.kvmem_vmm_span, @ptrCast(&span)), &handle });
        return .{ .handle = handle.?, .span = span };
    }

    pub fn deinit(self: VmmRange) void {
        c.kvmem_vmm_range_destroy(self.handle);
    }

    /// Maps memory into the range, as a whole. No GPU has access until `setAccess` grants it.
    pub fn map(self: VmmRange, offset: u64, memory: VmmMemory, diagnostics: ?*Diagnostics) Error!VmmMapping {
        var handle: ?*c.kvmem_vmm_mapping = null;
        var span: Span = undefined;
        try call(diagnostics, c.kvmem_vmm_mapping_create, .{ self.handle, offset, memory.handle, @as(*c.kvmem_vmm_span, @ptrCast(&span)), &handle });
        return .{ .handle = handle.?, .span = span };
    }
};

/// VMM memory that is mapped into a range. It keeps both alive.
pub const VmmMapping = struct {
    handle: *c.kvmem_vmm_mapping,
    span: Span,

    /// Unmaps the memory. No GPU may use its addresses any more.
    pub fn deinit(self: VmmMapping) void {
        c.kvmem_vmm_mapping_destroy(self.handle);
    }

    pub fn setAccess(self: VmmMapping, device: i32, access: constants.Access, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_vmm_mapping_set_access, .{ self.handle, device, @backingInt(access) });
    }

    pub fn getAccess(self: VmmMapping, device: i32, diagnostics: ?*Diagnostics) Error!constants.Access {
        var result: u32 = 0;
        try call(diagnostics, c.kvmem_vmm_mapping_get_access, .{ self.handle, device, &result });
        return @fromBackingInt(@intCast(result));
    }
};
