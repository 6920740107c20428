// SPDX-License-Identifier: Apache-2.0
// An engine's own paged cache: kvmem adopts its tensors, offloads blocks to a file and restores them to other blocks.
#include <kvmem.hpp>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

constexpr std::size_t layers = 4, blocks = 64, piece_bytes = 16 * 8 * 128 * 2;
alignas(4096) std::byte cache[layers][2][blocks][piece_bytes];  // the engine's

kvmem::LayoutConfig model_shape(const char *order) {
    return {.num_blocks = blocks, .num_layers = layers, .outer_dim = 2, .page_size = 16, .inner_dim = 8 * 128,
            .dtype_width = 2, .order = order, .alignment = 4096};
}

// One tensor per layer, [keys and values][block][token][head][dim], as vLLM's FlashAttention backend has them.
kvmem::Layout describe_cache() {
    std::vector<kvmem::Region> tensors;
    for (auto &tensor : cache) {
        tensors.push_back(kvmem::Region::adopt_host({.address = tensor, .size = sizeof tensor}));
    }
    const auto shape = model_shape(KVMEM_ORDER_LAYER_SEPARATE_OUTER_FIRST);
    return kvmem::Layout::build(shape, tensors);
}

// In the file a block is contiguous, whatever the cache looks like.
kvmem::Layout create_file() {
    const auto shape = model_shape(KVMEM_ORDER_FULLY_CONTIGUOUS);
    return kvmem::Layout::build(shape, kvmem::DiskOptions());
}

void move(const kvmem::Layout &from, const kvmem::Layout &to, const std::vector<kvmem::BlockPair> &pairs) {
    kvmem::Transfer::start(from, to, {}, {.pairs = pairs}).wait();
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
