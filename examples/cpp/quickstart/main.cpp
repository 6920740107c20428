// SPDX-License-Identifier: Apache-2.0
// An engine's own paged cache: kvmem adopts its tensors, offloads blocks to a file and restores them to other blocks.
#include <kvmem.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

template <auto destroy>
struct Destroy {
    void operator()(auto *handle) const { destroy(handle); }
};
using Region = std::unique_ptr<kvmem_region, Destroy<kvmem_region_destroy>>;
using Layout = std::unique_ptr<kvmem_layout, Destroy<kvmem_layout_destroy>>;
using Transfer = std::unique_ptr<kvmem_transfer, Destroy<kvmem_transfer_destroy>>;

// Calls any fallible function of kvmem, and throws its error.
void call(auto function, auto... arguments) {
    kvmem_error *error = nullptr;
    if (function(arguments..., &error) >= 0) return;
    const std::unique_ptr<kvmem_error, Destroy<kvmem_error_destroy>> owned(error);
    throw std::runtime_error(kvmem_error_message(error, nullptr));
}

template <typename Handle>
Handle make(auto function, auto... arguments) {
    typename Handle::pointer handle = nullptr;
    call(function, arguments..., &handle);
    return Handle(handle);
}

// An options struct with its defaults.
template <typename Options>
Options defaults(void (*init)(Options *, std::size_t)) {
    Options options;
    init(&options, sizeof options);
    return options;
}

constexpr std::size_t layers = 4, blocks = 64, piece_bytes = 16 * 8 * 128 * 2;
alignas(4096) std::byte cache[layers][2][blocks][piece_bytes];  // the engine's

kvmem_layout_config model_shape(std::uint32_t kind, std::uint32_t block_dim) {
    auto shape = defaults(kvmem_layout_config_init);
    shape.num_blocks = blocks;
    shape.num_layers = layers;
    shape.outer_dim = 2;
    shape.page_size = 16;
    shape.inner_dim = 8 * 128;
    shape.dtype_width = 2;
    shape.alignment = 4096;
    shape.kind = kind;
    shape.block_dim = block_dim;
    return shape;
}

// One tensor per layer, [keys and values][block][token][head][dim], as vLLM's FlashAttention backend has them.
Layout describe_cache() {
    std::vector<Region> tensors;
    std::vector<kvmem_region *> regions;
    for (auto &tensor : cache) {
        auto memory = defaults(kvmem_adopt_options_init);
        memory.address = tensor;
        memory.size = sizeof tensor;
        tensors.push_back(make<Region>(kvmem_region_adopt_host, &memory));
        regions.push_back(tensors.back().get());
    }
    const auto shape = model_shape(KVMEM_LAYOUT_LAYER_SEPARATE, KVMEM_BLOCK_DIM_SECOND);
    auto options = defaults(kvmem_layout_options_init);
    options.config = &shape;
    options.regions = regions.data();
    options.count = regions.size();
    options.source = KVMEM_LAYOUT_REGIONS;
    return make<Layout>(kvmem_layout_build, &options);
}

// In the file a block is contiguous, whatever the cache looks like.
Layout create_file() {
    const auto shape = model_shape(KVMEM_LAYOUT_FULLY_CONTIGUOUS, KVMEM_BLOCK_DIM_FIRST);
    const auto file = defaults(kvmem_disk_options_init);
    auto options = defaults(kvmem_layout_options_init);
    options.config = &shape;
    options.disk = &file;
    options.source = KVMEM_LAYOUT_ALLOCATE;
    return make<Layout>(kvmem_layout_build, &options);
}

void move(const Layout &from, const Layout &to, const std::vector<kvmem_block_pair> &pairs) {
    auto options = defaults(kvmem_transfer_options_init);
    options.pairs = pairs.data();
    options.num_pairs = pairs.size();
    const auto transfer = make<Transfer>(kvmem_transfer_start, from.get(), to.get(), &options);
    call(kvmem_transfer_wait, transfer.get(), KVMEM_TIMEOUT_FOREVER);
}

int main() try {
    const auto engine = describe_cache(), file = create_file();
    std::strcpy(reinterpret_cast<char *>(cache[3][1][7]), "the values of block 7 in layer 3");
    move(engine, file, {{.source = 7, .destination = 0}, {.source = 8, .destination = 1}});
    std::memset(cache, 0, sizeof cache);
    move(file, engine, {{.source = 0, .destination = 42}, {.source = 1, .destination = 43}});
    std::printf("block 42 has %s\n", reinterpret_cast<char *>(cache[3][1][42]));
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
