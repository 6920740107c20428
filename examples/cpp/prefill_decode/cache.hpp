// SPDX-License-Identifier: Apache-2.0
// A KV cache: a layout, and the addresses in it, computed the way an engine's own kernels would.
#pragma once

#include "handles.hpp"
#include "options.hpp"

#include <cstddef>
#include <cstdint>

struct Cache {
    kv::Layout layout;
    kvmem_layout_info info;
    kvmem_layout_strides strides;

    explicit Cache(kv::Layout built);

    // One piece: what one block holds of one layer's keys (outer 0) or values (outer 1).
    std::byte *piece(std::uint64_t block, std::uint64_t layer, std::uint64_t outer) const;
    std::uint64_t block_bytes() const;
};

// The model's geometry. Its sums are checked by the library, whose message is what the user reads.
kvmem_layout_config geometry(const Options &options, std::uint32_t kind, std::uint64_t blocks);

// `blocks` blocks in a file that has no name and is gone with the layout.
kv::Layout build_disk_layout(const Options &options, std::uint64_t blocks, kvmem_agent *agent);

// How the file of that layout is read and written: "O_DIRECT" or "buffered".
const char *disk_mode(const kvmem_layout *layout);
