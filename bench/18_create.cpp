// SPDX-License-Identifier: Apache-2.0
// Row 18, creation: the time per pair of kvmem_transfer_create between host layouts, and between host memory and files.
// It must not depend on the number of layers and rows.
#include "common/block_ids.hpp"
#include "common/clock.hpp"
#include "common/program.hpp"

#include <cmath>

namespace {

using namespace bench;

constexpr uint32_t pool = 100'000;
// Nanoseconds per pair.
constexpr double limit_ns = 150;

enum class place { memory, file };

struct direction {
    const char *name;
    const char *from;
    const char *to;
    place source = place::memory;
    place destination = place::memory;
};

// The first two have one move per layer and outer slot of a block, the third one move per head of a token.
constexpr direction directions[] = {
    {"fully contiguous to layer separate", "BLONHC", "L/OBNHC"},
    {"layer separate to fully contiguous", "L/OBNHC", "BLONHC"},
    {"NHD to HND", "L/OBNHC", "L/OBHNC"},
    {"layer separate to a contiguous file", "L/OBNHC", "BLONHC", place::memory, place::file},
    {"contiguous file to layer separate", "BLONHC", "L/OBNHC", place::file, place::memory},
    {"HND file to NHD", "L/OBHNC", "L/OBNHC", place::file, place::memory},
};

// Points besides the fixed ones, because the limit must not hold only at round numbers.
constexpr int random_points = 3;

// Blocks of 2 tokens and 2 heads of one element. They can be small, because creating a transfer does not read them.
kv::layout make_side(place where, const char *order, uint64_t num_layers)
{
    kvmem_layout_config config{};
    config.struct_size = sizeof config;
    config.num_blocks = pool;
    config.num_layers = num_layers;
    config.outer_dim = 2;
    config.page_size = 2;
    config.num_heads = 2;
    config.inner_dim = 2;
    config.dtype_width = 2;
    config.order = order;
    if (where == place::memory)
        return kv::make_layout(config, nullptr, 0);
    return kv::make_file(config, KVMEM_DISK_BUFFERED);
}

void measure_case(const options &chosen, const direction &route, uint64_t num_layers, uint32_t count, results &found)
{
    const kv::layout from = make_side(route.source, route.from, num_layers);
    const kv::layout to = make_side(route.destination, route.to, num_layers);
    std::mt19937 random(18 + count);
    const std::vector<uint32_t> sources = scattered_ids(count, pool, 1, random);
    const std::vector<uint32_t> destinations = scattered_ids(count, pool, 1, random);
    kv::pairs pairs;
    for (uint32_t index = 0; index < count; ++index)
        pairs.push_back({sources[index], destinations[index]});
    kv::transfer made;
    const std::vector<samples> taken = alternate(chosen.rounds(25), {[&] {
        made.reset();
        return time_ns([&] { made = kv::make_transfer(from, to, pairs); }) / count;
    }});
    const parameters point = {{"direction", route.name}, {"layers", num_layers}, {"pairs", count}};
    found.add({"18-create", point, taken[0], "the limit", {limit_ns}, {}, "ns per pair"});
}

void measure(const options &chosen, results &found)
{
    std::mt19937 random(std::random_device{}());
    std::uniform_int_distribution<uint64_t> any_layers(1, 128);
    std::uniform_real_distribution<double> any_magnitude(2, 5);
    for (const direction &route : directions) {
        for (const uint64_t num_layers : {1, 16, 128})
            for (const uint32_t count : {100, 1000, 10'000, 100'000})
                measure_case(chosen, route, num_layers, count, found);
        for (int point = 0; point < random_points; ++point) {
            const auto count = static_cast<uint32_t>(std::pow(10, any_magnitude(random)));
            measure_case(chosen, route, any_layers(random), count, found);
        }
    }
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
