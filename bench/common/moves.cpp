// SPDX-License-Identifier: Apache-2.0
// The turns of the ways, and their rows.
#include "common/moves.hpp"

#include "common/clock.hpp"
#include "reference/stopwatch.hpp"

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

void take_callers_turn(const move_way &way, move_times &times)
{
    const double start = now_ns();
    way.submit();
    const double submitted = now_ns();
    way.wait();
    times.seen.push_back(now_ns() - start);
    times.submit.push_back(submitted - start);
}

void take_gpu_turn(const move_way &way, move_times &times)
{
    cuda::stopwatch watch;
    watch.start(way.stream);
    way.submit_on_stream();
    watch.stop(way.stream);
    way.wait();
    times.gpu.push_back(watch.wait_ns());
}

using turn = void (*)(const move_way &, move_times &);

void take_checked_turn(turn take, const move_way &way, const checked_move &moved, move_times &times)
{
    if (way.role == role::ceiling) {
        moved.wipe_for_ceiling();
        take(way, times);
        return;
    }
    moved.wipe();
    take(way, times);
    moved.verify();
}

void take_turn(const move_way &way, const checked_move &moved, move_times &times)
{
    take_checked_turn(take_callers_turn, way, moved, times);
    if (way.submit_on_stream)
        take_checked_turn(take_gpu_turn, way, moved, times);
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

struct rows_of_moves {
    results &found;
    const std::string &name;
    const parameters &measured;
    const std::vector<move_way> &ways;
    const std::vector<move_times> &times;

    // A row of each way of ours against each reference, where both have such samples.
    template <typename Convert> void add(const char *timed, samples move_times::*taken, bool with_ceiling,
                                         const char *unit, Convert convert) const
    {
        for (size_t ours = 0; ours < ways.size(); ++ours)
            for (size_t reference = 0; reference < ways.size(); ++reference) {
                if (ways[ours].role != role::ours || ways[reference].role != role::reference ||
                    (times[ours].*taken).empty() || (times[reference].*taken).empty())
                    continue;
                parameters all = measured;
                all.emplace_back("way", ways[ours].name);
                all.emplace_back("path", ways[ours].path());
                all.emplace_back("timed", timed);
                found.add({name, all, convert(times[ours].*taken), ways[reference].name,
                           convert(times[reference].*taken),
                           with_ceiling ? convert(ceiling(taken)) : samples(), unit});
            }
    }

    samples ceiling(samples move_times::*taken) const
    {
        for (size_t which = 0; which < ways.size(); ++which)
            if (ways[which].role == role::ceiling)
                return times[which].*taken;
        return {};
    }
};

} // namespace

std::vector<move_times> alternate_moves(int rounds, const checked_move &moved,
                                        const std::vector<move_way> &ways)
{
    std::vector<bool> in(ways.size(), true);
    std::vector<move_times> times(ways.size());
    for (int round = -1; round < rounds; ++round) {
        if (round == 0)
            times.assign(ways.size(), {});
        for (size_t step = 0; step < ways.size(); ++step) {
            // Another one begins each round: none always follows the same one.
            const size_t which = (step + static_cast<size_t>(round + 1)) % ways.size();
            in[which] = in[which] && take_turn_or_drop(ways[which], moved, times[which]);
        }
        require_ours(ways, in);
    }
    return times;
}

void add_move_rows(results &found, const std::string &name, const parameters &measured, uint64_t bytes,
                   const std::vector<move_way> &ways, const std::vector<move_times> &times)
{
    const auto to_rates = [bytes](const samples &taken) { return rates(static_cast<double>(bytes), taken); };
    const rows_of_moves rows = {found, name, measured, ways, times};
    rows.add("submit to seen", &move_times::seen, true, "GB/s", to_rates);
    rows.add("on the GPU", &move_times::gpu, true, "GB/s", to_rates);
    rows.add("submitting call", &move_times::submit, false, "us", microseconds);
}

int rounds_for(uint64_t bytes) { return bytes > uint64_t{1} << 30 ? 3 : bytes > 64 << 20 ? 5 : 9; }

} // namespace bench
