// SPDX-License-Identifier: Apache-2.0
#include "command.hpp"

#include "../options.hpp"
#include "descriptor.hpp"
#include "picture.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

namespace doctor {

namespace {

struct Field {
    std::string_view name;
    std::uint64_t kvmem::LayoutConfig::*number;
};

constexpr Field fields[] = {
    {"num_blocks", &kvmem::LayoutConfig::num_blocks},     {"num_layers", &kvmem::LayoutConfig::num_layers},
    {"outer_dim", &kvmem::LayoutConfig::outer_dim},       {"page_size", &kvmem::LayoutConfig::page_size},
    {"inner_dim", &kvmem::LayoutConfig::inner_dim},       {"dtype_width", &kvmem::LayoutConfig::dtype_width},
    {"alignment", &kvmem::LayoutConfig::alignment},       {"num_heads", &kvmem::LayoutConfig::num_heads},
    {"block_stride", &kvmem::LayoutConfig::block_stride}, {"layer_stride", &kvmem::LayoutConfig::layer_stride},
    {"outer_stride", &kvmem::LayoutConfig::outer_stride}, {"token_stride", &kvmem::LayoutConfig::token_stride},
    {"head_stride", &kvmem::LayoutConfig::head_stride},   {"element_stride", &kvmem::LayoutConfig::element_stride},
};

std::string draw_help() {
    return
        R"(Usage: kvmem-doctor draw [block=ID] DESCRIPTOR
       kvmem-doctor draw [block=ID] order=ORDER [FIELD=VALUE]... [part=NAME order=ORDER [FIELD=VALUE]...]...
Prints a picture of a layout as SVG: its axes as nested boxes in the order of addresses, strides, padding, and one
block highlighted. Allocates no memory for the layout.

  DESCRIPTOR   a file with what kvmem_layout_export wrote; - for the standard input
  order=ORDER  axes from the outermost to the innermost, such as L/OBNHC; docs/layouts.md describes them
  FIELD=VALUE  a number of kvmem_layout_config, such as num_blocks=1024 or block_stride=80000. Without it, axes of the
               order have 128 blocks, 32 layers, 2 outer slots, 16 tokens and 8 heads of 128 elements of 2 bytes
  identity=TEXT  what the blocks contain; that of a descriptor is in its picture, too
  part=NAME    begins a part of the layout, to which the following fields belong
  block=ID     the block to highlight; default 0

Exit status:
  0  the picture was printed
  1  the descriptor cannot be read, or no layout has its shape
  2  the command line is wrong
  3  the picture could not be written
)";
}

std::uint64_t number_of(std::string_view name, std::string_view text) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
        throw UsageError("draw: " + std::string(name) + "=" + std::string(text) +
                         " is not a number from 0 to 18446744073709551615");
    }
    return number;
}

/// Numbers that are not given: those of a usual model, for the axes that the order has.
void complete(kvmem::LayoutConfig &config) {
    const auto with = [&](std::uint64_t &number, char letter, std::uint64_t usual) {
        if (number == 0) number = config.order.find(letter) == std::string::npos ? 1 : usual;
    };
    if (config.num_heads == 0 && config.order.find('H') != std::string::npos) config.num_heads = 8;
    with(config.num_blocks, 'B', 128);
    with(config.num_layers, 'L', 32);
    with(config.outer_dim, 'O', 2);
    with(config.page_size, 'N', 16);
    with(config.inner_dim, 'C', 128 * (config.num_heads ? config.num_heads : 8));
    if (config.dtype_width == 0) config.dtype_width = 2;
}

struct Arguments {
    std::optional<std::string> file;
    std::vector<NamedShape> shapes;
    std::uint64_t block = 0;
    bool wants_help = false;
};

void set(NamedShape &shape, std::string_view name, std::string_view value) {
    if (name == "order") {
        shape.config.order = std::string(value);
        if (value.empty()) throw UsageError("draw: order= needs the axes, such as order=L/OBNHC");
        return;
    }
    if (name == "identity") {
        shape.config.identity = std::string(value);
        return;
    }
    const auto *const field =
        std::find_if(std::begin(fields), std::end(fields), [&](const Field &each) { return each.name == name; });
    if (field == std::end(fields)) {
        std::string names;
        for (const Field &each : fields) names.append(", ").append(each.name);
        throw UsageError("draw: there is no field \"" + std::string(name) + "\"; there are block, part, order, identity" + names);
    }
    shape.config.*field->number = number_of(name, value);
}

Arguments parse_draw(int argc, char **argv) {
    Arguments arguments;
    auto &shapes = arguments.shapes;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        const auto equals = argument.find('=');
        const auto name = argument.substr(0, equals);
        if (argument == "--help" || argument == "-h") {
            arguments.wants_help = true;
        } else if (argument.size() > 1 && argument.front() == '-') {
            throw UsageError("draw: unknown option " + std::string(argument));
        } else if (equals == std::string_view::npos || name.find('/') != std::string_view::npos) {
            if (arguments.file) throw UsageError("draw: \"" + std::string(argument) + "\" is a second descriptor");
            arguments.file = std::string(argument);
        } else if (name == "block") {
            arguments.block = number_of(name, argument.substr(equals + 1));
        } else if (name == "part") {
            if (!shapes.empty() && shapes[0].name.empty()) {
                throw UsageError("draw: fields before the first part=NAME belong to no part");
            }
            shapes.push_back({std::string(argument.substr(equals + 1)), {}});
            if (shapes.back().name.empty()) throw UsageError("draw: part= needs a name");
        } else {
            if (shapes.empty()) shapes.emplace_back();
            set(shapes.back(), name, argument.substr(equals + 1));
        }
    }
    return arguments;
}

std::string content_of(const std::string &path) {
    // A descriptor of many regions has a few megabytes.
    constexpr std::size_t max_size = std::size_t(1) << 30;
    const std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(path == "-" ? stdin : std::fopen(path.c_str(), "rb"),
                                                                std::fclose);
    if (!file) throw DescriptorError(std::strerror(errno));
    std::string content;
    char part[65536];
    while (const std::size_t size = std::fread(part, 1, sizeof part, file.get())) {
        content.append(part, size);
        if (content.size() > max_size) throw DescriptorError("the file is too large for a layout descriptor");
    }
    if (std::ferror(file.get())) throw DescriptorError(std::strerror(errno));
    return content;
}

/// What was asked for, from whichever source. An error names the part.
Part part_of(const NamedShape &shape) {
    try {
        return {shape.name, Geometry(shape.config)};
    } catch (const kvmem::Error &error) {
        throw DescriptorError((shape.name.empty() ? "" : "part '" + shape.name + "': ") + std::string(error.message()));
    }
}

std::string picture(const std::vector<NamedShape> &shapes, std::uint64_t block) {
    std::vector<Part> parts;
    for (const NamedShape &shape : shapes) {
        parts.push_back(part_of(shape));
        const std::uint64_t blocks = parts.back().geometry.num_blocks;
        if (block >= blocks) {
            throw UsageError("draw: block " + std::to_string(block) + " is to be highlighted, the layout has " +
                             std::to_string(blocks) + " blocks");
        }
    }
    return picture_of(parts, block);
}

}  // namespace

std::string draw(int argc, char **argv) {
    Arguments arguments = parse_draw(argc, argv);
    if (arguments.wants_help) return draw_help();
    if (arguments.file && !arguments.shapes.empty()) {
        throw UsageError("draw: \"" + *arguments.file + "\" has the shape; give no other fields than block");
    }
    if (arguments.file) {
        try {
            return picture(read_descriptor(content_of(*arguments.file)), arguments.block);
        } catch (const DescriptorError &error) {
            throw DescriptorError(*arguments.file + ": " + error.what());
        }
    }
    for (NamedShape &shape : arguments.shapes) {
        if (shape.config.order.empty()) {
            throw UsageError("draw: " + (shape.name.empty() ? "no order is given" : "part '" + shape.name + "' has no order") +
                             "; give the axes, such as order=L/OBNHC");
        }
        complete(shape.config);
    }
    if (arguments.shapes.empty()) throw UsageError("draw: give a descriptor, or an order such as order=L/OBNHC");
    try {
        return picture(arguments.shapes, arguments.block);
    } catch (const DescriptorError &error) {
        throw UsageError("draw: " + std::string(error.what()));
    }
}

}  // namespace doctor
