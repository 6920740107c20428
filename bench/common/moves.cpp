// SPDX-License-Identifier: Apache-2.0
// The turns of the methods, and their rows.
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

void take_callers_turn(const move_method &method, move_times &times)
{
    const double start = now_ns();
    method.submit();
    const double submitted = now_ns();
    method.wait();
    times.seen.push_back(now_ns() - start);
    times.submit.push_back(submitted - start);
}

void take_gpu_turn(const move_method &method, move_times &times)
{
    cuda::stopwatch watch;
    watch.start(method.stream);
    method.submit_on_stream();
    watch.stop(method.stream);
    method.wait();
    times.gpu.push_back(watch.wait_ns());
}

using turn = void (*)(const move_method &, move_times &);

void take_checked_turn(turn take, const move_method &method, const checked_move &moved, move_times &times)
{
    if (method.role == role::ceiling) {
        moved.wipe_for_ceiling();
        take(method, times);
        return;
    }
    moved.wipe();
    take(method, times);
    moved.verify();
}

void take_turn(const move_method &method, const checked_move &moved, move_times &times)
{
    take_checked_turn(take_callers_turn, method, moved, times);
    if (method.submit_on_stream)
        take_checked_turn(take_gpu_turn, method, moved, times);
}

// Returns false if the method fails; its results are discarded.
bool take_turn_or_drop(const move_method &method, const checked_move &moved, move_times &times)
{
    try {
        take_turn(method, moved, times);
        return true;
    } catch (const std::exception &failure) {
        std::printf("    %s is left out: %s\n", method.name.c_str(), failure.what());
        times = {};
        return false;
    }
}

void require_ours(const std::vector<move_method> &methods, const std::vector<bool> &in)
{
    for (size_t which = 0; which < methods.size(); ++which)
        if (methods[which].role == role::ours && in[which])
            return;
    throw std::runtime_error("every method of kvmem has failed");
}

struct rows_of_moves {
    results &found;
    const std::string &name;
    const parameters &measured;
    const std::vector<move_method> &methods;
    const std::vector<move_times> &times;

    // Adds a row for each method of kvmem and each reference, if both have such samples.
    template <typename Convert> void add(const char *timed, samples move_times::*taken, bool with_ceiling,
                                         const char *unit, Convert convert) const
    {
        for (size_t ours = 0; ours < methods.size(); ++ours)
            for (size_t reference = 0; reference < methods.size(); ++reference) {
                if (methods[ours].role != role::ours || methods[reference].role != role::reference ||
                    (times[ours].*taken).empty() || (times[reference].*taken).empty())
                    continue;
                parameters all = measured;
                all.emplace_back("way", methods[ours].name);
                all.emplace_back("path", methods[ours].path());
                all.emplace_back("timed", timed);
                found.add({name, all, convert(times[ours].*taken), methods[reference].name,
                           convert(times[reference].*taken),
                           with_ceiling ? convert(ceiling(taken)) : samples(), unit});
            }
    }

    samples ceiling(samples move_times::*taken) const
    {
        for (size_t which = 0; which < methods.size(); ++which)
            if (methods[which].role == role::ceiling)
                return times[which].*taken;
        return {};
    }
};

} // namespace

std::vector<move_times> alternate_moves(int rounds, const checked_move &moved,
                                        const std::vector<move_method> &methods)
{
    std::vector<bool> in(methods.size(), true);
    std::vector<move_times> times(methods.size());
    for (int round = -1; round < rounds; ++round) {
        if (round == 0)
            times.assign(methods.size(), {});
        for (size_t step = 0; step < methods.size(); ++step) {
            // Another method begins each round.
            const size_t which = (step + static_cast<size_t>(round + 1)) % methods.size();
            in[which] = in[which] && take_turn_or_drop(methods[which], moved, times[which]);
        }
        require_ours(methods, in);
    }
    return times;
}

void add_move_rows(results &found, const std::string &name, const parameters &measured, uint64_t bytes,
                   const std::vector<move_method> &methods, const std::vector<move_times> &times)
{
    const auto to_rates = [bytes](const samples &taken) { return rates(static_cast<double>(bytes), taken); };
    const rows_of_moves rows = {found, name, measured, methods, times};
    rows.add("submit to seen", &move_times::seen, true, "GB/s", to_rates);
    rows.add("on the GPU", &move_times::gpu, true, "GB/s", to_rates);
    rows.add("submitting call", &move_times::submit, false, "us", microseconds);
}

int rounds_for(uint64_t bytes) { return bytes > uint64_t{1} << 30 ? 3 : bytes > 64 << 20 ? 5 : 9; }

} // namespace bench
