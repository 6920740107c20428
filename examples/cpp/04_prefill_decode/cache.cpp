// SPDX-License-Identifier: Apache-2.0
// Builds the geometry and the disk layout, and finds pieces by their strides.
#include "cache.hpp"

namespace {

constexpr std::uint64_t keys_and_values = 2;
constexpr std::uint64_t bf16 = 2;
constexpr std::uint64_t direct_io_unit = 4096;

}  // namespace

Cache::Cache(kvmem::Layout built, kvmem::Layout beside)
    : layout(std::move(built)),
      staging(std::move(beside)),
      info(layout.info()),
      strides(host().info()) {}

std::byte *Cache::piece(std::uint64_t block, std::uint64_t layer, std::uint64_t outer) const {
    const std::uint64_t base = strides.bases[strides.num_regions > 1 ? layer : 0];
    return reinterpret_cast<std::byte *>(base + block * strides.block_stride + layer * strides.layer_stride +
                                         outer * strides.outer_stride);
}

std::byte *Cache::row(std::byte *piece, std::uint64_t token, std::uint64_t head) const {
    return piece + token * strides.token_stride + head * strides.head_stride;
}

std::uint64_t Cache::block_bytes() const {
    return info.num_layers * info.outer_dim * strides.piece_size;
}

kvmem::LayoutConfig geometry(const Options &options, const char *order, std::uint64_t blocks) {
    kvmem::LayoutConfig config;
    config.num_blocks = blocks;
    config.num_layers = options.layers;
    config.outer_dim = keys_and_values;
    config.page_size = options.page_size;
    config.inner_dim = options.heads * options.head_dim;
    config.num_heads = options.heads;
    config.dtype_width = bf16;
    config.order = order;
    return config;
}

kvmem::LayoutConfig geometry(const Options &options, const char *order, std::uint64_t heads,
                             std::uint64_t page_size, std::uint64_t blocks) {
    auto config = geometry(options, order, blocks);
    config.page_size = page_size;
    config.inner_dim = heads * options.head_dim;
    config.num_heads = heads;
    return config;
}

kvmem::Layout build_disk_layout(const Options &options, std::uint64_t blocks) {
    // Fully contiguous: a block is one extent of the file, whatever its layout in memory.
    const auto config = geometry(options, KVMEM_ORDER_FULLY_CONTIGUOUS, blocks);
    kvmem::DiskOptions file;
    if (!options.disk_dir.empty()) file.directory = options.disk_dir;
    // O_DIRECT moves whole sectors only; pieces smaller than one go through the page cache.
    if (config.page_size * config.inner_dim * config.dtype_width % direct_io_unit != 0) {
        file.flags |= kvmem::DiskFlag::buffered;
    }
    return kvmem::Layout::build(config, file);
}

const char *disk_mode(const kvmem::Layout &layout) {
    return layout.region(0).info().flags.has(kvmem::RegionFlag::direct_io) ? "O_DIRECT" : "buffered";
}
