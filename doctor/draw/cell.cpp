// SPDX-License-Identifier: Apache-2.0
#include "cell.hpp"

#include "../report/text.hpp"

#include <algorithm>

namespace doctor {

namespace {

constexpr std::uint32_t gap = 3;
constexpr std::uint32_t border = 4;
constexpr std::uint32_t header = 14;
constexpr std::uint32_t bar_height = 16;
// An estimate: the widest of the usual fonts at this size.
constexpr std::uint32_t character = 6;

struct Colours {
    std::string_view fill, line, line_width;
};

Colours colours_of(const Style &style) {
    switch (style.kind) {
    case CellKind::group:
    case CellKind::gap: break;
    case CellKind::region: return {"#f8fafc", "#334155", "1.5"};
    case CellKind::collapsed: return {"#f1f5f9", "#94a3b8", "1"};
    case CellKind::plain: return {"#ffffff", "#94a3b8", "1"};
    case CellKind::highlighted: return {"#fff7e0", "#d97706", "2"};
    case CellKind::row:
        if (style.is_first_outer) {
            return style.is_of_block ? Colours{"#60a5fa", "#1d4ed8", "1"} : Colours{"#dbeafe", "#93c5fd", "1"};
        }
        return style.is_of_block ? Colours{"#4ade80", "#15803d", "1"} : Colours{"#dcfce7", "#86efac", "1"};
    case CellKind::padding: return {"url(#hatch)", "#9ca3af", "1"};
    }
    return {"none", "none", "0"};
}

}  // namespace

const std::string_view hatch =
    R"(<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" )"
    R"_(patternTransform="rotate(45)"><rect width="6" height="6" fill="#f3f4f6"/><line x1="0" )_"
    R"(y1="0" x2="0" y2="6" stroke="#9ca3af" stroke-width="2"/></pattern></defs>)"
    "\n";

void attribute(std::string &svg, std::string_view name, std::string_view value) {
    svg.append(" ").append(name).append("=\"").append(value).append("\"");
}

void attribute(std::string &svg, std::string_view name, std::uint32_t value) {
    attribute(svg, name, std::to_string(value));
}

Size Cell::measure() {
    Size sum, most;
    for (Cell &cell : cells_) {
        const Size size = cell.measure();
        sum = {sum.width + size.width, sum.height + size.height};
        most = {std::max(most.width, size.width), std::max(most.height, size.height)};
    }
    const auto label = static_cast<std::uint32_t>(columns(label_)) * character + 2 * border;
    const auto gaps = cells_.empty() ? 0 : gap * static_cast<std::uint32_t>(cells_.size() - 1);
    const Size content = direction_ == Direction::right ? Size{sum.width + gaps, most.height}
                                                        : Size{most.width, sum.height + gaps};
    if (cells_.empty()) {
        size_ = {label, bar_height};
    } else if (style_.kind == CellKind::group) {
        size_ = content;
    } else {
        size_ = {std::max(content.width + 2 * border, label), content.height + header + 2 * border};
    }
    return size_;
}

void Cell::draw(std::string &svg, std::uint32_t x, std::uint32_t y) const {
    const Colours colours = colours_of(style_);
    if (colours.line != "none") {
        svg += "<rect";
        attribute(svg, "x", x);
        attribute(svg, "y", y);
        attribute(svg, "width", size_.width);
        attribute(svg, "height", size_.height);
        attribute(svg, "rx", "2");
        attribute(svg, "fill", colours.fill);
        attribute(svg, "stroke", colours.line);
        attribute(svg, "stroke-width", colours.line_width);
        svg += "/>\n";
    }
    if (!label_.empty()) {
        svg += "<text";
        attribute(svg, "x", x + border);
        attribute(svg, "y", y + 11);
        attribute(svg, "font-weight", style_.kind == CellKind::highlighted ? "bold" : "normal");
        svg.append(">").append(label_).append("</text>\n");
    }
    if (style_.kind != CellKind::group) {
        x += border;
        y += header + border;
    }
    for (const Cell &cell : cells_) {
        cell.draw(svg, x, y);
        (direction_ == Direction::right ? x : y) +=
            gap + (direction_ == Direction::right ? cell.size_.width : cell.size_.height);
    }
}

}  // namespace doctor
