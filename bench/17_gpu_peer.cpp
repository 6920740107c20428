// SPDX-License-Identifier: Apache-2.0
// Row 17 on a GPU: scattered blocks of another process's cache over NIXL, with mapping forbidden. The owner gathers
// blocks in plain memory, NIXL reads them, and this process scatters them. The reference is NIXL between the caches.
// The ceiling is one large copy of as many bytes from mapped memory.
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
constexpr int rounds_with_reference = 3;
// A request to the owner has at most 256 KiB: 21,845 scattered blocks of 12 bytes each.
constexpr uint32_t max_blocks = 21845;

struct grid_point {
    neighbour where;
    bool elastic;
    bool from_host; // the owner's staging memory is page-locked
    uint64_t block_bytes;
    uint64_t bytes;   // of all blocks that are pulled
    uint64_t staging; // bytes of staging memory, in each process
    bool with_reference; // false for large points: NIXL moves VMM memory at less than 1 GB/s

    uint32_t blocks() const { return static_cast<uint32_t>(bytes / block_bytes); }
    const char *memory() const { return elastic ? "VMM" : "cudaMalloc"; }
    const char *staging_memory() const { return from_host ? "page-locked" : "GPU"; }
    std::string title() const
    {
        return where.title + ", " + memory() + ", " + std::to_string(bytes >> 20) + " MiB in blocks of " +
               std::to_string(block_bytes >> 10) + " KiB, " + staging_memory() + " staging memory of " +
               std::to_string(staging >> 20) + " MiB";
    }
};

std::vector<grid_point> grid_of(const options &chosen, const std::vector<neighbour> &neighbours)
{
    const std::vector<uint64_t> sizes = {4 << 10, 16 << 10, 64 << 10, 1 << 20};
    const uint64_t few = 32 << 20, many = 512 << 20, small_staging = 64 << 20, large_staging = 256 << 20;
    std::vector<grid_point> grid;
    for (const neighbour &where : neighbours)
        for (const bool elastic : {true, false})
            for (const bool from_host : {false, true})
                for (const uint64_t size : sizes)
                    grid.push_back({where, elastic, from_host, size, few, small_staging, true});
    if (!chosen.quick)
        for (const neighbour &where : neighbours)
            for (const bool from_host : {false, true})
                for (const uint64_t size : sizes)
                    for (const uint64_t staging : {small_staging, large_staging})
                        grid.push_back({where, true, from_host, size, many, staging, false});
    const auto cannot = [](const grid_point &point) { return point.blocks() > max_blocks; };
    grid.erase(std::remove_if(grid.begin(), grid.end(), cannot), grid.end());
    return grid;
}

void measure_point(const options &chosen, const grid_point &point, results &found)
{
    const uint64_t num_blocks = uint64_t{point.blocks()} * spread;
    const arena mirror(place::host, device, num_blocks * point.block_bytes + (uint64_t{256} << 20));
    const peer_cache caches({point.block_bytes, num_blocks, point.elastic, point.staging, point.from_host}, device,
                            point.where.device, mirror);
    const kv::pairs pairs = scattered_pairs(point.blocks(), static_cast<uint32_t>(num_blocks));
    std::vector<move_method> methods = {caches.by_kvmem("served", pairs, KVMEM_METHOD_NIXL_SERVED)};
    if (point.with_reference) {
        methods.push_back(caches.by_kvmem("as chosen", pairs, 0));
        append(methods, caches.by_nixl(pairs));
    }
    const moved_blocks moved = {caches.theirs(), caches.ours(), pairs};
    methods.push_back(one_large_copy(moved, point.bytes));
    const side &to = caches.ours();
    const checked_move checked = {point.bytes, [&] { to.wipe(pairs); }, [&] { to.verify(pairs); },
                                  [&] { to.wipe_first(point.bytes); }};
    const int rounds = point.with_reference ? rounds_with_reference : chosen.rounds(rounds_for(point.bytes));
    const std::vector<move_times> times = alternate_moves(rounds, checked, methods);
    const parameters setting = {{"peer", point.where.title},
                             {"memory", point.memory()},
                             {"block_bytes", point.block_bytes},
                             {"blocks", pairs.size()},
                             {"staging_bytes", point.staging},
                             {"staging_memory", point.staging_memory()},
                             {"gpu", gpu_description(device)}};
    add_move_rows(found, "17-gpu-peer", setting, point.bytes, methods, times);
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
