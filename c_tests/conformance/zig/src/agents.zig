// SPDX-License-Identifier: Apache-2.0
//! Agents and registrations, and layouts that peers access.
const std = @import("std");
const kvmem = @import("kvmem");
const constants = kvmem.constants;
const Step = @import("step.zig").Step;
const Fault = @import("step.zig").Fault;
const calls = @import("calls.zig");
const Outcome = calls.Outcome;

pub const table = .{
    .{ "agent_create", agentCreate },                           .{ "agent_name", agentName },
    .{ "agent_create_backend", createBackend },                 .{ "agent_get_backends", getBackends },
    .{ "agent_get_local_metadata", localMetadata },             .{ "agent_load_remote_metadata", loadMetadata },
    .{ "agent_check_remote_metadata", checkMetadata },          .{ "agent_invalidate_remote_metadata", invalidate },
    .{ "agent_invalidate_all_remote_metadata", invalidateAll }, .{ "agent_notify", notify },
    .{ "agent_take_notifications", takeNotifications },         .{ "region_register", register },
    .{ "region_get_agent", regionAgent },                       .{ "registration_get_info", registrationInfo },
    .{ "layout_export", exportLayout },                         .{ "layout_import", importLayout },
};

fn agent(s: *Step) Fault!kvmem.Agent {
    return s.object(.agent, s.name);
}

fn namedAgent(s: *Step) Fault!kvmem.Agent {
    return s.object(.agent, s.in.get("agent") orelse "");
}

/// Stores the bytes of a blob under a name, and destroys the blob.
fn store(s: *Step, name: []const u8, blob: kvmem.Blob) Outcome!void {
    defer blob.deinit();
    const gpa = s.gpa();
    try s.state.bytes.append(gpa, .{ .name = try gpa.dupe(u8, name), .bytes = try gpa.dupe(u8, blob.bytes()) });
}

/// Bytes that an earlier step has stored; `flip` inverts one of them.
fn stored(s: *Step, key: []const u8) Fault![]const u8 {
    const name = s.in.get(key) orelse "";
    var left = s.state.bytes.items.len;
    while (left > 0) : (left -= 1) {
        const found = s.state.bytes.items[left - 1];
        if (!std.mem.eql(u8, found.name, name)) continue;
        const bytes = try s.gpa().dupe(u8, found.bytes);
        if (s.in.get("flip")) |at| bytes[try s.parse(at)] ^= 0xff;
        return bytes;
    }
    return s.fail("no bytes are stored as {s}", .{name});
}

fn agentCreate(s: *Step) Outcome!void {
    try calls.free(s);
    const flags = try s.flags(constants.AgentFlags, "flags");
    const created = try kvmem.Agent.init(s.text("name") orelse "", .{ .flags = flags }, &s.diagnostics);
    try s.state.add(s.name, .{ .agent = created });
}

fn agentName(s: *Step) Outcome!void {
    try s.put("name", (try agent(s)).name());
}

fn createBackend(s: *Step) Outcome!void {
    try (try agent(s)).createBackend(s.text("plugin") orelse "", &.{}, &s.diagnostics);
}

fn getBackends(s: *Step) Outcome!void {
    const backends: kvmem.Plugins = try .ofAgent(try agent(s), &s.diagnostics);
    defer backends.deinit();
    var text: std.ArrayList(u8) = .empty;
    for (0..backends.count()) |i| {
        if (i > 0) try text.append(s.gpa(), ',');
        try text.appendSlice(s.gpa(), backends.get(i).name);
    }
    try s.put("names", text.items);
}

// ---- registrations ----

fn register(s: *Step) Outcome!void {
    try calls.free(s);
    const region = try s.object(.region, s.in.get("region") orelse "");
    try s.state.add(s.name, .{ .registration = try region.register(try namedAgent(s), &s.diagnostics) });
}

fn registrationInfo(s: *Step) Outcome!void {
    try s.putAll(try (try s.object(.registration, s.name)).info(&s.diagnostics));
}

fn regionAgent(s: *Step) Outcome!void {
    const region = try s.object(.region, s.name);
    try s.putBlob("agent", try region.agentName(try s.number("index"), &s.diagnostics));
}

// ---- metadata and descriptors ----

fn localMetadata(s: *Step) Outcome!void {
    const name = s.in.get("metadata") orelse "";
    try store(s, name, try (try agent(s)).metadata(&s.diagnostics));
}

fn loadMetadata(s: *Step) Outcome!void {
    try s.putBlob("peer", try (try agent(s)).loadPeer(try stored(s, "metadata"), &s.diagnostics));
}

fn checkMetadata(s: *Step) Outcome!void {
    try (try agent(s)).checkPeer(s.text("peer") orelse "", &s.diagnostics);
}

fn invalidate(s: *Step) Outcome!void {
    try (try agent(s)).invalidatePeer(s.text("peer") orelse "", &s.diagnostics);
}

fn invalidateAll(s: *Step) Outcome!void {
    try s.put("count", try (try agent(s)).invalidateAllPeers(&s.diagnostics));
}

fn exportLayout(s: *Step) Outcome!void {
    const name = s.in.get("descriptor") orelse "";
    try store(s, name, try (try s.object(.layout, s.name)).exportDescriptor(&s.diagnostics));
}

fn importLayout(s: *Step) Outcome!void {
    try calls.free(s);
    const imported = try kvmem.Layout.import(try namedAgent(s), try stored(s, "descriptor"), &s.diagnostics);
    try s.state.add(s.name, .{ .layout = imported });
}

// ---- notifications ----

fn notify(s: *Step) Outcome!void {
    const peer, const message = .{ s.text("peer") orelse "", s.in.get("message") orelse "" };
    try (try agent(s)).notify(peer, message, &s.diagnostics);
}

fn takeNotifications(s: *Step) Outcome!void {
    const taken = try (try agent(s)).takeNotifications(try s.numberOr("timeout_ns", kvmem.forever), &s.diagnostics);
    defer taken.deinit();
    var text: std.ArrayList(u8) = .empty;
    for (0..taken.count()) |i| {
        if (i > 0) try text.append(s.gpa(), ',');
        const one = taken.get(i);
        try text.appendSlice(s.gpa(), try std.fmt.allocPrint(s.gpa(), "{s}:{s}", .{ one.agent, one.data }));
    }
    try s.put("notifications", text.items);
}
