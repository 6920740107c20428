// SPDX-License-Identifier: Apache-2.0
// The turns of the ways, and their rows.
#include "common/moves.hpp"

#include "common/clock.hpp"

#include <cstdio>
#include <exception>
#include <stdexcept>

namespace bench {
namespace {

samples microseconds(const samples &nanoseconds)
{
    samples values;
    for (double value : nanoseconds)
        values.push_back(value * 1e-3);
    return values;
}

void take_turn(const move_way &way, const checked_move &moved, move_times &times)
{
    const bool checked = way.role != role::ceiling;
    if (checked)
        moved.wipe();
    const double start = now_ns();
    way.submit();
    const double submitted = now_ns();
    way.wait();
    times.seen.push_back(now_ns() - start);
    times.submit.push_back(submitted - start);
    if (checked)
        moved.verify();
}

// Answers whether the way is still in.
bool take_turn_or_drop(const move_way &way, const checked_move &moved, move_times &times)
{
    try {
        take_turn(way, moved, times);
        return true;
    } catch (const std::exception &failure) {
        std::printf("    %s drops out: %s\n", way.name.c_str(), failure.what());
        times = {};
        return false;
    }
}

void require_ours(const std::vector<move_way> &ways, const std::vector<bool> &in)
{
    for (size_t which = 0; which < ways.size(); ++which)
        if (ways[which].role == role::ours && in[which])
            return;
    throw std::runtime_error("no way of ours is left");
}

struct pairing {
    size_t ours;
    size_t reference;
};

std::vector<pairing> pairings(const std::vector<move_way> &ways, const std::vector<move_times> &times)
{
    std::vector<pairing> found;
    for (size_t ours = 0; ours < ways.size(); ++ours)
        for (size_t reference = 0; reference < ways.size(); ++reference)
            if (ways[ours].role == role::ours && ways[reference].role == role::reference &&
                !times[ours].seen.empty() && !times[reference].seen.empty())
                found.push_back({ours, reference});
    return found;
}

samples ceiling_of(uint64_t bytes, const std::vector<move_way> &ways, const std::vector<move_times> &times)
{
    for (size_t which = 0; which < ways.size(); ++which)
        if (ways[which].role == role::ceiling)
            return rates(static_cast<double>(bytes), times[which].seen);
    return {};
}

} // namespace

std::vector<move_times> alternate_moves(int rounds, const checked_move &moved, const std::vector<move_way> &ways)
{
    std::vector<bool> in(ways.size(), true);
    std::vector<move_times> times(ways.size());
    for (int round = -1; round < rounds; ++round) {
        if (round == 0)
            times.assign(ways.size(), {});
        for (size_t which = 0; which < ways.size(); ++which)
            in[which] = in[which] && take_turn_or_drop(ways[which], moved, times[which]);
        require_ours(ways, in);
    }
    return times;
}

void add_move_rows(results &found, const std::string &name, const parameters &measured, uint64_t bytes,
                   const std::vector<move_way> &ways, const std::vector<move_times> &times)
{
    const auto amount = static_cast<double>(bytes);
    const samples ceiling = ceiling_of(bytes, ways, times);
    for (const auto &[ours, reference] : pairings(ways, times)) {
        parameters all = measured;
        all.emplace_back("way", ways[ours].name);
        all.emplace_back("path", ways[ours].path());
        all.emplace_back("timed", "submit to seen");
        found.add({name, all, rates(amount, times[ours].seen), ways[reference].name,
                   rates(amount, times[reference].seen), ceiling, "GB/s"});
        all.back().second = "submitting call";
        found.add({name, all, microseconds(times[ours].submit), ways[reference].name,
                   microseconds(times[reference].submit), {}, "us"});
    }
}

int rounds_for(uint64_t bytes) { return bytes > uint64_t{1} << 30 ? 3 : bytes > 64 << 20 ? 5 : 9; }

} // namespace bench
