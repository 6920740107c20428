// SPDX-License-Identifier: Apache-2.0
// Builds the geometry and the disk layout, and finds pieces by their strides.
#include "cache.hpp"

namespace {

constexpr std::uint64_t keys_and_values = 2;
constexpr std::uint64_t bf16 = 2;
constexpr std::uint64_t direct_io_unit = 4096;

}  // namespace

Cache::Cache(kv::Layout built, kv::Layout beside)
    : layout(std::move(built)),
      staging(std::move(beside)),
      info(kv::get<kvmem_layout_info>(kvmem_layout_get_info, layout.get())),
      strides(kv::get<kvmem_layout_strides>(kvmem_layout_get_strides, host())) {}

std::byte *Cache::piece(std::uint64_t block, std::uint64_t layer, std::uint64_t outer) const {
    const std::uint64_t base = strides.bases[strides.num_bases > 1 ? layer : 0];
    return reinterpret_cast<std::byte *>(base + block * strides.block_stride + layer * strides.layer_stride +
                                         outer * strides.outer_stride);
}

std::uint64_t Cache::block_bytes() const {
    return info.num_layers * info.outer_dim * strides.size;
}

kvmem_layout_config geometry(const Options &options, std::uint32_t kind, std::uint64_t blocks) {
    auto config = kv::defaults(kvmem_layout_config_init);
    config.num_blocks = blocks;
    config.num_layers = options.layers;
    config.outer_dim = keys_and_values;
    config.page_size = options.page_size;
    config.inner_dim = options.heads * options.head_dim;
    config.num_heads = options.heads;
    config.dtype_width = bf16;
    config.kind = kind;
    return config;
}

kv::Layout build_disk_layout(const Options &options, std::uint64_t blocks) {
    // Fully contiguous: a block is one extent of the file, whatever it looks like in memory.
    const auto config = geometry(options, KVMEM_LAYOUT_FULLY_CONTIGUOUS, blocks);
    auto file = kv::defaults(kvmem_disk_options_init);
    if (!options.disk_dir.empty()) file.directory = options.disk_dir.c_str();
    // O_DIRECT moves whole sectors only; pieces smaller than one go through the page cache.
    if (config.page_size * config.inner_dim * config.dtype_width % direct_io_unit != 0) {
        file.flags |= KVMEM_DISK_BUFFERED;
    }
    auto layout = kv::defaults(kvmem_layout_options_init);
    layout.config = &config;
    layout.source = KVMEM_LAYOUT_ALLOCATE;
    layout.disk = &file;
    return kv::make<kv::Layout>(kvmem_layout_build, &layout);
}

const char *disk_mode(const kvmem_layout *layout) {
    const auto file = kv::make<kv::Region>(kvmem_layout_get_region, layout, std::size_t{0});
    const auto info = kv::get<kvmem_region_info>(kvmem_region_get_info, file.get());
    return info.flags & KVMEM_REGION_DIRECT_IO ? "O_DIRECT" : "buffered";
}
