// SPDX-License-Identifier: Apache-2.0
//! Queues and transfers.
const std = @import("std");
const kvmem = @import("kvmem");
const constants = kvmem.constants;
const Step = @import("step.zig").Step;
const Fault = @import("step.zig").Fault;
const calls = @import("calls.zig");
const Outcome = calls.Outcome;

pub const table = .{
    .{ "queue_create", queueCreate },       .{ "queue_poll", queuePoll },
    .{ "queue_wait", queueWait },           .{ "transfer_create", transferCreate },
    .{ "transfer_start", transferStart },   .{ "transfer_prepare", transferPrepare },
    .{ "transfer_submit", transferSubmit }, .{ "transfer_poll", transferPoll },
    .{ "transfer_wait", transferWait },     .{ "transfer_wait_layers", transferWaitLayers },
    .{ "transfer_get_info", transferInfo }, .{ "transfer_get_methods", usedMethod },
};

fn queueCreate(s: *Step) Outcome!void {
    try calls.free(s);
    try s.state.add(s.name, .{ .queue = try kvmem.Queue.init(&s.diagnostics) });
}

fn putCompletions(s: *Step, completions: []const kvmem.Completion) Outcome!void {
    var text: std.ArrayList(u8) = .empty;
    for (completions, 0..) |completion, i| {
        if (i > 0) try text.append(s.gpa(), ',');
        const status = if (completion.failure()) |failure| calls.nameOf(failure) else "OK";
        if (completion.kind == .layers_moved) {
            try text.appendSlice(s.gpa(), try std.fmt.allocPrint(s.gpa(), "{d}:layers:{d}", .{
                completion.user_data, completion.num_layers,
            }));
        } else try text.appendSlice(s.gpa(), try std.fmt.allocPrint(s.gpa(), "{d}:{d}:{s}", .{
            completion.user_data, completion.bytes, status,
        }));
    }
    try s.put("completions", text.items);
}

fn queuePoll(s: *Step) Outcome!void {
    const queue = try s.object(.queue, s.name);
    const buffer = try s.gpa().alloc(kvmem.Completion, try s.number("capacity"));
    try putCompletions(s, try queue.poll(buffer, &s.diagnostics));
}

fn queueWait(s: *Step) Outcome!void {
    const queue = try s.object(.queue, s.name);
    const buffer = try s.gpa().alloc(kvmem.Completion, try s.number("capacity"));
    try putCompletions(s, try queue.wait(try s.numberOr("timeout_ns", kvmem.forever), buffer, &s.diagnostics));
}

fn readPairs(s: *Step) Fault![]const kvmem.BlockPair {
    var list: std.ArrayList(kvmem.BlockPair) = .empty;
    var words = std.mem.tokenizeScalar(u8, s.in.get("pairs") orelse "", ',');
    while (words.next()) |word| {
        const source, const destination = try s.pair(word);
        try list.append(s.gpa(), .{
            .source = @intCast(try s.parse(source)),
            .destination = @intCast(try s.parse(destination)),
        });
    }
    return list.items;
}

fn readTable(s: *Step, comptime side: []const u8) Fault!?kvmem.BlockTable {
    const first, const step = .{ try s.number(side ++ "_first"), try s.number(side ++ "_step") };
    const blocks = try s.numbers(side ++ "_blocks") orelse return null;
    return .{ .blocks = blocks, .first_token = first, .token_step = step };
}

fn partNames(s: *Step) Fault![]const [*:0]const u8 {
    var list: std.ArrayList([*:0]const u8) = .empty;
    var words = std.mem.tokenizeScalar(u8, s.in.get("parts") orelse "", ',');
    while (words.next()) |word| try list.append(s.gpa(), try s.gpa().dupeSentinel(u8, word, 0));
    return list.items;
}

pub fn options(s: *Step) Fault!kvmem.TransferOptions {
    var result: kvmem.TransferOptions = .{
        .flags = try s.flags(constants.TransferFlags, "flags"),
        .method = try s.constant(constants.Method, "method", ""),
        .parts = try partNames(s),
    };
    inline for (.{
        "source_layer", "destination_layer", "num_layers",       "source_outer", "destination_outer",
        "num_outers",   "source_head",       "destination_head", "num_heads",    "layers_per_completion",
    }) |name| @field(result, name) = try s.number(name);
    if (s.in.get("queue")) |name| result.queue = try s.object(.queue, name);
    return result;
}

fn submitOptions(s: *Step) Fault!kvmem.SubmitOptions {
    return .{
        .pairs = try readPairs(s),
        .flags = try s.flags(constants.SubmitFlags, "submit_flags"),
        .source_table = try readTable(s, "source"),
        .destination_table = try readTable(s, "destination"),
        .num_tokens = try s.number("num_tokens"),
        .user_data = try s.number("user_data"),
        .notification = s.in.get("notification"),
        .checksums = try s.numbers("checksums"),
        .epochs = try s.wideNumbers("epochs"),
    };
}

fn layout(s: *Step, key: []const u8) Fault!kvmem.Layout {
    return s.object(.layout, s.in.get(key) orelse "");
}

fn transferCreate(s: *Step) Outcome!void {
    try calls.free(s);
    const source, const destination = .{ try layout(s, "source"), try layout(s, "destination") };
    const made = try kvmem.Transfer.init(source, destination, try options(s), &s.diagnostics);
    try s.state.add(s.name, .{ .transfer = made });
}

fn transferStart(s: *Step) Outcome!void {
    try calls.free(s);
    const source, const destination = .{ try layout(s, "source"), try layout(s, "destination") };
    const made = try kvmem.Transfer.start(source, destination, try options(s), try submitOptions(s), &s.diagnostics);
    try s.state.add(s.name, .{ .transfer = made });
}

fn transfer(s: *Step) Fault!kvmem.Transfer {
    return s.object(.transfer, s.name);
}

fn transferPrepare(s: *Step) Outcome!void {
    try (try transfer(s)).prepare(try submitOptions(s), &s.diagnostics);
}

fn transferSubmit(s: *Step) Outcome!void {
    const step = try submitOptions(s);
    const is_prepared = step.pairs.len == 0 and step.source_table == null and step.destination_table == null;
    try (try transfer(s)).submit(if (is_prepared) null else step, &s.diagnostics);
}

fn transferPoll(s: *Step) Outcome!void {
    if (!try (try transfer(s)).poll(&s.diagnostics)) return error.InProgress;
}

fn transferWait(s: *Step) Outcome!void {
    try (try transfer(s)).wait(try s.numberOr("timeout_ns", kvmem.forever), &s.diagnostics);
}

fn transferWaitLayers(s: *Step) Outcome!void {
    const num_layers, const timeout = .{ try s.number("num_layers"), try s.numberOr("timeout_ns", kvmem.forever) };
    try (try transfer(s)).waitLayers(num_layers, timeout, &s.diagnostics);
}

fn transferInfo(s: *Step) Outcome!void {
    try s.putAll(try (try transfer(s)).info(&s.diagnostics));
}

fn usedMethod(s: *Step) Outcome!void {
    var buffer: [1]kvmem.ComparedMethod = undefined;
    const used = (try (try transfer(s)).methods(&buffer, &s.diagnostics))[0];
    try s.putAll(used);
}
