// SPDX-License-Identifier: Apache-2.0
// Which blocks are moved where: pairs scattered over two pools, in runs of a given length.
#pragma once

#include "common/kv.hpp"

#include <algorithm>
#include <numeric>
#include <random>

namespace bench {

// `count` of `pool` block ids, in runs of `run` adjacent ones; the runs stand in random order.
inline std::vector<uint32_t> scattered_ids(uint32_t count, uint32_t pool, uint32_t run, std::mt19937 &random)
{
    std::vector<uint32_t> starts(pool / run);
    std::iota(starts.begin(), starts.end(), 0);
    std::shuffle(starts.begin(), starts.end(), random);
    std::vector<uint32_t> ids;
    for (uint32_t start : starts)
        for (uint32_t within = 0; within < run && ids.size() < count; ++within)
            ids.push_back(start * run + within);
    return ids;
}

// Different ids at source and destination; the same seed gives the same pairs.
inline kv::pairs scattered_pairs(uint32_t count, uint32_t pool, uint32_t run = 1)
{
    std::mt19937 random(20 + run);
    const std::vector<uint32_t> sources = scattered_ids(count, pool, run, random);
    const std::vector<uint32_t> destinations = scattered_ids(count, pool, run, random);
    kv::pairs pairs;
    for (uint32_t index = 0; index < count; ++index)
        pairs.push_back({sources[index], destinations[index]});
    return pairs;
}

} // namespace bench
