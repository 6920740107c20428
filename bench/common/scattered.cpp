// SPDX-License-Identifier: Apache-2.0
// The grid, and one of its points: kvmem, the driver's batch, a loop of its copies, and one large copy.
#include "common/scattered.hpp"

#include "common/block_ids.hpp"
#include "common/methods.hpp"
#include "common/moves.hpp"
#include "common/side.hpp"

#include <algorithm>

namespace bench {
namespace {

constexpr uint32_t spread = 2; // blocks of a side per block that moves

struct grid_point {
    uint64_t block_bytes;
    uint32_t blocks;
    uint64_t bytes() const { return block_bytes * blocks; }
};

std::vector<grid_point> grid_of(const options &chosen)
{
    const std::vector<uint64_t> sizes =
        chosen.quick ? std::vector<uint64_t>{4 << 10, 64 << 10, 1 << 20}
                     : std::vector<uint64_t>{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};
    const std::vector<uint32_t> counts =
        chosen.quick ? std::vector<uint32_t>{64, 1000} : std::vector<uint32_t>{64, 1000, 10'000, 65'536};
    std::vector<grid_point> grid;
    for (uint64_t size : sizes)
        for (uint32_t count : counts)
            grid.push_back({size, count});
    return grid;
}

uint64_t max_moved(const options &chosen) { return chosen.quick ? 64 << 20 : uint64_t{4} << 30; }

kv::pairs pairs_of(const scattered_case &measured, const grid_point &point)
{
    kv::pairs pairs = scattered_pairs(point.blocks, point.blocks * spread);
    for (uint32_t index = 0; index < point.blocks; ++index) {
        if (measured.source == order::contiguous)
            pairs[index].source = index;
        if (measured.destination == order::contiguous)
            pairs[index].destination = index;
    }
    return pairs;
}

std::vector<move_method> methods_of(const options &chosen, const moved_blocks &moved, uint64_t bytes)
{
    std::vector<move_method> methods = prepared(moved, chosen);
    append(methods, driver_batch(moved));
    methods.push_back(driver_loop(moved));
    methods.push_back(one_large_copy(moved, bytes));
    return methods;
}

void measure_point(const options &chosen, const scattered_case &measured, const grid_point &point,
                   results &found)
{
    const kvmem_layout_config config = whole_blocks(point.block_bytes, point.blocks * spread);
    const side from(measured.from, measured.mirror, config);
    const side to(measured.to, measured.mirror, config);
    from.fill();
    const kv::pairs pairs = pairs_of(measured, point);
    const std::vector<move_method> methods = methods_of(chosen, {from, to, pairs}, point.bytes());
    const checked_move moved = {point.bytes(), [&] { to.wipe(pairs); }, [&] { to.verify(pairs); },
                                [&] { to.wipe_first(point.bytes()); }};
    const std::vector<move_times> times =
        alternate_moves(chosen.rounds(rounds_for(point.bytes())), moved, methods);
    parameters all = measured.parameters;
    all.emplace_back("block_bytes", point.block_bytes);
    all.emplace_back("blocks", point.blocks);
    add_move_rows(found, measured.row, all, point.bytes(), methods, times);
}

} // namespace

uint64_t scattered_bytes(const options &chosen) { return max_moved(chosen) * spread; }

void measure_scattered(const options &chosen, const scattered_case &measured, points &grid, results &found)
{
    const uint64_t most = std::min({max_moved(chosen), measured.from.size() / spread,
                                    measured.to.size() / spread, measured.mirror.size() / spread});
    for (const grid_point &point : grid_of(chosen)) {
        const std::string title = measured.title + ", " + std::to_string(point.blocks) + " blocks of " +
                                  std::to_string(point.block_bytes >> 10) + " KiB";
        if (point.bytes() > most)
            grid.skip(title, "more than " + std::to_string(most >> 20) + " MiB in all");
        else
            grid.measure(title, [&] { measure_point(chosen, measured, point, found); });
    }
}

} // namespace bench
