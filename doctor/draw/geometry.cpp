// SPDX-License-Identifier: Apache-2.0
#include "geometry.hpp"

#include <algorithm>

namespace doctor {

namespace {

Axis axis_of(char letter, const kvmem::LayoutConfig &config) {
    const std::uint64_t heads = std::max<std::uint64_t>(config.num_heads, 1);
    switch (letter) {
    case 'B': return {letter, "block", config.num_blocks, config.block_stride};
    case 'L': return {letter, "layer", config.num_layers, config.layer_stride};
    case 'O': return {letter, "outer slot", config.outer_dim, config.outer_stride};
    case 'N': return {letter, "token", config.page_size, config.token_stride};
    case 'H': return {letter, "head", heads, config.head_stride};
    default: return {letter, "element", config.inner_dim / heads, config.element_stride};
    }
}

}  // namespace

// The library checks the shape, so that no sum or product here is out of range.
Geometry::Geometry(const kvmem::LayoutConfig &config) : order(config.order), identity(config.identity) {
    const auto requirements = kvmem::layout_requirements(config);
    num_blocks = config.num_blocks;
    num_regions = requirements.num_regions;
    region_size = requirements.region_size;
    const std::size_t slash = order.find('/');
    for (const char letter : order) {
        if (letter != '/') axes.push_back(axis_of(letter, config));
    }
    const auto within = axes.begin() + static_cast<std::ptrdiff_t>(slash == std::string::npos ? 0 : slash);
    std::uint64_t step = 1;
    for (auto axis = within; axis-- != axes.begin(); step *= axis->count) axis->region_step = step;
    // Tight strides, as docs/layouts.md defines them.
    const std::uint64_t alignment = std::max<std::uint64_t>(config.alignment, 1);
    std::uint64_t content = config.dtype_width, tight = content;
    for (auto axis = axes.end(); axis-- != within;) {
        if (axis->letter == 'B') tight = (tight + alignment - 1) / alignment * alignment;
        if (!axis->stride) axis->stride = tight;
        axis->padding = axis->stride > content ? axis->stride - content : 0;
        content = axis->stride * axis->count;
        tight = axis->count == 1 ? std::max(content, tight) : content;
    }
    const Axis elements = axis_of('C', config);
    const Axis *const placed = find('C');
    const bool is_contiguous = elements.count == 1 || (placed && placed->stride == config.dtype_width);
    row_size = is_contiguous ? elements.count * config.dtype_width : config.dtype_width;
}

const Axis *Geometry::find(char letter) const {
    const auto found = std::find_if(axes.begin(), axes.end(), [&](const Axis &axis) { return axis.letter == letter; });
    return found == axes.end() ? nullptr : &*found;
}

}  // namespace doctor
