// SPDX-License-Identifier: Apache-2.0
// A KV cache: a layout, the blocks as this CPU reaches them, and the addresses of those, computed as an
// engine's own kernels do.
#pragma once

#include "options.hpp"

#include <cstddef>
#include <cstdint>
#include <kvmem.hpp>

struct Cache {
    kvmem::Layout layout;
    kvmem::Layout staging;  // as many blocks in host memory, beside a layout in GPU memory; otherwise empty
    kvmem::LayoutInfo info;
    kvmem::LayoutStrides strides;  // of the host's side

    Cache(kvmem::Layout built, kvmem::Layout beside);

    // The layout that the CPU and the disk reach.
    const kvmem::Layout &host() const { return staging ? staging : layout; }

    // One piece on the host's side: what one block holds of one layer's keys (outer 0) or values (outer 1).
    std::byte *piece(std::uint64_t block, std::uint64_t layer, std::uint64_t outer) const;
    // One head of one token in a piece.
    std::byte *row(std::byte *piece, std::uint64_t token, std::uint64_t head) const;
    std::uint64_t block_bytes() const;
};

// The model's geometry. Its sums are checked by the library, whose message is what the user reads.
kvmem::LayoutConfig geometry(const Options &options, kvmem::LayoutKind kind, std::uint64_t blocks);

// The same for heads that a rank has, in another order of axes.
kvmem::LayoutConfig geometry(const Options &options, const char *order, std::uint64_t heads,
                             std::uint64_t page_size, std::uint64_t blocks);

// `blocks` blocks in a file that has no name and is gone with the layout.
kvmem::Layout build_disk_layout(const Options &options, std::uint64_t blocks);

// How the file of that layout is read and written: "O_DIRECT" or "buffered".
const char *disk_mode(const kvmem::Layout &layout);
