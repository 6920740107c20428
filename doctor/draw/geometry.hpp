// SPDX-License-Identifier: Apache-2.0
// Counts, strides and regions of the axes of a layout.
#pragma once

#include <kvmem.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace doctor {

struct Axis {
    char letter = 0;
    std::string_view name;
    std::uint64_t count = 1;
    /// Bytes from one index to the next; 0 if each index has regions of its own.
    std::uint64_t stride = 0;
    /// Bytes from the end of what an index contains to the next index.
    std::uint64_t padding = 0;
    /// Regions from one index to the next; 0 if its indices share regions.
    std::uint64_t region_step = 0;
};

struct Geometry {
    std::string order;
    /// What the blocks contain; may be empty, and have any bytes.
    std::string identity;
    /// The axes of the order, from the outermost to the innermost.
    std::vector<Axis> axes;
    std::uint64_t num_blocks = 0;
    std::uint64_t num_regions = 0;
    std::uint64_t region_size = 0;
    /// Contiguous bytes of one head of one token.
    std::uint64_t row_size = 0;

    /// Throws kvmem::Error, with what is wrong in the shape.
    explicit Geometry(const kvmem::LayoutConfig &config);

    /// NULL if the order does not name it.
    const Axis *find(char letter) const;
    bool is_within_regions(const Axis &axis) const { return axis.region_step == 0; }
};

}  // namespace doctor
