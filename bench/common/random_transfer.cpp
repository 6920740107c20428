// SPDX-License-Identifier: Apache-2.0
// Transfers drawn from a seed. Only the generator's bits are used, because the standard's distributions differ between
// libraries: a seed gives the same points on every machine.
#include "common/random_transfer.hpp"

#include "common/block_ids.hpp"

#include <algorithm>
#include <cmath>

namespace bench {
namespace {

constexpr uint32_t spread = 2; // blocks of a side per block that moves
constexpr uint32_t run_length = 8;

double uniform(std::mt19937_64 &random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

uint64_t below(std::mt19937_64 &random, uint64_t end) { return random() % end; }

// Uniform in the logarithm.
uint64_t between(std::mt19937_64 &random, uint64_t least, uint64_t most)
{
    const double low = std::log(static_cast<double>(least));
    const double high = std::log(static_cast<double>(most));
    return std::clamp(static_cast<uint64_t>(std::exp(low + uniform(random) * (high - low))), least, most);
}

bool is_power_of_two(uint64_t value) { return (value & (value - 1)) == 0; }

kvmem_layout_config config(uint64_t layers, uint64_t outers, uint64_t tokens, uint64_t token_bytes)
{
    kvmem_layout_config made{};
    made.struct_size = sizeof made;
    made.num_layers = layers;
    made.outer_dim = outers;
    made.page_size = tokens;
    made.dtype_width = 2;
    made.inner_dim = token_bytes / made.dtype_width;
    made.order = KVMEM_ORDER_FULLY_CONTIGUOUS;
    return made;
}

kvmem_layout_config ordered(kvmem_layout_config made, const char *order)
{
    made.order = order;
    return made;
}

struct engine_shape {
    const char *name;
    kvmem_layout_config gpu;
    kvmem_layout_config host;
};

// The caches of engines, from tokens per block and bytes per token in one layer (and outer slot).
std::vector<engine_shape> engine_shapes()
{
    const auto second = [](kvmem_layout_config made) {
        return ordered(made, KVMEM_ORDER_LAYER_SEPARATE_OUTER_FIRST);
    };
    const auto first = [](kvmem_layout_config made) { return ordered(made, KVMEM_ORDER_LAYER_SEPARATE); };
    const kvmem_layout_config llama = config(32, 2, 16, 8 * 128 * 2);
    const kvmem_layout_config sharded = config(32, 2, 16, 128 * 2);
    const kvmem_layout_config packed = config(36, 1, 16, 8 * 256 * 2);
    const kvmem_layout_config mla = config(61, 1, 64, 576 * 2);
    const kvmem_layout_config mla_16 = config(61, 1, 16, 576 * 2);
    const kvmem_layout_config fp8_mla = config(61, 1, 64, 656);
    const kvmem_layout_config indexer = config(61, 1, 64, 132);
    const kvmem_layout_config gptoss = config(36, 2, 16, 8 * 64 * 2);
    const kvmem_layout_config one_token = config(28, 2, 1, 4 * 128 * 2);
    return {
        {"vLLM L/OBNHC, host BLO", second(llama), llama},
        {"vLLM L/OBNHC, host the same", second(llama), second(llama)},
        {"vLLM L/BNHC, K and V packed, host BLO", first(packed), packed},
        {"vLLM one of 8 ranks L/OBNHC, host BLO", second(sharded), sharded},
        {"MLA L/BNC 64 tokens, host BL", first(mla), mla},
        {"MLA L/BNC 16 tokens, host BL", first(mla_16), mla_16},
        {"fp8_ds_mla L/BNC 64 tokens, host BL", first(fp8_mla), fp8_mla},
        {"DSA indexer L/BNC 64 tokens, host BL", first(indexer), indexer},
        {"TensorRT-LLM BLO, host the same", gptoss, gptoss},
        {"SGLang L/OB of one token, host BLO", second(one_token), one_token},
    };
}

random_transfer of_size(std::mt19937_64 &random, random_transfer made, uint64_t max_blocks)
{
    made.blocks = static_cast<uint32_t>(between(random, 1, std::max<uint64_t>(max_blocks, 1)));
    made.order = static_cast<host_order>(below(random, 3));
    made.to_device = below(random, 2) == 0;
    made.gpu.num_blocks = made.host.num_blocks =
        std::max<uint64_t>(uint64_t{made.blocks} * spread, run_length);
    return made;
}

} // namespace

const char *name_of(host_order order)
{
    switch (order) {
    case host_order::scattered: return "scattered";
    case host_order::in_runs: return "in runs of 8";
    case host_order::contiguous: return "contiguous";
    }
    return "";
}

const char *name_of(compute meanwhile)
{
    switch (meanwhile) {
    case compute::declared_idle: return "idle, as kvmem is told";
    case compute::idle: return "idle";
    case compute::beside: return "beside GEMMs";
    }
    return "";
}

uint64_t random_transfer::piece_bytes() const { return gpu.page_size * gpu.inner_dim * gpu.dtype_width; }

uint64_t random_transfer::block_bytes() const { return gpu.num_layers * gpu.outer_dim * piece_bytes(); }

std::string random_transfer::title() const
{
    return shape + ", " + (to_device ? "H2D" : "D2H") + ", " + std::to_string(blocks) + " blocks, pieces of " +
           std::to_string(piece_bytes()) + " bytes, host " + name_of(order) +
           ", " + name_of(compute);
}

kv::pairs random_transfer::pairs() const
{
    const auto pool = static_cast<uint32_t>(gpu.num_blocks);
    kv::pairs made = scattered_pairs(blocks, pool);
    const kv::pairs by_runs = scattered_pairs(blocks, pool / run_length * run_length, run_length);
    for (uint32_t index = 0; index < made.size(); ++index) {
        uint32_t &on_host = to_device ? made[index].source : made[index].destination;
        if (order == host_order::contiguous)
            on_host = index;
        else if (order == host_order::in_runs)
            on_host = by_runs[index].source;
    }
    return made;
}

random_transfer draw_blocks(std::mt19937_64 &random, uint64_t max_bytes)
{
    constexpr uint64_t unit = 16;
    constexpr uint64_t least = 512;
    constexpr uint64_t most = 8 << 20;
    uint64_t size = 0;
    do
        size = between(random, least, std::min(most, max_bytes)) / unit * unit;
    while (size < least || is_power_of_two(size));
    const kvmem_layout_config one_piece = config(1, 1, 1, size);
    const random_transfer made = {"blocks", one_piece, one_piece, 0, {}, false, {}};
    return of_size(random, made, std::min<uint64_t>(max_bytes / size, 65'536));
}

std::vector<random_transfer> listed_transfers()
{
    struct listed {
        uint32_t blocks;
        uint64_t piece_bytes;
        bool to_device;
    };
    constexpr uint64_t kib = 1 << 10;
    constexpr listed all[] = {{4, 18 * kib, true},      {4, 24 * kib, true},       {4, 18 * kib, false},
                              {32'000, 2 * kib, false}, {16'000, 18 * kib, true},  {2'000, 24 * kib, true},
                              {2'000, 48 * kib, false}, {16'000, 32 * kib, false}, {2'000, 96 * kib, true}};
    std::vector<random_transfer> made;
    for (const auto &[blocks, piece_bytes, to_device] : all)
        for (const auto order : {host_order::scattered, host_order::in_runs})
            for (const auto meanwhile : {compute::declared_idle, compute::idle}) {
                kvmem_layout_config one_piece = config(1, 1, 1, piece_bytes);
                one_piece.num_blocks = std::max(blocks * spread, run_length);
                made.push_back({"listed", one_piece, one_piece, blocks, order, to_device, meanwhile});
            }
    return made;
}

random_transfer draw_engine(std::mt19937_64 &random, uint64_t max_bytes)
{
    const std::vector<engine_shape> shapes = engine_shapes();
    const engine_shape &shape = shapes[below(random, shapes.size())];
    const random_transfer made = {shape.name, shape.gpu, shape.host, 0, {}, false, {}};
    return of_size(random, made, max_bytes / made.block_bytes());
}

} // namespace bench
