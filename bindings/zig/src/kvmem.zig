// SPDX-License-Identifier: Apache-2.0
//! KV-cache memory for LLM inference engines: the Zig wrapper of the C library kvmem.
//!
//! A call that fails returns an error of `Error`. Its last parameter, a `?*Diagnostics`, receives the message and the native
//! cause. Handles are small values with one `deinit`; they may be destroyed in any order, because an object exists as long as
//! another object uses it. The wrapper allocates no memory.
const std = @import("std");
const c = @import("c");
const core = @import("core.zig");

pub const Error = core.Error;
pub const Diagnostics = core.Diagnostics;
pub const Blob = core.Blob;
pub const Stream = core.Stream;
pub const errorOf = core.errorOf;
pub const statusName = core.statusName;
pub const statusMessage = core.statusMessage;

/// Flags and enumerations.
pub const constants = @import("constants.zig");

const region = @import("region.zig");
pub const Region = region.Region;
pub const SystemOptions = region.SystemOptions;
pub const PinnedOptions = region.PinnedOptions;
pub const DeviceOptions = region.DeviceOptions;
pub const ElasticOptions = region.ElasticOptions;
pub const DiskOptions = region.DiskOptions;
pub const ObjectOptions = region.ObjectOptions;
pub const BlockOptions = region.BlockOptions;
pub const AdoptMemfdOptions = region.AdoptMemfdOptions;
pub const Release = region.Release;
pub const RegionInfo = region.RegionInfo;
pub const Residency = region.Residency;
pub const Holders = region.Holders;

const layout = @import("layout.zig");
pub const Layout = layout.Layout;
pub const LayoutConfig = layout.LayoutConfig;
pub const LayoutOptions = layout.LayoutOptions;
pub const LayoutInfo = layout.LayoutInfo;
pub const BlockAccess = layout.BlockAccess;
pub const Lease = layout.Lease;
pub const LeaseOptions = layout.LeaseOptions;
pub const ServeOptions = layout.ServeOptions;
pub const LayoutPart = layout.Part;
pub const Memory = layout.Memory;
pub const Requirements = layout.Requirements;
pub const Block = layout.Block;

const transfer = @import("transfer.zig");
pub const Transfer = transfer.Transfer;
pub const TransferOptions = transfer.TransferOptions;
pub const TransferInfo = transfer.TransferInfo;
pub const SubmitOptions = transfer.SubmitOptions;
pub const ComparedMethod = transfer.ComparedMethod;
pub const BlockPair = transfer.BlockPair;
pub const BlockTable = transfer.BlockTable;
pub const Queue = transfer.Queue;
pub const Completion = transfer.Completion;
pub const methodName = transfer.methodName;

const store = @import("store.zig");
pub const Store = store.Store;
pub const StoreOptions = store.StoreOptions;
pub const StoreNamespaceOptions = store.StoreNamespaceOptions;
pub const StoreValue = store.StoreValue;
pub const StoreKeys = store.StoreKeys;
pub const StoreBlocks = store.StoreBlocks;
pub const StoreRun = store.StoreRun;
pub const StoreInfo = store.StoreInfo;
pub const StoreEntry = store.StoreEntry;

const share = @import("share.zig");
pub const Share = share.Share;
pub const ShareOptions = share.ShareOptions;
pub const ShareInfo = share.ShareInfo;
pub const OpenOptions = share.OpenOptions;
pub const FetchOptions = share.FetchOptions;
pub const Token = share.Token;
pub const Broker = share.Broker;
pub const BrokerOptions = share.BrokerOptions;
pub const BrokerInfo = share.BrokerInfo;
pub const PublishOptions = share.PublishOptions;

const agent = @import("agent.zig");
pub const Agent = agent.Agent;
pub const AgentOptions = agent.AgentOptions;
pub const AgentTelemetry = agent.AgentTelemetry;
pub const Parameter = agent.Parameter;
pub const Notification = agent.Notification;
pub const Notifications = agent.Notifications;
pub const Registration = agent.Registration;
pub const RegistrationInfo = agent.RegistrationInfo;
pub const loadNixl = agent.loadNixl;
pub const nixlPath = agent.nixlPath;

const nixl = @import("nixl.zig");
pub const NixlOptions = nixl.NixlOptions;
pub const Plugin = nixl.Plugin;
pub const Plugins = nixl.Plugins;
pub const Descriptor = nixl.Descriptor;
pub const Segments = nixl.Segments;
pub const Query = nixl.Query;
pub const QueryResult = nixl.QueryResult;
pub const MemoryView = nixl.MemoryView;
pub const Prepared = nixl.Prepared;
pub const Request = nixl.Request;
pub const RequestCost = nixl.RequestCost;
pub const RequestTelemetry = nixl.RequestTelemetry;

const directory = @import("directory.zig");
pub const Directory = directory.Directory;
pub const DirectoryOptions = directory.DirectoryOptions;
pub const DirectoryEntry = directory.DirectoryEntry;
pub const DirectoryEntryInfo = directory.DirectoryEntryInfo;
pub const DirectoryEvent = directory.DirectoryEvent;
pub const DirectoryEvents = directory.DirectoryEvents;
pub const DirectoryChange = directory.DirectoryChange;
pub const NamedLayout = directory.NamedLayout;
pub const PublishedLayout = directory.PublishedLayout;

const statistics_of = @import("statistics.zig");
pub const Statistics = statistics_of.Statistics;
pub const MethodStatistics = statistics_of.MethodStatistics;
pub const statistics = statistics_of.statistics;
pub const methodStatistics = statistics_of.methodStatistics;
pub const statisticsText = statistics_of.statisticsText;
pub const exportTrace = statistics_of.exportTrace;
pub const serveStatistics = statistics_of.serveStatistics;

/// Functions of the CUDA driver.
pub const cuda = @import("cuda.zig");

/// A timeout that never expires, for every `timeout_ns`.
pub const forever: u64 = std.math.maxInt(u64);

/// Version of the library, such as "0.1.0".
pub fn version() [:0]const u8 {
    return std.mem.span(c.kvmem_version_string());
}

/// Version of the library's binary interface. It must equal `header_abi_version`.
pub fn abiVersion() u32 {
    return c.kvmem_abi_version();
}

/// Version of the binary interface that the wrapper was compiled with.
pub const header_abi_version: u32 = c.KVMEM_ABI_VERSION;

/// Sets the function that receives messages of the library up to a level. It runs on one thread of the library, one message
/// at a time. `context` is a pointer that it receives, and must exist until `removeLog` or the next `setLog` returns.
pub fn setLog(
    level: constants.LogLevel,
    context: anytype,
    comptime receive: fn (@TypeOf(context), constants.LogLevel, target: [:0]const u8, message: [:0]const u8) void,
    diagnostics: ?*Diagnostics,
) Error!void {
    const Receiver = struct {
        fn receiveC(at: u32, target: [*c]const u8, message: [*c]const u8, user_data: ?*anyopaque) callconv(.c) void {
            const given: @TypeOf(context) = @ptrCast(@alignCast(user_data));
            receive(given, @fromBackingInt(@intCast(at)), std.mem.span(target), std.mem.span(message));
        }
    };
    try core.call(diagnostics, c.kvmem_log_set_callback, .{ @backingInt(level), Receiver.receiveC, @as(?*anyopaque, context) });
}

/// Removes the log function. After the call it is not running.
pub fn removeLog(diagnostics: ?*Diagnostics) Error!void {
    try core.call(diagnostics, c.kvmem_log_set_callback, .{ c.KVMEM_LOG_OFF, null, null });
}

test {
    _ = @import("test.zig");
}
