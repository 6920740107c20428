// SPDX-License-Identifier: Apache-2.0
// Nested boxes of a picture: their sizes, places and colours.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace doctor {

/// Where the content of a box goes on.
enum class Direction { right, down };

enum class CellKind {
    /// Nothing by itself: boxes beside each other.
    group,
    region,
    /// A region whose content is like that of the first.
    collapsed,
    /// An index of an axis.
    plain,
    /// The highlighted block.
    highlighted,
    /// Contiguous bytes of an outer slot.
    row,
    /// Bytes that are not in the layout.
    padding,
    /// Indices that are left out.
    gap,
};

struct Style {
    CellKind kind = CellKind::group;
    /// Of a row: whether it is of the first outer slot, and whether it is of the highlighted block.
    bool is_first_outer = false;
    bool is_of_block = false;

    Style(CellKind each) : kind(each) {}
    static Style row(bool is_first_outer, bool is_of_block) {
        Style style(CellKind::row);
        style.is_first_outer = is_first_outer;
        style.is_of_block = is_of_block;
        return style;
    }
};

/// Width and height in pixels.
struct Size {
    std::uint32_t width = 0;
    std::uint32_t height = 0;
};

/// A box, and the boxes in it.
class Cell {
public:
    /// A box with a label in it, and nothing else.
    static Cell bar(std::string label, Style style) { return Cell(std::move(label), style, {}, Direction::right); }
    /// A box with a label above its content.
    static Cell container(std::string label, Style style, std::vector<Cell> cells, Direction direction) {
        return Cell(std::move(label), style, std::move(cells), direction);
    }
    static Cell group(std::vector<Cell> cells, Direction direction) {
        return Cell({}, CellKind::group, std::move(cells), direction);
    }

    /// Computes the sizes, from the inside to the outside.
    Size measure();
    /// Appends the box and its content, at these coordinates.
    void draw(std::string &svg, std::uint32_t x, std::uint32_t y) const;

private:
    Cell(std::string label, Style style, std::vector<Cell> cells, Direction direction)
        : label_(std::move(label)), style_(style), cells_(std::move(cells)), direction_(direction) {}

    std::string label_;
    Style style_;
    std::vector<Cell> cells_;
    Direction direction_;
    Size size_;
};

/// The pattern of padding, which the picture must define.
extern const std::string_view hatch;

/// Appends ` name="value"`.
void attribute(std::string &svg, std::string_view name, std::string_view value);
void attribute(std::string &svg, std::string_view name, std::uint32_t value);

}  // namespace doctor
