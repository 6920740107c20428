// SPDX-License-Identifier: Apache-2.0
// Of an axis with many indices a few are shown; of several regions the first is shown with its content. The content of
// a box is in the order of addresses, left to right or top to bottom.
#include "picture.hpp"

#include "cell.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace doctor {

namespace {

// Indices of an axis that are shown if it has more: the first two and the last.
constexpr std::uint64_t max_shown = 3;
// Of more axes than these, the first index and the last are shown, so that the picture stays small.
constexpr std::size_t max_levels = 4;
constexpr std::uint32_t margin = 16;
constexpr std::uint32_t line = 18;

/// A picture and its size.
struct Drawn {
    std::string svg;
    Size size;
};

std::string begin_svg(Size size) {
    std::string svg = R"(<svg xmlns="http://www.w3.org/2000/svg")";
    attribute(svg, "width", size.width);
    attribute(svg, "height", size.height);
    attribute(svg, "viewBox", "0 0 " + std::to_string(size.width) + " " + std::to_string(size.height));
    attribute(svg, "font-family", "Helvetica, Arial, sans-serif");
    return svg;
}

void append_background(std::string &svg, Size size) {
    svg += "<rect";
    attribute(svg, "width", size.width);
    attribute(svg, "height", size.height);
    svg += " fill=\"#ffffff\"/>\n";
}

void append_text(std::string &svg, std::uint32_t x, std::uint32_t y, std::uint32_t size, std::string_view weight,
                 std::string_view content) {
    svg += "<text";
    attribute(svg, "x", x);
    attribute(svg, "y", y);
    attribute(svg, "font-size", size);
    attribute(svg, "font-weight", weight);
    svg.append(">").append(content).append("</text>\n");
}

/// A text as XML contains it.
std::string escaped(std::string_view text) {
    std::string out;
    for (const char each : text) {
        switch (each) {
        case '&': out += "&amp;"; break;
        case '<': out += "&lt;"; break;
        case '>': out += "&gt;"; break;
        default: out += each;
        }
    }
    return out;
}

/// The bytes of an identity: as they are if they are a short text, otherwise in hexadecimal.
std::string identity_text(std::string_view bytes) {
    constexpr std::size_t max_text = 72, max_bytes = 32;
    const auto is_printable = [](char each) { return each >= ' ' && each <= '~'; };
    if (bytes.size() <= max_text && std::all_of(bytes.begin(), bytes.end(), is_printable)) return escaped(bytes);
    std::string text = std::to_string(bytes.size()) + " bytes, ";
    for (const char each : bytes.substr(0, max_bytes)) {
        constexpr std::string_view digits = "0123456789abcdef";
        const auto value = static_cast<unsigned char>(each);
        text.append({digits[value >> 4], digits[value & 15]});
    }
    return text + (bytes.size() > max_bytes ? "…" : "");
}

struct Shown {
    std::uint64_t index;
    bool is_after_gap;
};

/// The indices of an axis to show: at most `most`, and another one.
std::vector<Shown> shown(std::uint64_t count, std::optional<std::uint64_t> also, std::uint64_t most) {
    std::vector<std::uint64_t> indices;
    for (std::uint64_t index = 0; index < std::min(count, count <= most ? count : most - 1); ++index) {
        indices.push_back(index);
    }
    if (count > most) indices.push_back(count - 1);
    if (also) indices.push_back(*also);
    std::sort(indices.begin(), indices.end());
    indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
    std::vector<Shown> all;
    std::uint64_t next = 0;
    for (const std::uint64_t index : indices) {
        all.push_back({index, index > next});
        next = index + 1;
    }
    return all;
}

class Picture {
public:
    Picture(const Geometry &geometry, std::uint64_t block) : geometry_(geometry), block_(block) {
        for (const Axis &axis : geometry.axes) {
            if (is_level(axis)) levels_.push_back(&axis);
        }
    }

    Drawn draw() const {
        Cell cells = regions();
        const Size content = cells.measure();
        const auto rows = static_cast<std::uint32_t>(geometry_.axes.size());
        const std::uint32_t top = margin + (geometry_.identity.empty() ? 3 : 4) * line;
        const Size size = {std::max<std::uint32_t>(content.width + 2 * margin, 720),
                           top + content.height + (rows + 3) * line + margin};
        std::string svg = begin_svg(size);
        svg.append(R"( font-size="10" role="img">)").append("\n<title>" + title() + "</title>\n").append(hatch);
        append_background(svg, size);
        append_text(svg, margin, margin + 12, 18, "bold", geometry_.order);
        append_text(svg, margin, margin + line + 12, 11, "normal", title());
        if (!geometry_.identity.empty()) {
            append_text(svg, margin, margin + 2 * line + 12, 11, "normal", "identity: " + identity_text(geometry_.identity));
        }
        cells.draw(svg, margin, top);
        append_table(svg, top + content.height + 2 * line);
        return {svg + "</svg>\n", size};
    }

private:
    /// What the boxes inside an index have in common.
    struct Inside {
        std::uint64_t outer;
        bool is_of_block;
    };
    using Levels = std::vector<const Axis *>;

    /// Whether an axis has boxes: all with several indices, and blocks. Contiguous elements are the row itself.
    bool is_level(const Axis &axis) const {
        if (!geometry_.is_within_regions(axis)) return false;
        if (axis.letter == 'B') return true;
        return axis.count > 1 && !(axis.letter == 'C' && geometry_.axes.back().letter == 'C');
    }

    std::string title() const {
        const std::uint64_t count = geometry_.num_regions;
        return (count == 1 ? "one region" : std::to_string(count) + " regions") + " of " +
               std::to_string(geometry_.region_size) + " bytes; rows of " + std::to_string(geometry_.row_size) +
               " contiguous bytes; block " + std::to_string(block_) + " is highlighted";
    }

    Cell regions() const {
        std::vector<Cell> cells;
        for (const auto [index, is_after_gap] : shown(geometry_.num_regions, {}, max_shown)) {
            if (is_after_gap) cells.push_back(Cell::bar("⋮", CellKind::gap));
            const std::string label = region_label(index);
            cells.push_back(index > 0 ? Cell::bar(label + ": the same", CellKind::collapsed)
                                      : container(label, CellKind::region, 0, {0, false}, 0));
        }
        return Cell::group(std::move(cells), Direction::down);
    }

    /// The region's index on each axis that has regions of its own.
    std::string region_label(std::uint64_t region) const {
        std::string label = "region " + std::to_string(region);
        for (const Axis &axis : geometry_.axes) {
            if (axis.region_step) label += ", " + index_label(axis, region / axis.region_step % axis.count);
        }
        return label;
    }

    std::string index_label(const Axis &axis, std::uint64_t index) const {
        if (axis.letter == 'O' && axis.count == 2) return index == 0 ? "keys" : "values";
        return std::string(axis.name) + " " + std::to_string(index);
    }

    /// A box with the indices of a level, and the padding of the level outside it.
    Cell container(std::string label, Style style, std::size_t level, Inside inside, std::uint64_t padding) const {
        std::vector<Cell> cells = indices(level, inside);
        // Rows of boxes and columns of boxes alternate, and the innermost boxes are a row.
        const auto direction = (levels_.size() - level) % 2 == 1 ? Direction::right : Direction::down;
        if (padding > 0) cells.push_back(padding_cell(padding));
        return Cell::container(std::move(label), style, std::move(cells), direction);
    }

    static Cell padding_cell(std::uint64_t padding) {
        return Cell::bar("+ " + std::to_string(padding) + " B", CellKind::padding);
    }

    std::vector<Cell> indices(std::size_t level, Inside inside) const {
        std::vector<Cell> cells;
        if (level == levels_.size()) return cells;
        const Axis &axis = *levels_[level];
        const bool is_blocks = axis.letter == 'B';
        const auto also = is_blocks ? std::optional(block_) : std::nullopt;
        const std::uint64_t most = levels_.size() > max_levels ? max_shown - 1 : max_shown;
        for (const auto [index, is_after_gap] : shown(axis.count, also, most)) {
            if (is_after_gap) cells.push_back(Cell::bar("…", CellKind::gap));
            if (axis.letter == 'O') inside.outer = index;
            if (is_blocks) inside.is_of_block = index == block_;
            std::string label = index_label(axis, index);
            if (level + 1 < levels_.size()) {
                const Style style = is_blocks && inside.is_of_block ? CellKind::highlighted : CellKind::plain;
                cells.push_back(container(std::move(label), style, level + 1, inside, axis.padding));
                continue;
            }
            Cell row = Cell::bar(std::move(label), Style::row(inside.outer == 0, inside.is_of_block));
            if (axis.padding == 0) {
                cells.push_back(std::move(row));
            } else {
                cells.push_back(Cell::group({std::move(row), padding_cell(axis.padding)}, Direction::right));
            }
        }
        return cells;
    }

    /// Letter, name, indices, stride and a note of each axis.
    void append_table(std::string &svg, std::uint32_t top) const {
        append_line(svg, top, "bold", {"", "axis", "indices", "stride", ""});
        for (const Axis &axis : geometry_.axes) {
            std::string stride = std::to_string(axis.stride) + " B", note;
            if (!geometry_.is_within_regions(axis)) {
                stride = "–";
                note = "a region per index";
            } else if (axis.padding > 0) {
                note = std::to_string(axis.padding) + " B after each do not belong to it (hatched)";
            }
            append_line(svg, top += line, "normal",
                        {std::string(1, axis.letter), std::string(axis.name), std::to_string(axis.count), stride, note});
        }
    }

    static void append_line(std::string &svg, std::uint32_t y, std::string_view weight,
                            const std::array<std::string, 5> &texts) {
        static constexpr std::array<std::uint32_t, 5> columns = {margin, margin + 32, margin + 132, margin + 212,
                                                                 margin + 332};
        for (std::size_t i = 0; i < columns.size(); ++i) {
            svg += "<text";
            attribute(svg, "x", columns[i]);
            attribute(svg, "y", y);
            attribute(svg, "font-size", "11");
            attribute(svg, "font-family", "ui-monospace, monospace");
            attribute(svg, "font-weight", weight);
            svg.append(">").append(texts[i]).append("</text>\n");
        }
    }

    const Geometry &geometry_;
    std::uint64_t block_;
    Levels levels_;
};

}  // namespace

std::string picture_of(const std::vector<Part> &parts, std::uint64_t block) {
    if (parts.size() == 1 && parts[0].name.empty()) return Picture(parts[0].geometry, block).draw().svg;
    Size size;
    std::string content;
    for (const Part &part : parts) {
        const Drawn drawn = Picture(part.geometry, block).draw();
        append_text(content, margin, size.height + 2 * line - 6, 20, "bold", "part " + escaped(part.name));
        size.height += 2 * line;
        content += "<svg y=\"" + std::to_string(size.height) + "\" " + drawn.svg.substr(5);
        size = {std::max(size.width, drawn.size.width), size.height + drawn.size.height};
    }
    std::string svg = begin_svg(size);
    svg += " role=\"img\">\n<title>" + std::to_string(parts.size()) + " parts; block " + std::to_string(block) +
           " is highlighted in each</title>\n";
    append_background(svg, size);
    return svg + content + "</svg>\n";
}

}  // namespace doctor
