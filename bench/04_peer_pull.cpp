// SPDX-License-Identifier: Apache-2.0
// Row 4: scattered blocks pulled from another process's cache, on the same GPU and on the other GPU of a pair, in plain
// and in VMM memory, against NIXL and the driver's copies.
#include "common/block_ids.hpp"
#include "common/gpu.hpp"
#include "common/methods.hpp"
#include "common/peer_cache.hpp"
#include "common/points.hpp"

#include <algorithm>

namespace {

using namespace bench;

constexpr int device = 0;
constexpr uint32_t spread = 2; // blocks of a cache per block that is pulled
constexpr uint64_t max_moved = 1 << 30;
constexpr uint32_t max_blocks = 8192;
// NIXL moves VMM memory at less than 1 GB/s, so comparisons with it have fewer blocks and turns.
constexpr uint64_t max_with_slow_reference = 32 << 20;
constexpr int rounds_with_slow_reference = 3;

struct grid_point {
    neighbour where;
    bool elastic;
    uint64_t block_bytes;
    uint32_t blocks;

    uint64_t cache_bytes() const { return block_bytes * blocks * spread; }
    const char *memory() const { return elastic ? "VMM" : "cudaMalloc"; }
    std::string title() const
    {
        return where.title + ", " + memory() + ", " + std::to_string(blocks) + " blocks of " +
               std::to_string(block_bytes >> 10) + " KiB";
    }
};

std::vector<grid_point> grid_of(const options &chosen, const std::vector<neighbour> &neighbours)
{
    const std::vector<uint64_t> sizes =
        chosen.quick ? std::vector<uint64_t>{4 << 10, 64 << 10, 1 << 20}
                     : std::vector<uint64_t>{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};
    const uint64_t most = chosen.quick ? 8 << 20 : max_moved;
    std::vector<grid_point> grid;
    for (const neighbour &where : neighbours)
        for (const bool elastic : {false, true})
            for (const uint64_t size : sizes)
                grid.push_back({where, elastic, size,
                                static_cast<uint32_t>(std::min<uint64_t>(max_blocks, most / size))});
    return grid;
}

// The blocks of one comparison, moved by each method.
struct comparison {
    const peer_cache &caches;
    const grid_point &point;
    const kv::pairs &pairs;
    int rounds;
    bool is_bounded;
};

void compare(const comparison &made, const std::vector<move_method> &methods, results &found)
{
    const side &to = made.caches.ours();
    const uint64_t bytes = made.pairs.size() * made.point.block_bytes;
    const checked_move moved = {bytes, [&] { to.wipe(made.pairs); }, [&] { to.verify(made.pairs); },
                                [&] { to.wipe_first(bytes); }};
    const std::vector<move_times> times = alternate_moves(made.rounds, moved, methods);
    parameters setting = {{"peer", made.point.where.title},
                       {"memory", made.point.memory()},
                       {"block_bytes", made.point.block_bytes},
                       {"blocks", made.pairs.size()},
                       {"gpu", gpu_description(device)}};
    if (made.is_bounded)
        setting.emplace_back("bounded", "fewer blocks and turns: the reference is slow");
    add_move_rows(found, "04-peer-pull", setting, bytes, methods, times);
}

// The driver's copies read the same mapped memory.
void compare_all(const options &chosen, const peer_cache &caches, const grid_point &point,
                 const kv::pairs &pairs, results &found)
{
    const moved_blocks moved = {caches.theirs(), caches.ours(), pairs};
    const uint64_t bytes = pairs.size() * point.block_bytes;
    std::vector<move_method> methods = prepared(moved, chosen);
    append(methods, driver_batch(moved));
    methods.push_back(driver_loop(moved));
    if (!point.elastic)
        append(methods, caches.by_nixl(pairs));
    methods.push_back(one_large_copy(moved, bytes));
    compare({caches, point, pairs, chosen.rounds(rounds_for(bytes)), false}, methods, found);
}

void compare_bounded(const options &chosen, const peer_cache &caches, const grid_point &point,
                     const kv::pairs &pairs, results &found)
{
    const size_t few = std::min<size_t>(pairs.size(), max_with_slow_reference / point.block_bytes);
    const kv::pairs some(pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(few));
    const std::vector<move_method> slow = caches.by_nixl(some);
    if (slow.empty())
        return;
    const moved_blocks moved = {caches.theirs(), caches.ours(), some};
    std::vector<move_method> methods = prepared(moved, chosen);
    append(methods, slow);
    methods.push_back(one_large_copy(moved, few * point.block_bytes));
    compare({caches, point, some, rounds_with_slow_reference, true}, methods, found);
}

void measure_point(const options &chosen, const grid_point &point, results &found)
{
    const arena mirror(place::host, device, point.cache_bytes());
    const peer_cache caches({point.block_bytes, point.blocks * spread, point.elastic}, device,
                            point.where.device, mirror);
    const kv::pairs pairs = scattered_pairs(point.blocks, point.blocks * spread);
    compare_all(chosen, caches, point, pairs, found);
    if (point.elastic)
        compare_bounded(chosen, caches, point, pairs, found);
}

void measure(const options &chosen, results &found)
{
    warn_of_stand_in();
    const cuda::current_device current(device);
    points grid(chosen);
    for (const grid_point &point : grid_of(chosen, neighbours_of(device, grid)))
        grid.measure(point.title(), [&] { measure_point(chosen, point, found); });
    grid.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure, bench::serve_cache); }
