// SPDX-License-Identifier: Apache-2.0
const std = @import("std");
const c = @import("c");
const core = @import("core.zig");
const constants = @import("constants.zig");
const Layout = @import("layout.zig").Layout;
const Diagnostics = core.Diagnostics;
const Error = core.Error;
const call = core.call;

/// The end of a run, layers that have moved, memory that is released, or news.
pub const Completion = extern struct {
    user_data: u64 = 0,
    /// At the end of a run: bytes moved; 0 after a failure.
    bytes: u64 = 0,
    /// Layers of the run that have moved, from the first on; 0 for requests.
    num_layers: u64 = 0,
    kind: constants.CompletionKind = .default,
    status: i32 = 0,
    /// 1 if the run no longer uses its memory.
    released: u32 = 0,
    reserved: u32 = 0,

    /// How the run failed; null if all blocks have moved. Of memory that is released: Busy if nothing will detect when.
    pub fn failure(self: Completion) ?Error {
        return core.errorOf(self.status);
    }
};

/// A queue of completions. No completion is lost, whatever the number in flight.
pub const Queue = struct {
    handle: *c.kvmem_queue,

    pub fn init(diagnostics: ?*Diagnostics) Error!Queue {
        var handle: ?*c.kvmem_queue = null;
        try call(diagnostics, c.kvmem_queue_create, .{&handle});
        return .{ .handle = handle.? };
    }

    pub fn deinit(self: Queue) void {
        c.kvmem_queue_destroy(self.handle);
    }

    /// Event fd for poll and epoll: readable while the queue has completions. Neither read nor close it.
    pub fn fd(self: Queue, diagnostics: ?*Diagnostics) Error!i32 {
        var result: i32 = -1;
        try call(diagnostics, c.kvmem_queue_get_fd, .{ self.handle, &result });
        return result;
    }

    /// Removes completions, oldest first, and returns them: the beginning of `buffer`. Never waits.
    pub fn poll(self: Queue, buffer: []Completion, diagnostics: ?*Diagnostics) Error![]Completion {
        return self.wait(0, buffer, diagnostics);
    }

    /// As `poll`, and waits for a completion if there is none.
    pub fn wait(self: Queue, timeout_ns: u64, buffer: []Completion, diagnostics: ?*Diagnostics) Error![]Completion {
        var count: usize = 0;
        try call(diagnostics, c.kvmem_queue_wait, .{ self.handle, timeout_ns, completions(buffer), buffer.len, &count });
        return buffer[0..count];
    }

    fn completions(buffer: []Completion) [*c]c.kvmem_completion {
        return @ptrCast(buffer.ptr);
    }
};

/// A block and its destination.
pub const BlockPair = extern struct { source: u32, destination: u32 };

/// Blocks of a sequence in the order of its tokens, and which of these tokens are moved.
pub const BlockTable = struct {
    blocks: []const u32,
    first_token: u64 = 0,
    token_step: u64 = 0,

    fn toC(self: BlockTable) c.kvmem_block_table {
        return .{
            .blocks = self.blocks.ptr,
            .num_blocks = self.blocks.len,
            .first_token = self.first_token,
            .token_step = self.token_step,
        };
    }
};

/// What does not change from run to run. Ranges of layers, outer slots and heads are of all if their number is 0.
pub const TransferOptions = struct {
    flags: constants.TransferFlags = .{},
    source_layer: u64 = 0,
    destination_layer: u64 = 0,
    num_layers: u64 = 0,
    source_outer: u64 = 0,
    destination_outer: u64 = 0,
    num_outers: u64 = 0,
    source_head: u64 = 0,
    destination_head: u64 = 0,
    num_heads: u64 = 0,
    /// Names of the parts to move, for layouts that were combined; none for all.
    parts: []const [*:0]const u8 = &.{},
    /// Receives a completion per run.
    queue: ?Queue = null,
    /// n: the queue also gets a completion whenever n more layers have moved, and when all have; 0 for none.
    layers_per_completion: u64 = 0,
    compute: constants.Compute = .may_run,
    max_ctas: u32 = 0,
    staging_size: u64 = 0,
    /// Method to use, or fail.
    method: constants.Method = .default,
    /// Nanoseconds without progress after which a run with a peer ends with TimedOut; 0 for 30 s with staging memory,
    /// and for no limit without.
    stall_timeout_ns: u64 = 0,

    pub fn converted(self: TransferOptions) c.kvmem_transfer_options {
        var o = core.toC(c.kvmem_transfer_options, self);
        if (self.queue) |queue| o.queue = queue.handle;
        if (self.parts.len > 0) o.parts = @ptrCast(self.parts.ptr);
        o.num_parts = self.parts.len;
        return o;
    }
};

/// What belongs to one run: its blocks, as pairs or as a table for each side.
pub const SubmitOptions = struct {
    pairs: []const BlockPair = &.{},
    source_table: ?BlockTable = null,
    destination_table: ?BlockTable = null,
    /// Tokens that are moved by block tables.
    num_tokens: u64 = 0,
    /// Nanoseconds after which the run ends with TimedOut, by any method; 0 for no limit.
    run_timeout_ns: u64 = 0,
    /// Returned in the completion.
    user_data: u64 = 0,
    /// What is checked at the end of the run.
    flags: constants.SubmitFlags = .{},
    /// Expected CRC32C of the moved parts of each block, one per pair.
    checksums: ?[]const u32 = null,
    /// Message to the remote agent, sent after the last byte has moved.
    notification: ?[]const u8 = null,
    /// Expected epochs of the source blocks, one per pair or per block of source_table. The run ends with Stale if one differs.
    epochs: ?[]const u64 = null,
};

/// C options, and the tables that they point to.
const ConvertedStep = struct {
    options: c.kvmem_submit_options,
    source: c.kvmem_block_table = .{},
    destination: c.kvmem_block_table = .{},

    fn init(self: *ConvertedStep, options: SubmitOptions, diagnostics: ?*Diagnostics) Error!void {
        self.* = .{ .options = core.toC(c.kvmem_submit_options, options) };
        const o = &self.options;
        if (options.checksums) |list| {
            if (list.len != options.pairs.len)
                return core.fail(
                    diagnostics,
                    c.KVMEM_STATUS_INVALID_ARGUMENT,
                    "checksums and pairs differ in length; give one checksum per pair, or null",
                );
            o.checksums = list.ptr;
        }
        if (options.epochs) |list| {
            const sources = if (options.source_table) |table| table.blocks.len else options.pairs.len;
            if (list.len != sources)
                return core.fail(
                    diagnostics,
                    c.KVMEM_STATUS_INVALID_ARGUMENT,
                    "epochs and source blocks differ in length; give one epoch per pair or block of source_table, or null",
                );
            o.epochs = list.ptr;
        }
        if (options.pairs.len > 0) o.pairs = @ptrCast(options.pairs.ptr);
        o.num_pairs = options.pairs.len;
        if (options.notification) |message| {
            o.notification = message.ptr;
            o.notification_size = message.len;
        }
        if (options.source_table) |table| {
            self.source = table.toC();
            o.source_table = &self.source;
        }
        if (options.destination_table) |table| {
            self.destination = table.toC();
            o.destination_table = &self.destination;
        }
    }
};

pub const TransferInfo = struct {
    bytes: u64,
    num_pieces: u64,
    num_moves: u64,
    num_requests: u64,
    duration_ns: u64,
    /// Layers of the last run that have moved, counted from the first.
    layers_moved: u64,
    method: constants.Method,
};

/// A method that was compared for a transfer.
pub const ComparedMethod = struct {
    method: constants.Method,
    choice: constants.Choice,
    /// Estimated; 0 if unknown.
    bytes_per_second: u64,
    /// The throughput is a typical value, because nothing was measured yet.
    assumed: bool,
    /// NUL-terminated; `reasonText` is the text.
    reason: [488]u8,

    /// Why the method is not used; empty if it is only slower.
    pub fn reasonText(self: *const ComparedMethod) []const u8 {
        return std.mem.sliceTo(&self.reason, 0);
    }
};

/// Name of a method, such as "CUDA kernel".
pub fn methodName(method: constants.Method) [:0]const u8 {
    return std.mem.span(c.kvmem_method_name(@backingInt(method)));
}

/// Moves of blocks from one layout to another: created once, submitted any number of times, with other blocks in each run or
/// with the same. It keeps both layouts alive. One run is in flight at a time.
pub const Transfer = struct {
    handle: *c.kvmem_transfer,

    /// Creates a transfer. Moves nothing.
    pub fn init(source: Layout, destination: Layout, options: TransferOptions, diagnostics: ?*Diagnostics) Error!Transfer {
        const o = options.converted();
        var handle: ?*c.kvmem_transfer = null;
        try call(diagnostics, c.kvmem_transfer_create, .{ source.handle, destination.handle, &o, &handle });
        return .{ .handle = handle.? };
    }

    /// Creates a transfer and starts its first run.
    pub fn start(
        source: Layout,
        destination: Layout,
        options: TransferOptions,
        first: SubmitOptions,
        diagnostics: ?*Diagnostics,
    ) Error!Transfer {
        const o = options.converted();
        var step: ConvertedStep = undefined;
        try step.init(first, diagnostics);
        var handle: ?*c.kvmem_transfer = null;
        try call(diagnostics, c.kvmem_transfer_start, .{ source.handle, destination.handle, &o, &step.options, &handle });
        return .{ .handle = handle.? };
    }

    fn cudaStream(stream: core.Stream) ?*c.struct_CUstream_st {
        return @ptrCast(stream);
    }

    /// Destroys the handle. A run in flight continues, and keeps what it uses alive: `wait` before blocks are reused.
    pub fn deinit(self: Transfer) void {
        c.kvmem_transfer_destroy(self.handle);
    }

    /// Prepares the blocks of the next run, which `submit` without blocks starts. Moves nothing.
    pub fn prepare(self: Transfer, options: SubmitOptions, diagnostics: ?*Diagnostics) Error!void {
        var step: ConvertedStep = undefined;
        try step.init(options, diagnostics);
        try call(diagnostics, c.kvmem_transfer_prepare, .{ self.handle, &step.options });
    }

    /// Starts a run with these blocks; null for those that were prepared or submitted last.
    pub fn submit(self: Transfer, options: ?SubmitOptions, diagnostics: ?*Diagnostics) Error!void {
        var step: ConvertedStep = undefined;
        if (options) |given| try step.init(given, diagnostics);
        const o: ?*const c.kvmem_submit_options = if (options == null) null else &step.options;
        try call(diagnostics, c.kvmem_transfer_submit, .{ self.handle, o });
    }

    /// As `submit`, on a CUDA stream, or makes the run a part of the graph that the stream is captured into.
    pub fn submitOnStream(
        self: Transfer,
        options: ?SubmitOptions,
        stream: core.Stream,
        diagnostics: ?*Diagnostics,
    ) Error!void {
        var step: ConvertedStep = undefined;
        if (options) |given| try step.init(given, diagnostics);
        const o: ?*const c.kvmem_submit_options = if (options == null) null else &step.options;
        try call(diagnostics, c.kvmem_transfer_submit_on_stream, .{ self.handle, o, cudaStream(stream) });
    }

    /// Makes a CUDA stream wait for layers of the last run; 0 for the whole run.
    pub fn waitOnStream(self: Transfer, num_layers: u64, stream: core.Stream, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_transfer_wait_on_stream, .{ self.handle, num_layers, cudaStream(stream) });
    }

    /// Returns whether the last run has ended, or how it failed. Never waits.
    pub fn poll(self: Transfer, diagnostics: ?*Diagnostics) Error!bool {
        return try core.callStatus(diagnostics, c.kvmem_transfer_poll, .{self.handle}) == c.KVMEM_STATUS_OK;
    }

    /// Waits for the end of the last run. After TimedOut, `poll` returns false if the run is still in flight, and fails if the
    /// run has ended at its deadline.
    pub fn wait(self: Transfer, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_transfer_wait, .{ self.handle, timeout_ns });
    }

    /// Cancels the parts of the last run that have not started. Never waits.
    pub fn cancel(self: Transfer, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_transfer_cancel, .{self.handle});
    }

    /// Waits until the first layers of the last run have moved; 0 for all.
    pub fn waitLayers(self: Transfer, num_layers: u64, timeout_ns: u64, diagnostics: ?*Diagnostics) Error!void {
        try call(diagnostics, c.kvmem_transfer_wait_layers, .{ self.handle, num_layers, timeout_ns });
    }

    pub fn info(self: Transfer, diagnostics: ?*Diagnostics) Error!TransferInfo {
        return core.get(TransferInfo, c.kvmem_transfer_info, diagnostics, c.kvmem_transfer_get_info, .{self.handle});
    }

    /// The methods that were compared, beginning with the one that the transfer takes: the beginning of `buffer`.
    pub fn methods(self: Transfer, buffer: []ComparedMethod, diagnostics: ?*Diagnostics) Error![]ComparedMethod {
        var found: [16]c.kvmem_compared_method = undefined;
        var count: usize = 0;
        try call(diagnostics, c.kvmem_transfer_get_methods, .{ self.handle, &found, found.len, &count });
        const filled = @min(count, buffer.len, found.len);
        for (buffer[0..filled], found[0..filled]) |*to, from| to.* = core.fromC(ComparedMethod, from);
        return buffer[0..filled];
    }

    /// The indices of the pairs, or of the moved tokens of block tables, that differ after the last run, which has compared them:
    /// those that fit `buffer`.
    pub fn mismatches(self: Transfer, buffer: []u64, diagnostics: ?*Diagnostics) Error![]u64 {
        var count: usize = 0;
        try call(diagnostics, c.kvmem_transfer_get_mismatches, .{ self.handle, buffer.ptr, buffer.len, &count });
        return buffer[0..@min(count, buffer.len)];
    }

    /// The checksums that the last run has computed, with the flag `checksum`: those that fit `buffer`.
    pub fn checksums(self: Transfer, buffer: []u32, diagnostics: ?*Diagnostics) Error![]u32 {
        var count: usize = 0;
        try call(diagnostics, c.kvmem_transfer_get_checksums, .{ self.handle, buffer.ptr, buffer.len, &count });
        return buffer[0..@min(count, buffer.len)];
    }

    /// Text for people, with a line per method that was compared.
    pub fn explain(self: Transfer, diagnostics: ?*Diagnostics) Error!core.Blob {
        return core.getBlob(diagnostics, c.kvmem_transfer_explain, .{self.handle});
    }
};
