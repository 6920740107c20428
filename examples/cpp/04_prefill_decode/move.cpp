// SPDX-License-Identifier: Apache-2.0
// Consecutive transfers, each small enough to show progress between them.
#include "move.hpp"

#include "progress.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

namespace {

constexpr std::uint64_t batch_bytes = 256u << 20;

}  // namespace

void move_blocks(const Move &move, Row &row, const Deadline &deadline) {
    const std::size_t count = move.source_ids.size();
    const std::size_t batch = std::max<std::uint64_t>(1, batch_bytes / move.block_bytes);
    std::vector<kvmem::BlockPair> pairs(count);
    for (std::size_t i = 0; i < count; ++i) pairs[i] = {move.source_ids[i], move.destination_ids[i]};

    Progress progress(row.process + " " + row.step, count * move.block_bytes);
    const Stopwatch stopwatch;
    for (std::size_t first = 0; first < count; first += batch) {
        kvmem::SubmitOptions blocks;
        blocks.pairs = {pairs.data() + first, std::min(batch, count - first)};
        if (first + blocks.pairs.size() == count && !move.notification.empty()) {
            blocks.notification = std::string(move.notification);
        }
        const auto transfer = kvmem::Transfer::start(move.source, move.destination, {}, blocks);
        if (!transfer.wait_for(deadline.left())) throw std::runtime_error("the transfer has not ended in time");
        const auto info = transfer.info();
        progress.add(info.bytes);
        row.bytes += info.bytes;
        row.path = kvmem::name(info.method);
    }
    row.time = stopwatch.read();
}

BlockIds all_blocks(std::uint64_t count) {
    BlockIds ids(count);
    std::iota(ids.begin(), ids.end(), 0u);
    return ids;
}

BlockIds draw_blocks(std::size_t count, std::uint64_t limit, const BlockIds &avoid, std::uint64_t seed) {
    BlockIds ids = all_blocks(limit);
    std::shuffle(ids.begin(), ids.end(), std::mt19937_64(seed));
    for (std::size_t i = 0; i < std::min(count, avoid.size()); ++i) {
        if (ids[i] == avoid[i]) std::swap(ids[i], ids[(i + 1) % limit]);
    }
    ids.resize(count);
    return ids;
}
