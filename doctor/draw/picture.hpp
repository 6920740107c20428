// SPDX-License-Identifier: Apache-2.0
// A picture of a layout as SVG: the axes as nested boxes, their strides, padding, and one block highlighted.
#pragma once

#include "geometry.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace doctor {

/// A part of a layout. That of a layout without parts has no name.
struct Part {
    std::string name;
    Geometry geometry;
};

/// The picture of some parts, one below the other, with one block highlighted in each.
std::string picture_of(const std::vector<Part> &parts, std::uint64_t block);

}  // namespace doctor
