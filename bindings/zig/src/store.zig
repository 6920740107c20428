// SPDX-License-Identifier: Apache-2.0
//! Stores: blocks under keys in a folder, which survive the process and a loss of power.
const std = @import("std");
const c = @import("c");
const core = @import("core.zig");
const constants = @import("constants.zig");
const Layout = @import("layout.zig").Layout;
const LayoutConfig = @import("layout.zig").LayoutConfig;
const transfers = @import("transfer.zig");
const Diagnostics = core.Diagnostics;
const Error = core.Error;
const call = core.call;

/// A part of the identity of a store, such as "model", with any bytes.
pub const StoreValue = extern struct {
    name: [*:0]const u8,
    value: ?*const anyopaque,
    value_size: usize,

    pub fn init(name: [:0]const u8, value: []const u8) StoreValue {
        return .{ .name = name.ptr, .value = core.pointer(value), .value_size = value.len };
    }
};

pub const StoreOptions = struct {
    /// Folder of the store. It is created, but not its parents.
    path: [:0]const u8,
    /// Shape of the blocks. num_blocks is the number of slots; 0 for that of an existing store, or for as many as `max_size` has
    /// space for.
    config: LayoutConfig,
    /// What the blocks contain. A store of another identity is not opened.
    identity: []const StoreValue = &.{},
    /// Bytes of all slots of a new store, if num_blocks is 0.
    max_size: u64 = 0,
    durability: constants.Durability = .strict,
    eviction: constants.Eviction = .store,
    /// open_existing and read_only open it for reading, also while a process writes it.
    flags: constants.DiskFlags = .{},
    /// Nanoseconds after which blocks become durable, with `relaxed`, or after which a reader knows what was stored; 0 for one
    /// second.
    interval_ns: u64 = 0,
};

pub const StoreNamespaceOptions = struct {
    /// 1 to 128 bytes, such as the id of a tenant. It is in the files of the store, in clear.
    name: [:0]const u8,
    /// Bytes of slots; 0 for that of an existing namespace.
    quota: u64 = 0,
    /// 32 random bytes, by which blocks and keys are encrypted; null for a namespace that is not encrypted.
    key: ?[]const u8 = null,
};

/// Keys of one size, one after the other.
pub const StoreKeys = struct {
    bytes: []const u8,
    /// Bytes of each key, 16 to 64.
    size: usize,

    pub fn count(self: StoreKeys) usize {
        return if (self.size == 0) 0 else self.bytes.len / self.size;
    }

    /// The number of keys. Fails if the last one is shorter.
    fn checked(self: StoreKeys, diagnostics: ?*Diagnostics) Error!usize {
        if (self.count() * self.size != self.bytes.len)
            return core.fail(diagnostics, c.KVMEM_STATUS_INVALID_ARGUMENT, "bytes is no whole number of keys; give keys of `size` bytes each");
        return self.count();
    }
};

/// Blocks of a layout, and their keys in a store.
pub const StoreBlocks = struct {
    /// In the order of the sequence. Each has the tokens of a slot.
    keys: StoreKeys,
    /// Blocks that have the tokens of the keys: one for each key, if the page_size of the layout is that of the store.
    blocks: []const u32,
    /// Key of the block before the first one, for a put; null if that begins a sequence.
    parent: ?[]const u8 = null,
    /// For a put.
    flags: constants.StoreFlags = .{},
    /// Returned in the completion.
    user_data: u64 = 0,
    /// Nanoseconds after which the run ends with TimedOut; 0 for no limit.
    run_timeout_ns: u64 = 0,

    fn toC(self: StoreBlocks, diagnostics: ?*Diagnostics) Error!c.kvmem_store_blocks {
        var o: c.kvmem_store_blocks = .{
            .struct_size = @sizeOf(c.kvmem_store_blocks),
            .keys = core.pointer(self.keys.bytes),
            .key_size = self.keys.size,
            .num_keys = try self.keys.checked(diagnostics),
            .blocks = self.blocks.ptr,
            .num_blocks = self.blocks.len,
            .flags = @bitCast(self.flags),
            .user_data = self.user_data,
            .run_timeout_ns = self.run_timeout_ns,
        };
        if (self.parent) |parent| {
            if (parent.len != self.keys.size)
                return core.fail(diagnostics, c.KVMEM_STATUS_INVALID_ARGUMENT, "parent and keys differ in size; give a key of the same size");
            o.parent = parent.ptr;
        }
        return o;
    }
};

/// What a put or a get has started.
pub const StoreRun = struct {
    /// Its only run is in flight; null if nothing is to be moved.
    transfer: ?transfers.Transfer,
    /// Keys whose blocks are moved. For a get, the key with this index is the first that is missing.
    num_moved: usize,

    pub fn deinit(self: StoreRun) void {
        if (self.transfer) |transfer| transfer.deinit();
    }

    /// Waits for the end, and returns the number of keys.
    pub fn wait(self: StoreRun, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!usize {
        if (self.transfer) |transfer| try transfer.wait(timeout_ns, diagnostics);
        return self.num_moved;
    }
};

/// Properties of a store, and what happened since it was opened.
pub const StoreInfo = struct {
    num_slots: u64,
    num_stored: u64,
    /// Slots that are not used again, because their bytes were damaged.
    num_retired: u64,
    slot_size: u64,
    num_hits: u64,
    num_misses: u64,
    num_evicted: u64,
    num_damaged: u64,
    durability: constants.Durability,
};

/// A block in a store.
pub const StoreEntry = extern struct {
    key_bytes: [64]u8,
    parent_bytes: [64]u8,
    key_size: u32,
    parent_size: u32,
    /// CRC32C, as `Layout.checksums` computes it.
    checksum: u32,
    /// 1 if it is pinned, otherwise 0.
    is_pinned: u32,
    slot: u64,

    pub fn key(self: *const StoreEntry) []const u8 {
        return self.key_bytes[0..self.key_size];
    }

    /// Key of the block before it; null if it has none.
    pub fn parent(self: *const StoreEntry) ?[]const u8 {
        return if (self.parent_size == 0) null else self.parent_bytes[0..self.parent_size];
    }
};

comptime {
    std.debug.assert(@sizeOf(StoreEntry) == @sizeOf(c.kvmem_store_entry));
    std.debug.assert(@sizeOf(StoreValue) == @sizeOf(c.kvmem_store_value));
}

/// Blocks under keys in a folder, open for writing or for reading. Runs of puts and gets keep the store open.
pub const Store = struct {
    handle: *c.kvmem_store,

    /// Opens a store, or creates it.
    pub fn init(options: StoreOptions, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!Store {
        const config = core.toC(c.kvmem_layout_config, options.config);
        var o: c.kvmem_store_options = .{
            .struct_size = @sizeOf(c.kvmem_store_options),
            .path = options.path.ptr,
            .config = &config,
            .num_values = options.identity.len,
            .max_size = options.max_size,
            .durability = @backingInt(options.durability),
            .eviction = @backingInt(options.eviction),
            .flags = @bitCast(options.flags),
            .interval_ns = options.interval_ns,
        };
        if (options.identity.len > 0) o.identity = @ptrCast(options.identity.ptr);
        var handle: ?*c.kvmem_store = null;
        try call(diagnostics, c.kvmem_store_open, .{ &o, timeout_ns, &handle });
        return .{ .handle = handle.? };
    }

    pub fn deinit(self: Store) void {
        c.kvmem_store_destroy(self.handle);
    }

    /// Opens a namespace, or creates it: a store whose calls find its own blocks only. It keeps this store open.
    pub fn openNamespace(self: Store, options: StoreNamespaceOptions, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!Store {
        var o: c.kvmem_store_namespace_options = .{
            .struct_size = @sizeOf(c.kvmem_store_namespace_options),
            .name = options.name.ptr,
            .quota = options.quota,
        };
        if (options.key) |key| {
            o.key = key.ptr;
            o.key_size = key.len;
        }
        var handle: ?*c.kvmem_store = null;
        try call(diagnostics, c.kvmem_store_open_namespace, .{ self.handle, &o, timeout_ns, &handle });
        return .{ .handle = handle.? };
    }

    /// Removes a namespace. Returns the number of its blocks.
    pub fn removeNamespace(self: Store, name: [:0]const u8, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!u64 {
        var removed: u64 = 0;
        try call(diagnostics, c.kvmem_store_remove_namespace, .{ self.handle, name.ptr, timeout_ns, &removed });
        return removed;
    }

    /// What a store is and contains, as text for people. It may be open in a process.
    pub fn describe(path: [:0]const u8, diagnostics: ?*Diagnostics) Error!core.Blob {
        return core.getBlob(diagnostics, c.kvmem_store_describe, .{path.ptr});
    }

    /// Stores blocks of a layout under their keys. Those that are stored are not moved. The ranges of the options have all layers,
    /// outer slots and heads of the store.
    pub fn put(
        self: Store,
        source: Layout,
        blocks: StoreBlocks,
        options: transfers.TransferOptions,
        diagnostics: ?*Diagnostics,
    ) Error!StoreRun {
        return self.move(c.kvmem_store_put, source, blocks, options, diagnostics);
    }

    /// Moves the blocks of the first keys to a layout, up to the first key that is not stored. Each block is compared with its
    /// checksum: with damaged ones the run ends with Corrupt, and `mismatches` of the transfer returns their indices until `deinit`.
    pub fn get(
        self: Store,
        destination: Layout,
        blocks: StoreBlocks,
        options: transfers.TransferOptions,
        diagnostics: ?*Diagnostics,
    ) Error!StoreRun {
        return self.move(c.kvmem_store_get, destination, blocks, options, diagnostics);
    }

    fn move(
        self: Store,
        function: anytype,
        layout: Layout,
        blocks: StoreBlocks,
        options: transfers.TransferOptions,
        diagnostics: ?*Diagnostics,
    ) Error!StoreRun {
        const o = options.converted();
        const what = try blocks.toC(diagnostics);
        var handle: ?*c.kvmem_transfer = null;
        var moved: usize = 0;
        try call(diagnostics, function, .{ self.handle, layout.handle, &o, &what, &handle, &moved });
        return .{ .transfer = if (handle) |started| .{ .handle = started } else null, .num_moved = moved };
    }

    /// Notes for each key whether it is stored: `found` has an element for each. Waits for no file.
    pub fn contains(self: Store, keys: StoreKeys, found: []bool, diagnostics: ?*Diagnostics) Error!void {
        if (found.len != keys.count())
            return core.fail(diagnostics, c.KVMEM_STATUS_INVALID_ARGUMENT, "found and keys differ in number; give one element per key");
        try call(diagnostics, c.kvmem_store_contains, .{ self.handle, core.pointer(keys.bytes), keys.size, try keys.checked(diagnostics), @as([*c]u8, @ptrCast(found.ptr)) });
    }

    /// Removes blocks. Returns how many were stored.
    pub fn remove(self: Store, keys: StoreKeys, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!u64 {
        var removed: u64 = 0;
        try call(diagnostics, c.kvmem_store_remove, .{ self.handle, core.pointer(keys.bytes), keys.size, try keys.checked(diagnostics), timeout_ns, &removed });
        return removed;
    }

    /// Protects blocks from eviction. Returns how many are stored.
    pub fn pin(self: Store, keys: StoreKeys, diagnostics: ?*Diagnostics) Error!u64 {
        var found: u64 = 0;
        try call(diagnostics, c.kvmem_store_pin, .{ self.handle, core.pointer(keys.bytes), keys.size, try keys.checked(diagnostics), &found });
        return found;
    }

    /// Ends the protection. Returns how many are stored.
    pub fn unpin(self: Store, keys: StoreKeys, diagnostics: ?*Diagnostics) Error!u64 {
        var found: u64 = 0;
        try call(diagnostics, c.kvmem_store_unpin, .{ self.handle, core.pointer(keys.bytes), keys.size, try keys.checked(diagnostics), &found });
        return found;
    }

    /// Returns stored blocks in slots from `first_slot` on, in the order of their slots: the beginning of `entries`.
    pub fn list(self: Store, first_slot: u64, entries: []StoreEntry, diagnostics: ?*Diagnostics) Error![]StoreEntry {
        var count: usize = 0;
        const first: [*c]c.kvmem_store_entry = @ptrCast(entries.ptr);
        try call(diagnostics, c.kvmem_store_list, .{ self.handle, first_slot, first, entries.len, &count });
        return entries[0..count];
    }

    pub fn info(self: Store, diagnostics: ?*Diagnostics) Error!StoreInfo {
        return core.get(StoreInfo, c.kvmem_store_info, diagnostics, c.kvmem_store_get_info, .{self.handle});
    }

    /// Makes all blocks durable whose puts have ended. For a reader it reads what was stored since.
    pub fn flush(self: Store, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_store_flush, .{ self.handle, timeout_ns });
    }

    /// Reads all blocks, and removes those that are damaged. Returns their number. A later call continues where a late one has
    /// ended.
    pub fn verify(self: Store, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!u64 {
        var damaged: u64 = 0;
        try call(diagnostics, c.kvmem_store_verify, .{ self.handle, timeout_ns, &damaged });
        return damaged;
    }
};
