// SPDX-License-Identifier: Apache-2.0
const std = @import("std");
const kvmem = @import("kvmem");

pub const Object = union(enum) {
    region: kvmem.Region,
    layout: kvmem.Layout,
    queue: kvmem.Queue,
    transfer: kvmem.Transfer,
    share: kvmem.Share,
    broker: kvmem.Broker,
    agent: kvmem.Agent,
    registration: kvmem.Registration,
    store: kvmem.Store,
    lease: kvmem.Lease,

    pub fn deinit(self: Object) void {
        switch (self) {
            inline else => |object| object.deinit(),
        }
    }
};

const Named = struct { name: []const u8, object: Object };

/// Memory that a case has adopted.
pub const Adopted = struct {
    name: []const u8,
    released: std.atomic.Value(bool) = .init(false),

    pub fn release(user_data: ?*anyopaque) callconv(.c) void {
        const self: *Adopted = @ptrCast(@alignCast(user_data));
        self.released.store(true, .release);
    }
};

const Token = struct { name: []const u8, token: kvmem.Token };
const Bytes = struct { name: []const u8, bytes: []const u8 };

/// What exists during a case.
pub const State = struct {
    io: std.Io,
    arena: std.heap.ArenaAllocator,
    folder: []const u8 = "",
    objects: std.ArrayList(Named) = .empty,
    adopted: std.ArrayList(*Adopted) = .empty,
    tokens: std.ArrayList(Token) = .empty,
    /// Bytes by name, such as metadata. The last one of a name counts.
    bytes: std.ArrayList(Bytes) = .empty,
    number: usize = 0,

    pub fn init(io: std.Io) State {
        return .{ .io = io, .arena = .init(std.heap.c_allocator) };
    }

    pub fn begin(self: *State) !void {
        self.number += 1;
        self.folder = try std.fmt.allocPrint(self.arena.allocator(), "/tmp/kvmem-conformance-zig-{d}-{d}", .{
            std.c.getpid(), self.number,
        });
        try std.Io.Dir.cwd().createDirPath(self.io, self.folder);
    }

    /// Destroys what the case has left, the last created object first.
    pub fn end(self: *State) void {
        while (self.objects.pop()) |named| named.object.deinit();
        // The library may still release memory that is in the arena.
        for (self.adopted.items) |adopted| while (!adopted.released.load(.acquire)) std.Thread.yield() catch {};
        if (self.folder.len > 0) std.Io.Dir.cwd().deleteTree(self.io, self.folder) catch {};
        self.folder = "";
        self.objects = .empty;
        self.adopted = .empty;
        self.tokens = .empty;
        self.bytes = .empty;
        _ = self.arena.reset(.free_all);
    }

    pub fn find(self: *State, name: []const u8) ?*Object {
        for (self.objects.items) |*named| if (std.mem.eql(u8, named.name, name)) return &named.object;
        return null;
    }

    pub fn add(self: *State, name: []const u8, object: Object) !void {
        const gpa = self.arena.allocator();
        try self.objects.append(gpa, .{ .name = try gpa.dupe(u8, name), .object = object });
    }

    pub fn destroy(self: *State, name: []const u8) void {
        for (self.objects.items, 0..) |named, i| if (std.mem.eql(u8, named.name, name)) {
            named.object.deinit();
            _ = self.objects.orderedRemove(i);
            return;
        };
    }
};
