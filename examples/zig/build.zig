// SPDX-License-Identifier: Apache-2.0
const std = @import("std");

pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{});
    const optimize = b.standardOptimizeOption(.{});
    const kvmem = b.dependency("kvmem", .{ .target = target, .optimize = optimize });
    const exe = b.addExecutable(.{
        .name = "engine",
        .root_module = b.createModule(.{
            .root_source_file = b.path("src/main.zig"),
            .target = target,
            .optimize = optimize,
            .imports = &.{.{ .name = "kvmem", .module = kvmem.module("kvmem") }},
        }),
    });
    b.installArtifact(exe);
    b.step("run", "Run the program").dependOn(&b.addRunArtifact(exe).step);
}
