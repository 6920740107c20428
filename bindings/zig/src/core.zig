// SPDX-License-Identifier: Apache-2.0
//! What all files have in common: errors, the conversion of structs, blobs.
const std = @import("std");
const c = @import("c");
const constants = @import("constants.zig");

/// How a call failed. `Diagnostics` has the message and the native cause.
pub const Error = error{
    InvalidArgument,
    OutOfMemory,
    OutOfRange,
    NotFound,
    AlreadyExists,
    InvalidState,
    Busy,
    TimedOut,
    Cancelled,
    Unsupported,
    PermissionDenied,
    UnavailableCuda,
    UnavailableNixl,
    Cuda,
    Nixl,
    Io,
    PeerLost,
    Stale,
    Corrupt,
    VersionMismatch,
    /// A bug in kvmem.
    Panic,
    /// A status of a later version of the library.
    Unknown,
};

/// The error of a status; null if the status is no failure.
pub fn errorOf(status: i32) ?Error {
    if (status >= 0) return null;
    return switch (status) {
        c.KVMEM_STATUS_INVALID_ARGUMENT => error.InvalidArgument,
        c.KVMEM_STATUS_OUT_OF_MEMORY => error.OutOfMemory,
        c.KVMEM_STATUS_OUT_OF_RANGE => error.OutOfRange,
        c.KVMEM_STATUS_NOT_FOUND => error.NotFound,
        c.KVMEM_STATUS_ALREADY_EXISTS => error.AlreadyExists,
        c.KVMEM_STATUS_INVALID_STATE => error.InvalidState,
        c.KVMEM_STATUS_BUSY => error.Busy,
        c.KVMEM_STATUS_TIMED_OUT => error.TimedOut,
        c.KVMEM_STATUS_CANCELLED => error.Cancelled,
        c.KVMEM_STATUS_UNSUPPORTED => error.Unsupported,
        c.KVMEM_STATUS_PERMISSION_DENIED => error.PermissionDenied,
        c.KVMEM_STATUS_UNAVAILABLE_CUDA => error.UnavailableCuda,
        c.KVMEM_STATUS_UNAVAILABLE_NIXL => error.UnavailableNixl,
        c.KVMEM_STATUS_CUDA => error.Cuda,
        c.KVMEM_STATUS_NIXL => error.Nixl,
        c.KVMEM_STATUS_IO => error.Io,
        c.KVMEM_STATUS_PEER_LOST => error.PeerLost,
        c.KVMEM_STATUS_STALE => error.Stale,
        c.KVMEM_STATUS_CORRUPT => error.Corrupt,
        c.KVMEM_STATUS_VERSION_MISMATCH => error.VersionMismatch,
        c.KVMEM_STATUS_PANIC => error.Panic,
        else => error.Unknown,
    };
}

/// Name of a status in C, such as "KVMEM_STATUS_BUSY".
pub fn statusName(status: i32) [:0]const u8 {
    return std.mem.span(c.kvmem_status_name(status));
}

/// Meaning of a status in one sentence.
pub fn statusMessage(status: i32) [:0]const u8 {
    return std.mem.span(c.kvmem_status_message(status));
}

/// Receives the message and the native cause of the last call that failed with it. It can be used for any number of calls.
pub const Diagnostics = struct {
    failure: ?*c.kvmem_error = null,
    /// What the wrapper found before it called the library.
    own: ?struct { status: i32, message: [:0]const u8 } = null,

    pub fn deinit(self: *Diagnostics) void {
        c.kvmem_error_destroy(self.failure);
        self.* = .{};
    }

    /// Status of the call in C; 0 if no call has failed.
    pub fn status(self: Diagnostics) i32 {
        if (self.own) |found| return found.status;
        return c.kvmem_error_status(self.failure);
    }

    /// What was asked, what was found and what to do; "" if no call has failed. Valid until the next failure.
    pub fn message(self: Diagnostics) [:0]const u8 {
        if (self.own) |found| return found.message;
        var length: usize = 0;
        return c.kvmem_error_message(self.failure, &length)[0..length :0];
    }

    /// Error of the library or system that kvmem called.
    pub const Cause = struct {
        domain: constants.Domain,
        /// Code in that domain.
        code: i32,
        /// Name of the code, such as "ENOSPC". Valid until the next failure.
        name: [:0]const u8,
    };

    /// Native cause; null if kvmem itself found the error.
    pub fn cause(self: Diagnostics) ?Cause {
        if (self.failure == null) return null;
        var found: c.kvmem_error_cause = .{};
        if (c.kvmem_error_get_cause(self.failure, &found) != c.KVMEM_STATUS_OK) return null;
        if (found.domain == c.KVMEM_DOMAIN_NONE) return null;
        return .{ .domain = @fromBackingInt(@intCast(found.domain)), .code = found.code, .name = std.mem.span(found.name) };
    }
};

/// Makes a call whose last parameter, which is not in `arguments`, receives the error. Returns a status that is no failure.
pub fn callStatus(diagnostics: ?*Diagnostics, function: anytype, arguments: anytype) Error!i32 {
    try ensureAbi(diagnostics);
    var failure: ?*c.kvmem_error = null;
    const status = @call(.auto, function, arguments ++ .{if (diagnostics != null) &failure else null});
    if (errorOf(status)) |found| {
        if (diagnostics) |d| {
            d.deinit();
            d.failure = failure;
        }
        return found;
    }
    return status;
}

var abi_message: [128]u8 = undefined;

/// Structs of another binary interface have other sizes and fields, so nothing may be called.
fn ensureAbi(diagnostics: ?*Diagnostics) Error!void {
    const found: u32 = c.kvmem_abi_version();
    if (found == c.KVMEM_ABI_VERSION) return;
    const format = "libkvmem.so has binary interface {d}, and this program was compiled for {d}; install one of them";
    const message = std.fmt.bufPrintSentinel(&abi_message, format, .{ found, @as(u32, c.KVMEM_ABI_VERSION) }, 0) catch unreachable;
    return fail(diagnostics, c.KVMEM_STATUS_VERSION_MISMATCH, message);
}

/// The error of a call that the wrapper does not pass to the library.
pub fn fail(diagnostics: ?*Diagnostics, status: i32, message: [:0]const u8) Error {
    if (diagnostics) |d| {
        d.deinit();
        d.own = .{ .status = status, .message = message };
    }
    return errorOf(status).?;
}

pub fn call(diagnostics: ?*Diagnostics, function: anytype, arguments: anytype) Error!void {
    _ = try callStatus(diagnostics, function, arguments);
}

/// A struct of C with the fields of options, which have the same names. Slices and handles are set by the caller.
pub fn toC(comptime C: type, options: anytype) C {
    var result: C = .{};
    if (@hasField(C, "struct_size")) result.struct_size = @sizeOf(C);
    inline for (comptime std.meta.fieldNames(@TypeOf(options))) |name| {
        const value = @field(options, name);
        switch (@typeInfo(@TypeOf(value))) {
            .@"enum" => @field(result, name) = @backingInt(value),
            .int => @field(result, name) = value,
            .array => @field(result, name) = value,
            .pointer => if (@TypeOf(value) == []const u8) {
                @field(result, name) = pointer(value);
                @field(result, name ++ "_size") = value.len;
            },
            .@"struct" => |info| if (info.layout == .@"packed") {
                @field(result, name) = @bitCast(value);
            },
            .optional => if (@TypeOf(value) == ?[:0]const u8) {
                @field(result, name) = if (value) |text| text.ptr else null;
            },
            else => {},
        }
    }
    return result;
}

/// A struct of Zig from one of C, whose fields have the same names.
pub fn fromC(comptime Z: type, value: anytype) Z {
    var result: Z = undefined;
    inline for (comptime std.meta.fieldNames(Z)) |name| {
        const T = @TypeOf(@field(result, name));
        const found = @field(value, name);
        @field(result, name) = switch (@typeInfo(T)) {
            .@"enum" => @fromBackingInt(@intCast(found)),
            .@"struct" => @bitCast(found),
            .bool => found != 0,
            .pointer => |kind| if (kind.size == .c) found else if (found) |first| @as([*]const u8, @ptrCast(first))[0..@field(value, name ++ "_size")] else "",
            else => found,
        };
    }
    return result;
}

/// Makes a call that returns a struct.
pub fn get(comptime Z: type, comptime C: type, diagnostics: ?*Diagnostics, function: anytype, arguments: anytype) Error!Z {
    var value: C = .{};
    if (@hasField(C, "struct_size")) value.struct_size = @sizeOf(C);
    try call(diagnostics, function, arguments ++ .{&value});
    return fromC(Z, value);
}

/// Bytes or text that the library has created.
pub const Blob = struct {
    handle: *c.kvmem_blob,

    pub fn deinit(self: Blob) void {
        c.kvmem_blob_destroy(self.handle);
    }

    /// The bytes; a NUL follows the last one. Valid until `deinit`.
    pub fn bytes(self: Blob) [:0]const u8 {
        const first: [*]const u8 = @ptrCast(c.kvmem_blob_data(self.handle).?);
        return first[0..c.kvmem_blob_size(self.handle) :0];
    }
};

pub fn getBlob(diagnostics: ?*Diagnostics, function: anytype, arguments: anytype) Error!Blob {
    var handle: ?*c.kvmem_blob = null;
    try call(diagnostics, function, arguments ++ .{&handle});
    return .{ .handle = handle.? };
}

pub fn pointer(data: []const u8) ?*const anyopaque {
    return if (data.len == 0) null else data.ptr;
}

/// A stream of the CUDA driver: a CUstream or cudaStream_t.
pub const Stream = ?*anyopaque;
