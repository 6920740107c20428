// SPDX-License-Identifier: Apache-2.0
// A cell is a block of one token. Each layer's tensor is a region: rows of cells, or for transposed values rows of
// elements, in which the cells are adjacent.
#include "layouts.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <numeric>
#include <stdexcept>

namespace {

// A peer that is alive makes progress within this time.
constexpr std::chrono::seconds patience{30};

std::string name_of(char role) {
    switch (role) {
        case 'k': return "keys";
        case 'v': return "values";
        default: return std::string("state ") + role;
    }
}

// One layout of all parts of a group.
kvmem::Layout combine(const CacheGroup &group, const std::function<kvmem::Layout(const Part &)> &build) {
    std::vector<kvmem::Layout> layouts;
    std::vector<kvmem::LayoutPart> combined;
    const auto parts = parts_of(group);
    for (const Part &part : parts) layouts.push_back(build(part));
    for (std::size_t i = 0; i < parts.size(); ++i) combined.push_back({parts[i].name, &layouts[i]});
    return kvmem::Layout::combine(combined);
}

kvmem::Layout build_cells(const Part &part, const std::vector<CacheMemory> &memory, const kvmem::Agent *agent) {
    const CacheTensor &tensor = part.first();
    auto config = shape_of(part);
    config.num_blocks = tensor.cells;
    config.order = tensor.transposed ? "L/CB" : "L/BC";
    std::vector<kvmem::Region> regions;
    for (const CacheTensor *each : part.tensors) regions.push_back(view_of(memory, {each->data, each->end()}));
    return kvmem::Layout::build(config, regions, agent);
}

// A state is one block. Tokens have blocks of 16. The store has one session, so it uses the order of the cache: any
// number of tokens that is contiguous in the cache is contiguous in the store. A store of many sessions would have the
// block outermost ("BLNC").
kvmem::LayoutConfig store_shape(const CacheGroup &group, const Part &part, std::size_t cells) {
    auto config = shape_of(part);
    config.page_size = group.is_recurrent ? 1 : SessionStore::block_tokens;
    config.num_blocks = (cells + config.page_size - 1) / config.page_size;
    config.order = part.first().transposed ? "LCBN" : "LBNC";
    return config;
}

}  // namespace

// Layers may differ in the number of heads: then a group has several parts with keys.
std::vector<Part> parts_of(const CacheGroup &group) {
    std::vector<Part> parts;
    for (const CacheTensor &tensor : group.tensors) {
        const auto found = std::find_if(parts.begin(), parts.end(), [&](const Part &part) {
            return part.first().role == tensor.role && part.first().row_bytes == tensor.row_bytes &&
                   part.first().type == tensor.type;
        });
        if (found == parts.end()) {
            parts.push_back({name_of(tensor.role) + " " + std::to_string(parts.size()), {&tensor}});
        } else {
            found->tensors.push_back(&tensor);
        }
    }
    return parts;
}

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

std::vector<CacheMemory> share_memory(const Engine &engine) {
    std::map<const void *, std::vector<Span>> buffers;  // ggml's: neighbours in a GPU's memory may be allocations of their own
    std::vector<Span> spans;
    int gpu = -1;
    for (const CacheGroup &group : engine.groups()) {
        for (const CacheTensor &tensor : group.tensors) {
            if (!spans.empty() && tensor.gpu != gpu) {
                throw std::runtime_error("the cache is in memory of several devices, which this example does not move: use one GPU "
                                         "for all layers, or none");
            }
            gpu = tensor.gpu;
            spans.push_back({tensor.data, tensor.end()});
            buffers[tensor.tensor->buffer].push_back(spans.back());
        }
    }
    if (gpu < 0) return make_shareable(std::move(spans));
    std::vector<CacheMemory> memory;
    for (auto &[buffer, parts] : buffers) {
        for (CacheMemory &adopted : adopt_gpu(std::move(parts), gpu)) memory.push_back(std::move(adopted));
    }
    return memory;
}

CacheLayouts::CacheLayouts(const Engine &engine, const std::vector<CacheMemory> &memory, const kvmem::Agent *agent) {
    for (const CacheGroup &group : engine.groups()) {
        layouts_.push_back(combine(group, [&](const Part &part) { return build_cells(part, memory, agent); }));
    }
}

kvmem::Transfer start_move(const Place &from, const Place &to, std::uint64_t first, std::uint64_t tokens) {
    kvmem::TransferOptions options;
    options.stall_timeout = patience;
    kvmem::SubmitOptions blocks;
    blocks.source_table = kvmem::BlockTable{from.blocks, first};
    blocks.destination_table = kvmem::BlockTable{to.blocks, first};
    blocks.num_tokens = tokens;
    return kvmem::Transfer::start(from.layout, to.layout, options, blocks);
}

void finish_move(const kvmem::Transfer &transfer, Moved &moved) {
    transfer.wait();
    const auto info = transfer.info();
    moved.bytes += info.bytes;
    moved.path = kvmem::name(info.method);
}

bool is_in_use(kvmem::Transfer &transfer) {
    try {
        transfer.prepare({});
    } catch (const kvmem::Error &error) {
        return error.status() == kvmem::Status::busy;  // otherwise the error is that there are no pairs
    }
    throw std::logic_error("blocks without pairs were prepared");
}

void move_tokens(const Place &from, const Place &to, std::uint64_t tokens, Moved &moved) {
    finish_move(start_move(from, to, 0, tokens), moved);
}

SessionStore::SessionStore(const Engine &engine, const std::vector<std::size_t> &cells, Memory memory) {
    for (std::size_t index = 0; index < cells.size(); ++index) {
        const CacheGroup &group = engine.groups()[index];
        layouts_.push_back(combine(group, [&](const Part &part) {
            const auto shape = store_shape(group, part, cells[index]);
            if (memory == Memory::pinned) return kvmem::Layout::build(shape, kvmem::PinnedOptions());
            return kvmem::Layout::build(shape, kvmem::SystemOptions());
        }));
    }
}

SessionStore::SessionStore(const Engine &engine, const std::vector<std::size_t> &cells,
                           const std::filesystem::path &directory, Files files) {
    // A file that is missing must not be created when a session is loaded: it would be a session of zeroes.
    const auto access = files == Files::write ? kvmem::Flags(kvmem::DiskFlag::open_or_create)
                                              : kvmem::DiskFlag::open_existing | kvmem::DiskFlag::read_only;
    for (std::size_t index = 0; index < cells.size(); ++index) {
        const CacheGroup &group = engine.groups()[index];
        layouts_.push_back(combine(group, [&](const Part &part) {
            kvmem::DiskOptions file;
            file.path = directory / (std::to_string(index) + " " + part.name);
            file.flags = access | kvmem::DiskFlag::buffered;  // a row may be smaller than a sector
            return kvmem::Layout::build(store_shape(group, part, cells[index]), file);
        }));
    }
}

Place SessionStore::place(std::size_t group) const {
    Place place{layouts_[group], CellIds(layouts_[group].info().num_blocks)};
    std::iota(place.blocks.begin(), place.blocks.end(), 0);
    return place;
}

std::vector<std::size_t> count_cells(const Positions &positions) {
    std::vector<std::size_t> cells;
    for (const auto &group : positions) cells.push_back(group.size());
    return cells;
}
