// SPDX-License-Identifier: Apache-2.0
// A KV cache: a layout, its blocks in memory that the CPU can access, and their addresses, computed like in an engine's
// own kernels.
#pragma once

#include "options.hpp"

#include <cstddef>
#include <cstdint>
#include <kvmem.hpp>

struct Cache {
    kvmem::Layout layout;
    kvmem::Layout staging;  // for a layout in GPU memory: as many blocks in host memory; otherwise empty
    kvmem::LayoutInfo info;
    kvmem::LayoutInfo strides;  // of the host's side

    Cache(kvmem::Layout built, kvmem::Layout beside);

    // The layout that the CPU and the disk can access.
    const kvmem::Layout &host() const { return staging ? staging : layout; }

    // One piece in host memory: the keys (outer 0) or values (outer 1) of one layer of a block.
    std::byte *piece(std::uint64_t block, std::uint64_t layer, std::uint64_t outer) const;
    // One head of one token in a piece.
    std::byte *row(std::byte *piece, std::uint64_t token, std::uint64_t head) const;
    std::uint64_t block_bytes() const;
};

// The model's geometry. The library checks it, and the user reads the library's message.
kvmem::LayoutConfig geometry(const Options &options, const char *order, std::uint64_t blocks);

// The same for the heads of a rank, in another order of axes.
kvmem::LayoutConfig geometry(const Options &options, const char *order, std::uint64_t heads,
                             std::uint64_t page_size, std::uint64_t blocks);

// `blocks` blocks in a file without a name, which is deleted with the layout.
kvmem::Layout build_disk_layout(const Options &options, std::uint64_t blocks);

// The I/O mode of the layout's file: "O_DIRECT" or "buffered".
const char *disk_mode(const kvmem::Layout &layout);
