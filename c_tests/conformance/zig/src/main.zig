// SPDX-License-Identifier: Apache-2.0
//! Runs the conformance tables through the Zig package; see ../../README.md.
const std = @import("std");
const kvmem = @import("kvmem");
const Step = @import("step.zig").Step;
const State = @import("state.zig").State;

pub fn main(init: std.process.Init) !void {
    const arguments = try init.minimal.args.toSlice(init.arena.allocator());
    for (arguments[1..]) |path| {
        if (!try runTable(init.io, path)) std.process.exit(1);
    }
}

/// Returns whether all steps passed. All memory of a case is in one arena.
fn runTable(io: std.Io, path: []const u8) !bool {
    var file_arena: std.heap.ArenaAllocator = .init(std.heap.c_allocator);
    defer file_arena.deinit();
    const text = try std.Io.Dir.cwd().readFileAlloc(io, path, file_arena.allocator(), .limited(1 << 20));
    var cases: usize = 0;
    var steps: usize = 0;
    var number: usize = 0;
    var state: State = .init(io);
    defer state.end();
    var lines = std.mem.splitScalar(u8, text, '\n');
    while (lines.next()) |line| {
        number += 1;
        if (line.len == 0 or line[0] == '#') continue;
        if (std.mem.startsWith(u8, line, "case ")) {
            state.end();
            try state.begin();
            cases += 1;
            continue;
        }
        steps += 1;
        var step: Step = .{ .state = &state };
        step.run(line) catch |failure| {
            std.debug.print("{s}:{d}: {s} ({t})\n", .{ path, number, step.fault, failure });
            return false;
        };
    }
    var buffer: [256]u8 = undefined;
    const report = try std.fmt.bufPrint(&buffer, "{s}: {d} cases, {d} steps\n", .{ std.fs.path.basename(path), cases, steps });
    try std.Io.File.stdout().writeStreamingAll(io, report);
    return true;
}
