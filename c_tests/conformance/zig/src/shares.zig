// SPDX-License-Identifier: Apache-2.0
//! Shares and brokers.
const std = @import("std");
const kvmem = @import("kvmem");
const constants = kvmem.constants;
const Step = @import("step.zig").Step;
const Fault = @import("step.zig").Fault;
const calls = @import("calls.zig");
const Outcome = calls.Outcome;

pub const table = .{
    .{ "share_create_region", shareRegion },     .{ "share_create_layout", shareLayout },
    .{ "share_create_received", shareReceived }, .{ "share_get_info", shareInfo },
    .{ "share_open_region", openRegion },        .{ "share_open_layout", openLayout },
    .{ "broker_create", brokerCreate },          .{ "broker_publish", brokerPublish },
    .{ "broker_grant", brokerGrant },            .{ "broker_unpublish", brokerUnpublish },
    .{ "broker_get_info", brokerInfo },          .{ "share_fetch", shareFetch },
};

fn shareOptions(s: *Step) Fault!kvmem.ShareOptions {
    return .{
        .flags = try s.flags(constants.ShareFlags, "flags"),
        .transport = try s.constant(constants.Transport, "transport", ""),
    };
}

fn shareRegion(s: *Step) Outcome!void {
    try calls.free(s);
    const region = try s.object(.region, s.in.get("region") orelse "");
    try s.state.add(s.name, .{ .share = try kvmem.Share.initRegion(region, try shareOptions(s), &s.diagnostics) });
}

fn shareLayout(s: *Step) Outcome!void {
    try calls.free(s);
    const layout = try s.object(.layout, s.in.get("layout") orelse "");
    try s.state.add(s.name, .{ .share = try kvmem.Share.initLayout(layout, try shareOptions(s), &s.diagnostics) });
}

fn shareReceived(s: *Step) Outcome!void {
    try calls.free(s);
    const sent = try s.object(.share, s.in.get("share") orelse "");
    const data = try s.gpa().dupe(u8, try sent.data(&s.diagnostics));
    if (s.in.get("flip")) |at| data[try s.parse(at)] ^= 0xff;
    const fds = try sent.fds(&s.diagnostics);
    try s.state.add(s.name, .{ .share = try kvmem.Share.initReceived(data, fds, &s.diagnostics) });
}

fn shareInfo(s: *Step) Outcome!void {
    try s.putAll(try (try s.object(.share, s.name)).info(&s.diagnostics));
}

fn openRegion(s: *Step) Outcome!void {
    try calls.free(s);
    const share = try s.object(.share, s.in.get("share") orelse "");
    const flags = try s.flags(constants.OpenFlags, "flags");
    try s.state.add(s.name, .{ .region = try share.openRegion(.{ .flags = flags }, &s.diagnostics) });
}

fn openLayout(s: *Step) Outcome!void {
    try calls.free(s);
    const share = try s.object(.share, s.in.get("share") orelse "");
    const flags = try s.flags(constants.OpenFlags, "flags");
    const agent: ?kvmem.Agent = if (s.in.get("agent")) |name| try s.object(.agent, name) else null;
    try s.state.add(s.name, .{ .layout = try share.openLayout(.{ .flags = flags, .agent = agent }, &s.diagnostics) });
}

fn brokerCreate(s: *Step) Outcome!void {
    try calls.free(s);
    try s.state.add(s.name, .{ .broker = try kvmem.Broker.init(.{ .path = s.path("path") }, &s.diagnostics) });
}

fn publishOptions(s: *Step) Fault!kvmem.PublishOptions {
    return .{ .flags = try s.flags(constants.PublishFlags, "flags"), .max_uses = try s.number("max_uses") };
}

fn storeToken(s: *Step, name: []const u8, token: kvmem.Token) Outcome!void {
    try s.state.tokens.append(s.gpa(), .{ .name = try s.gpa().dupe(u8, name), .token = token });
}

fn brokerPublish(s: *Step) Outcome!void {
    const broker = try s.object(.broker, s.name);
    const share = try s.object(.share, s.in.get("share") orelse "");
    const name, const stored = .{ s.text("name") orelse "", s.in.get("token") orelse "" };
    try storeToken(s, stored, try broker.publish(name, share, try publishOptions(s), &s.diagnostics));
}

fn brokerGrant(s: *Step) Outcome!void {
    const broker = try s.object(.broker, s.name);
    const name, const stored = .{ s.text("name") orelse "", s.in.get("token") orelse "" };
    try storeToken(s, stored, try broker.grant(name, try publishOptions(s), &s.diagnostics));
}

fn brokerUnpublish(s: *Step) Outcome!void {
    try (try s.object(.broker, s.name)).unpublish(s.text("name") orelse "", &s.diagnostics);
}

fn brokerInfo(s: *Step) Outcome!void {
    try s.putAll(try (try s.object(.broker, s.name)).info(&s.diagnostics));
}

fn shareFetch(s: *Step) Outcome!void {
    try calls.free(s);
    const wanted = s.in.get("token") orelse "";
    const token = for (s.state.tokens.items) |stored| {
        if (std.mem.eql(u8, stored.name, wanted)) break stored.token;
    } else return s.fail("there is no token {s}", .{wanted});
    const share = try kvmem.Share.fetch(.{
        .flags = try s.flags(constants.FetchFlags, "flags"),
        .path = s.path("path"),
        .name = s.text("name"),
        .token = token,
    }, 10 * std.time.ns_per_s, &s.diagnostics);
    try s.state.add(s.name, .{ .share = share });
}
