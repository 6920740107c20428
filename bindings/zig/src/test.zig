// SPDX-License-Identifier: Apache-2.0
//! The unit tests, one file per noun.
test {
    _ = @import("test/constants.zig");
    _ = @import("test/core.zig");
    _ = @import("test/region.zig");
    _ = @import("test/layout.zig");
    _ = @import("test/transfer.zig");
    _ = @import("test/store.zig");
    _ = @import("test/share.zig");
    _ = @import("test/agent.zig");
    _ = @import("test/directory.zig");
    _ = @import("test/nixl.zig");
    _ = @import("test/cuda.zig");
}
