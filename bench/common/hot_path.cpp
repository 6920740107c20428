// SPDX-License-Identifier: Apache-2.0
#include "common/hot_path.hpp"

#include "common/block_ids.hpp"
#include "common/clock.hpp"

#include <array>
#include <deque>

namespace bench {

namespace {

constexpr uint32_t counts[] = {1, 2, 4, 16, 64, 1000};
// Series per count. The counts alternate, because a machine may be slow for a second.
constexpr int num_series = 5;
// Different lists of blocks, one per step.
constexpr size_t num_steps = 16;

kvmem_layout_config blocks_in_order(const char *order)
{
    kvmem_layout_config config = blocks_of(hot_pieces * hot_piece_bytes, hot_pool, hot_pieces, 1);
    config.order = order;
    return config;
}

std::vector<kv::pairs> steps_of(uint32_t count)
{
    std::mt19937 random(18 + count);
    std::vector<kv::pairs> steps;
    for (size_t step = 0; step < num_steps; ++step) {
        const std::vector<uint32_t> sources = scattered_ids(count, hot_pool, 1, random);
        const std::vector<uint32_t> destinations = scattered_ids(count, hot_pool, 1, random);
        kv::pairs pairs;
        for (uint32_t index = 0; index < count; ++index)
            pairs.push_back({sources[index], destinations[index]});
        steps.push_back(pairs);
    }
    return steps;
}

class hot_path {
  public:
    hot_path(const options &chosen, const hot_route &route, uint32_t count)
        : chosen_(chosen), route_(route), count_(count), steps_(steps_of(count)), prepared_(create()),
          repeated_(create())
    {
    }

    void take_series()
    {
        const std::vector<samples> taken = alternate(chosen_.rounds(401), {
            [this] { return timed([this](kv::transfer &made) { made = start(); }); },
            [this] {
                next();
                const double calling = time_ns([this] { submit_pairs(); });
                kv::wait(prepared_);
                return calling;
            },
            [this] {
                return timed([this](kv::transfer &made) {
                    made = create();
                    kv::submit(made);
                });
            },
            [this] {
                const double calling = time_ns([this] { kv::submit(repeated_); });
                kv::wait(repeated_);
                return calling;
            },
        });
        for (size_t which = 0; which < taken.size(); ++which)
            taken_[which].insert(taken_[which].end(), taken[which].begin(), taken[which].end());
    }

    void finish(results &found)
    {
        next();
        submit_pairs();
        kv::wait(prepared_);
        route_.verify(pairs());
        add(found, "kvmem_transfer_start", taken_[0]);
        add(found, "kvmem_transfer_submit", taken_[1]);
    }

  private:
    const kv::pairs &pairs() const { return steps_[step_ % num_steps]; }
    void next() { ++step_; }

    kv::transfer create() const { return kv::make_transfer(route_.from, route_.to, pairs(), {}, route_.preferred); }
    kv::transfer start() const { return kv::start_transfer(route_.from, route_.to, pairs(), route_.preferred); }

    void submit_pairs() const
    {
        kvmem_submit_options options{};
        options.struct_size = sizeof options;
        options.pairs = pairs().data();
        options.num_pairs = pairs().size();
        kv::call(kvmem_transfer_submit, prepared_.get(), &options);
    }

    // Times calls that create and submit a transfer. The wait and the destruction are not timed.
    template <typename Calls> double timed(Calls calls)
    {
        next();
        kv::transfer made;
        const double calling = time_ns([&] { calls(made); });
        kv::wait(made);
        return calling;
    }

    void add(results &found, const char *call, const samples &ours) const
    {
        parameters all = route_.setting;
        all.emplace_back("direction", route_.name);
        all.emplace_back("pairs", count_);
        all.emplace_back("piece_bytes", hot_piece_bytes);
        all.emplace_back("pieces_per_pair", hot_pieces);
        all.emplace_back("call", call);
        all.emplace_back("path", kv::path_of(prepared_));
        all.emplace_back("ceiling_is", "kvmem_transfer_submit of the same pairs again");
        found.add({"18-hot-path", all, in_us(ours), "kvmem_transfer_create, prepare, submit",
                   in_us(taken_[2]), in_us(taken_[3]), "us"});
    }

    const options &chosen_;
    const hot_route &route_;
    uint32_t count_;
    std::vector<kv::pairs> steps_;
    size_t step_ = 0;
    kv::transfer prepared_;
    kv::transfer repeated_;
    std::array<samples, 4> taken_;
};

} // namespace

kvmem_layout_config hot_source() { return blocks_in_order(KVMEM_ORDER_LAYER_SEPARATE); }

kvmem_layout_config hot_destination() { return blocks_in_order(KVMEM_ORDER_FULLY_CONTIGUOUS); }

void measure_hot_path(const options &chosen, const hot_route &route, results &found)
{
    std::deque<hot_path> paths;
    for (const uint32_t count : counts)
        paths.emplace_back(chosen, route, count);
    for (int series = 0; series < (chosen.quick ? 1 : num_series); ++series)
        for (hot_path &path : paths)
            path.take_series();
    for (hot_path &path : paths)
        path.finish(found);
}

} // namespace bench
