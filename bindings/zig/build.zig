// SPDX-License-Identifier: Apache-2.0
const std = @import("std");

pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{});
    const optimize = b.standardOptimizeOption(.{});

    // The private C layer: the headers, translated. pkg-config finds them and the library.
    const headers = b.addTranslateC(.{
        .root_source_file = b.path("src/c.h"),
        .target = target,
        .optimize = optimize,
    });
    headers.linkSystemLibrary("kvmem", .{});

    const module = b.addModule("kvmem", .{
        .root_source_file = b.path("src/kvmem.zig"),
        .target = target,
        .optimize = optimize,
        .link_libc = true,
        .imports = &.{.{ .name = "c", .module = headers.createModule() }},
    });

    const tests = b.addTest(.{ .root_module = module });
    const run_tests = b.addRunArtifact(tests);
    run_tests.has_side_effects = true;
    b.step("test", "Run the unit tests of the wrapper").dependOn(&run_tests.step);
}
