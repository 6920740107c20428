// SPDX-License-Identifier: Apache-2.0
// A cell is a block of one token. Each layer's tensor is a region: rows of cells, or for transposed values rows of elements,
// in which the cells lie side by side.
#include "layouts.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace {

constexpr std::chrono::seconds patience{60};

kvmem::LayoutConfig shape_of(const Part &part) {
    const CacheTensor &tensor = part.first();
    kvmem::LayoutConfig config;
    config.num_layers = part.tensors.size();
    config.outer_dim = 1;
    config.page_size = 1;
    // Quantised rows are not made of elements that could be moved alone: to kvmem they are bytes.
    config.dtype_width = tensor.transposed ? tensor.row_bytes / tensor.elements : 1;
    config.inner_dim = tensor.row_bytes / config.dtype_width;
    return config;
}

kvmem::Layout build_cells(const Part &part, const std::vector<Pages> &pages, const kvmem::Agent *agent) {
    const CacheTensor &tensor = part.first();
    auto config = shape_of(part);
    config.num_blocks = tensor.cells;
    config.order = tensor.transposed ? "L/CB" : "L/BC";
    std::vector<kvmem::Region> regions;
    for (const CacheTensor *each : part.tensors) {
        regions.push_back(view_of(pages, {each->data, each->data + each->cells * each->row_bytes}));
    }
    return kvmem::Layout::build(config, regions, agent);
}

kvmem::Layout build_store(const Part &part, std::uint64_t blocks, const std::string &path) {
    auto config = shape_of(part);
    config.num_blocks = blocks;
    config.page_size = SessionStore::block_tokens;
    // Like the cache, so that what is contiguous there is contiguous here.
    config.order = part.first().transposed ? "BLCN" : "BLNC";
    if (path.empty()) return kvmem::Layout::build(config, kvmem::SystemOptions());
    kvmem::DiskOptions file;
    file.path = path;
    file.flags = kvmem::DiskFlag::open_or_create | kvmem::DiskFlag::buffered;  // a row may be smaller than a sector
    return kvmem::Layout::build(config, file);
}

}  // namespace

std::vector<Part> parts_of(const std::vector<CacheGroup> &groups) {
    std::vector<Part> parts;
    for (std::size_t group = 0; group < groups.size(); ++group) {
        for (const CacheTensor &tensor : groups[group].tensors) {
            const auto same = [&](const Part &part) {
                return part.group == group && part.first().role == tensor.role &&
                       part.first().row_bytes == tensor.row_bytes && part.first().type == tensor.type;
            };
            const auto found = std::find_if(parts.begin(), parts.end(), same);
            if (found == parts.end()) {
                parts.push_back({group, {&tensor}});
            } else {
                found->tensors.push_back(&tensor);
            }
        }
    }
    return parts;
}

std::vector<Pages> share_memory(const Engine &engine) {
    std::vector<Span> spans;
    for (const CacheGroup &group : engine.groups()) {
        for (const CacheTensor &tensor : group.tensors) {
            spans.push_back({tensor.data, tensor.data + tensor.cells * tensor.row_bytes});
        }
    }
    return make_shareable(std::move(spans));
}

CacheLayouts::CacheLayouts(const Engine &engine, const std::vector<Pages> &pages, const kvmem::Agent *agent)
    : parts_(parts_of(engine.groups())) {
    for (const Part &part : parts_) layouts_.push_back(build_cells(part, pages, agent));
}

std::vector<std::uint32_t> indices(const std::vector<Cell> &cells) {
    std::vector<std::uint32_t> all;
    for (const Cell &cell : cells) all.push_back(cell.index);
    return all;
}

void move_tokens(const Place &from, const Place &to, std::uint64_t tokens, Moved &moved) {
    kvmem::TransferOptions options;
    options.source_table = kvmem::BlockTable{from.blocks};
    options.destination_table = kvmem::BlockTable{to.blocks};
    options.num_tokens = tokens;
    const auto transfer = kvmem::Transfer::start(from.layout, to.layout, options);
    if (!transfer.wait_for(patience)) throw std::runtime_error("a transfer has not ended in time");
    const auto info = transfer.info();
    moved.bytes += info.bytes;
    moved.path = kvmem::name(info.path);
}

SessionStore::SessionStore(const std::vector<Part> &parts, std::uint64_t tokens, const std::string &path) {
    const std::uint64_t blocks = (tokens + block_tokens - 1) / block_tokens;
    for (std::size_t part = 0; part < parts.size(); ++part) {
        layouts_.push_back(build_store(parts[part], blocks, path.empty() ? path : path + "." + std::to_string(part)));
    }
}

Place SessionStore::place(std::size_t part, std::uint64_t first, std::uint64_t count) const {
    Place place{layouts_[part], {}};
    const std::uint64_t end = (first + count + block_tokens - 1) / block_tokens;
    for (std::uint64_t block = first / block_tokens; block < end; ++block) {
        place.blocks.push_back(static_cast<std::uint32_t>(block));
    }
    return place;
}
