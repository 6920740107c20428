// SPDX-License-Identifier: Apache-2.0
// kvmem layouts of llama.cpp's caches, and of the memory or files that sessions are offloaded to.
#pragma once

#include "engine.hpp"
#include "memory.hpp"

#include <filesystem>
#include <string>
#include <vector>

// Tensors of a group that have one shape: the keys of all layers, or the values.
struct Part {
    std::string name;
    std::vector<const CacheTensor *> tensors;  // by layer

    const CacheTensor &first() const { return *tensors.front(); }
};

std::vector<Part> parts_of(const CacheGroup &group);
// Bytes and elements of a cell in each layer of a part.
kvmem::LayoutConfig shape_of(const Part &part);

// The memory of an engine's caches, as regions that other processes can open.
std::vector<CacheMemory> share_memory(const Engine &engine);

// An engine's caches as kvmem sees them: one layout per group, with a part for the keys and one for the values. Its
// blocks are the cells.
class CacheLayouts {
public:
    // With an agent, peers can access the layouts over NIXL. The engine has to outlive the layouts.
    CacheLayouts(const Engine &engine, const std::vector<CacheMemory> &memory, const kvmem::Agent *agent);

    std::size_t groups() const { return layouts_.size(); }
    const kvmem::Layout &operator[](std::size_t group) const { return layouts_[group]; }

private:
    std::vector<kvmem::Layout> layouts_;
};

// Tokens in a layout: ids of blocks, in the order of the tokens.
struct Place {
    const kvmem::Layout &layout;
    CellIds blocks;
};

// What transfers moved.
struct Moved {
    std::uint64_t bytes = 0;
    std::string path;
};

// Starts to move `tokens` tokens from one place to another, from token `first` of both on. Their blocks may have other
// sizes.
kvmem::Transfer start_move(const Place &from, const Place &to, std::uint64_t first, std::uint64_t tokens);
// Waits for the end of a move, and adds it to `moved`.
void finish_move(const kvmem::Transfer &transfer, Moved &moved);
// Whether memory of a transfer is still in use, also after it failed: NIXL may continue to write to the destination.
bool is_in_use(kvmem::Transfer &transfer);
void move_tokens(const Place &from, const Place &to, std::uint64_t tokens, Moved &moved);

// Memory or files for a session that leaves the context.
class SessionStore {
public:
    enum class Memory { system, pinned };
    static constexpr std::uint64_t block_tokens = 16;

    // For a session with this number of cells in each group.
    SessionStore(const Engine &engine, const std::vector<std::size_t> &cells, Memory memory);
    // In files of this directory, one per part.
    enum class Files { write, read };  // write: created or reused; read: opened only to load a session
    SessionStore(const Engine &engine, const std::vector<std::size_t> &cells, const std::filesystem::path &directory, Files files);

    // The blocks of the session in the store of a group.
    Place place(std::size_t group) const;

private:
    std::vector<kvmem::Layout> layouts_;
};

// The number of cells in each group.
std::vector<std::size_t> count_cells(const Positions &positions);
