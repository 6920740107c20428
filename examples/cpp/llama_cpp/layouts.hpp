// SPDX-License-Identifier: Apache-2.0
// kvmem layouts of llama.cpp's cache, and of the memory or files that sessions are offloaded to.
#pragma once

#include "engine.hpp"
#include "pages.hpp"

#include <string>
#include <vector>

// Tensors of a group that one layout describes: all keys, or all values, of the same size.
struct Part {
    std::size_t group;
    std::vector<const CacheTensor *> tensors;  // by layer

    const CacheTensor &first() const { return *tensors.front(); }
    std::uint64_t token_bytes() const { return tensors.size() * first().row_bytes; }
};

std::vector<Part> parts_of(const std::vector<CacheGroup> &groups);

// The memory of an engine's cache, which other processes can map.
std::vector<Pages> share_memory(const Engine &engine);

// An engine's cache as kvmem sees it: one layout per part, whose blocks are the cells.
class CacheLayouts {
public:
    // With an agent, peers can access the layouts over NIXL. The engine and its pages have to outlive the layouts.
    CacheLayouts(const Engine &engine, const std::vector<Pages> &pages, const kvmem::Agent *agent);

    const std::vector<Part> &parts() const { return parts_; }
    const kvmem::Layout &layout(std::size_t part) const { return layouts_[part]; }

private:
    std::vector<Part> parts_;
    std::vector<kvmem::Layout> layouts_;
};

// The cells of a sequence in a group.
std::vector<std::uint32_t> indices(const std::vector<Cell> &cells);

// Tokens of a session in a layout: ids of blocks, and the number of tokens.
struct Place {
    const kvmem::Layout &layout;
    std::vector<std::uint32_t> blocks;
};

// What one transfer moved.
struct Moved {
    std::uint64_t bytes = 0;
    std::string path;
};

// Moves `tokens` tokens from one place to another, whose blocks may have other sizes, and adds to `moved`.
void move_tokens(const Place &from, const Place &to, std::uint64_t tokens, Moved &moved);

// Where sessions go when the context needs their cells: blocks of 16 tokens, in host memory or in a file.
class SessionStore {
public:
    static constexpr std::uint64_t block_tokens = 16;

    // `path` is that of a file, which is created or opened again; "" for host memory.
    SessionStore(const std::vector<Part> &parts, std::uint64_t tokens, const std::string &path);

    // The blocks of `count` tokens from token `first` of the store, which is a multiple of block_tokens.
    Place place(std::size_t part, std::uint64_t first, std::uint64_t count) const;

private:
    std::vector<kvmem::Layout> layouts_;
};
