// SPDX-License-Identifier: Apache-2.0
// Row 3: blocks between a fully contiguous and a layer separate layout, against KVBM's method and the driver's copies.
#include "common/block_ids.hpp"
#include "common/gpu.hpp"
#include "common/methods.hpp"
#include "common/moves.hpp"
#include "common/points.hpp"
#include "common/side.hpp"
#include "reference/cuda.hpp"

#include <algorithm>

namespace {

using namespace bench;

constexpr int device = 0;
constexpr uint64_t layers = 32;
constexpr uint64_t outers = 2;
constexpr uint32_t max_blocks = 313; // 20,032 chunks
constexpr uint64_t max_chunks = max_blocks * layers * outers;
constexpr uint32_t spread = 2; // blocks of a side per block that moves

struct shape {
    uint64_t chunk_bytes; // one layer and outer slot of a block: the longest span that is contiguous on both sides
    uint32_t blocks;
    bool run; // the blocks are consecutive on both sides, and keys and values adjacent
    uint64_t bytes() const { return chunk_bytes * layers * outers * blocks; }
    uint64_t chunks() const { return layers * outers * blocks; }
};

std::vector<shape> shapes_of(const options &chosen)
{
    if (chosen.quick)
        return {{4 << 10, 8, false}, {16 << 10, 8, true}};
    std::vector<shape> shapes;
    for (uint64_t chunk_bytes : {4 << 10, 16 << 10, 64 << 10})
        for (uint32_t blocks : {16u, max_blocks})
            shapes.push_back({chunk_bytes, blocks, false});
    if (chosen.engines)
        for (uint64_t chunk_bytes : {4 << 10, 16 << 10, 64 << 10})
            shapes.push_back({chunk_bytes, max_blocks, true});
    return shapes;
}

// Layer separate with keys and values apart, as in vLLM: no two chunks of a block are adjacent.
kvmem_layout_config config_of(const shape &measured, bool contiguous)
{
    kvmem_layout_config config{};
    config.struct_size = sizeof config;
    config.num_blocks = measured.blocks * spread;
    config.num_layers = layers;
    config.outer_dim = outers;
    config.page_size = 16;
    config.inner_dim = measured.chunk_bytes / (16 * 2);
    config.dtype_width = 2;
    config.order = contiguous     ? KVMEM_ORDER_FULLY_CONTIGUOUS
                   : measured.run ? KVMEM_ORDER_LAYER_SEPARATE
                                  : KVMEM_ORDER_LAYER_SEPARATE_OUTER_FIRST;
    return config;
}

kv::pairs one_run(uint32_t blocks)
{
    kv::pairs pairs;
    for (uint32_t block = 0; block < blocks; ++block)
        pairs.push_back({block, block});
    return pairs;
}

struct direction {
    const char *name;
    const arena &from;
    const arena &to;
    const arena &mirror;
    bool from_contiguous;
    const shared_kernel &kernel;
    const char *change() const
    {
        return from_contiguous ? "fully contiguous to layer separate" : "layer separate to fully contiguous";
    }
};

std::vector<move_method> methods_of(const options &chosen, const moved_blocks &moved, const shared_kernel &kernel,
                              uint64_t bytes)
{
    std::vector<move_method> methods = prepared(moved, chosen);
    methods.push_back(created_each_time(moved));
    append(methods, pointer_kernel(moved, kernel));
    append(methods, driver_batch(moved));
    methods.push_back(driver_loop(moved));
    methods.push_back(one_large_copy(moved, bytes));
    return methods;
}

void measure_shape(const options &chosen, const direction &along, const shape &measured, results &found)
{
    const side from(along.from, along.mirror, config_of(measured, along.from_contiguous));
    const side to(along.to, along.mirror, config_of(measured, !along.from_contiguous));
    from.fill();
    const uint32_t pool = measured.blocks * spread;
    const kv::pairs pairs = measured.run ? one_run(measured.blocks) : scattered_pairs(measured.blocks, pool);
    const std::vector<move_method> methods = methods_of(chosen, {from, to, pairs}, along.kernel, measured.bytes());
    const checked_move moved = {measured.bytes(), [&] { to.wipe(pairs); }, [&] { to.verify(pairs); },
                                [&] { to.wipe_first(measured.bytes()); }};
    const int rounds = chosen.rounds(rounds_for(measured.bytes()));
    const parameters setting = {{"direction", along.name},
                             {"change", along.change()},
                             {"chunk_bytes", measured.chunk_bytes},
                             {"chunks", measured.chunks()},
                             {"blocks", measured.run ? "one run" : "scattered"},
                             {"gpu", gpu_description(device)}};
    add_move_rows(found, "03-layout-change", setting, measured.bytes(), methods,
                  alternate_moves(rounds, moved, methods));
}

void measure_direction(const options &chosen, const direction &along, points &grid, results &found)
{
    const uint64_t most = std::min(along.from.size(), along.mirror.size()) / spread;
    for (const shape &measured : shapes_of(chosen)) {
        const std::string title = std::string(along.name) + ", " + along.change() + ", " +
                                  std::to_string(measured.chunks()) + " chunks of " +
                                  std::to_string(measured.chunk_bytes >> 10) + " KiB" +
                                  (measured.run ? ", one run" : "");
        if (measured.bytes() > most)
            grid.skip(title, "more than " + std::to_string(most >> 20) + " MiB in all");
        else
            grid.measure(title, [&] { measure_shape(chosen, along, measured, found); });
    }
}

void measure(const options &chosen, results &found)
{
    warn_of_stand_in();
    const cuda::current_device current(device);
    const uint64_t size = arena_size(chosen.quick ? 64 << 20 : uint64_t{3} << 30);
    const arena host(place::host, device, size);
    const arena gpu(place::device, device, size);
    const arena other(place::device, device, size);
    const arena mirror(place::host, device, size);
    const shared_kernel kernel = make_pointer_kernel(device, max_chunks);
    points grid(chosen);
    for (bool from_contiguous : {true, false})
        for (const direction &along : {direction{"H2D", host, gpu, mirror, from_contiguous, kernel},
                                       direction{"D2H", gpu, host, mirror, from_contiguous, kernel},
                                       direction{"D2D", gpu, other, mirror, from_contiguous, kernel}})
            measure_direction(chosen, along, grid, found);
    grid.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
