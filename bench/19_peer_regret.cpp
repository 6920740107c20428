// SPDX-License-Identifier: Apache-2.0
// Row 19 for peers: the duration of the path to a peer that kvmem chooses before any run, relative to the best of all
// three. Points are drawn at random from a seed, because the choice must be right for sizes that no table lists.
#include "common/block_ids.hpp"
#include "common/clock.hpp"
#include "common/pattern.hpp"
#include "common/peer.hpp"
#include "common/points.hpp"
#include "common/program.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <random>

namespace {

using namespace bench;

constexpr char row_name[] = "19-peer-regret";
constexpr std::array<uint32_t, 3> paths = {KVMEM_METHOD_NIXL, KVMEM_METHOD_NIXL_STAGED, KVMEM_METHOD_NIXL_SERVED};
// Short transfers get more turns, because their duration varies the most.
constexpr int min_turns = 7, max_turns = 31;
constexpr double enough_ns = 60e6;

// Blocks that a peer has, and that are read from it.
struct random_pull {
    unsigned index;
    uint64_t layers;
    uint64_t piece_bytes;
    uint32_t blocks; // that move; each side has twice as many
    uint32_t run;    // adjacent blocks on the owner's side
    bool owner_has_layers; // layers are separate; otherwise blocks are contiguous
    bool requester_has_layers;

    uint64_t bytes() const { return blocks * layers * piece_bytes; }

    kvmem_layout_config config(bool has_layers) const
    {
        kvmem_layout_config made = blocks_of(layers * piece_bytes, uint64_t{blocks} * 2, layers, 1);
        made.order = has_layers ? KVMEM_ORDER_LAYER_SEPARATE : KVMEM_ORDER_FULLY_CONTIGUOUS;
        return made;
    }

    kv::pairs pairs() const
    {
        const uint32_t pool = std::max(blocks * 2 / run * run, run);
        kv::pairs made = scattered_pairs(std::min(blocks, pool), blocks * 2);
        const kv::pairs by_runs = scattered_pairs(static_cast<uint32_t>(made.size()), pool, run);
        for (size_t i = 0; i < made.size(); ++i)
            made[i].source = by_runs[i].source;
        return made;
    }

    std::string title(const char *transport) const
    {
        return std::to_string(index) + ": " + std::to_string(blocks) + " blocks in runs of " + std::to_string(run) + ", " +
               std::to_string(layers) + " layers of " + std::to_string(piece_bytes) + " bytes, " + transport;
    }
};

// Only the generator's bits are used: a seed gives the same points on every machine.
uint64_t between(std::mt19937_64 &random, double least, double most)
{
    const double share = static_cast<double>(random() >> 11) * 0x1p-53;
    return static_cast<uint64_t>(std::exp(std::log(least) + share * (std::log(most) - std::log(least))));
}

// 64 to 65,536 blocks of 1 to 16 layers, each of 64 bytes to 64 KiB; at most `max_bytes` in all. The logarithms are uniform.
random_pull draw(std::mt19937_64 &random, unsigned index, uint64_t max_bytes)
{
    constexpr uint64_t unit = 32; // a token of 16 has two bytes
    const uint64_t piece = between(random, 64, 65'536) / unit * unit;
    const uint64_t layers = between(random, 1, 17);
    const uint64_t most = std::clamp<uint64_t>(max_bytes / (piece * layers), 1, 65'536);
    const auto blocks = static_cast<uint32_t>(between(random, std::min<double>(64, static_cast<double>(most)), static_cast<double>(most)));
    const auto has_layers = [&] { return random() % 2 != 0; };
    const uint32_t run = random() % 2 == 0 ? 1 : 8;
    const bool owner_has_layers = has_layers();
    return {index, layers, piece, blocks, run, owner_has_layers, has_layers()};
}

void send(channel &link, const kv::blob &bytes)
{
    link.send(kvmem_blob_data(bytes.get()), kvmem_blob_size(bytes.get()));
}

// In the peer: fills and serves a layout until the bench is done with it.
void serve(const std::vector<std::string> &arguments)
{
    channel link = parent_channel();
    const auto point = value_of<random_pull>(link.receive());
    const kv::agent agent = kv::make_agent(arguments.at(0));
    const kv::layout source = kv::make_layout(point.config(point.owner_has_layers), agent.get());
    kv::call(kvmem_layout_serve, source.get(), nullptr);
    host_view(source).fill();
    send(link, kv::make<kv::blob>(kvmem_agent_get_local_metadata, agent.get()));
    send(link, kv::make<kv::blob>(kvmem_layout_export, source.get()));
    link.receive_or_end();
}

struct explained {
    uint32_t path;
    double expected_ns;
};

explained explain(const kv::transfer &made, uint64_t bytes)
{
    const kvmem_compared_method used = kv::used_method(made);
    return {used.method, static_cast<double>(bytes) / static_cast<double>(used.bytes_per_second) * 1e9};
}

double median(const samples &values) { return summarize(values).median; }

// Both processes. The names of the agents are new for each point, because kvmem remembers what transfers with a peer of
// one name have cost.
class exchange {
  public:
    exchange(const random_pull &point, const std::string &owner)
        : point_(point), peer_({owner}), agent_(kv::make_agent("requester")),
          local_(kv::make_layout(point.config(point.requester_has_layers), agent_.get())), view_(local_), pairs_(point.pairs())
    {
        channel &link = peer_.link();
        send_value(link, point);
        const std::vector<unsigned char> metadata = link.receive();
        const std::vector<unsigned char> descriptor = link.receive();
        kv::call(kvmem_agent_load_remote_metadata, agent_.get(), metadata.data(), metadata.size(), nullptr);
        remote_ = kv::make<kv::layout>(kvmem_layout_import, agent_.get(), descriptor.data(), descriptor.size());
    }

    kv::transfer make(uint32_t path) const
    {
        kv::preferences preferred;
        preferred.path = path;
        return kv::make_transfer(remote_, local_, pairs_, {}, preferred);
    }

    uint64_t bytes() const { return pairs_.size() * point_.layers * point_.piece_bytes; }

    // Nanoseconds of a run. Every byte is checked.
    double turn(const kv::transfer &moved) const
    {
        view_.wipe(pairs_);
        const double ns = time_ns([&] { kv::submit_and_wait(moved); });
        view_.verify(pairs_);
        return ns;
    }

  private:
    random_pull point_;
    peer peer_;
    kv::agent agent_;
    kv::layout local_;
    host_view view_;
    kv::pairs pairs_;
    kv::layout remote_;
};

// Durations of each path, in the order of `paths`.
using durations = std::array<samples, paths.size()>;

int turns_of(const options &chosen, const std::vector<double> &first)
{
    if (chosen.quick)
        return 2;
    const double all = first[0] + first[1] + first[2];
    return std::clamp(static_cast<int>(3 * enough_ns / all), min_turns, max_turns);
}

durations measure_paths(const options &chosen, const exchange &both, const std::vector<kv::transfer> &made)
{
    durations taken;
    std::vector<double> first;
    for (const kv::transfer &each : made)
        both.turn(each);
    for (const kv::transfer &each : made)
        first.push_back(both.turn(each));
    for (int turns = turns_of(chosen, first), turn = 0; turn < turns; ++turn)
        for (size_t step = 0; step < made.size(); ++step) {
            const size_t which = (step + static_cast<size_t>(turn)) % made.size();
            taken[which].push_back(both.turn(made[which]));
        }
    return taken;
}

class regret_bench {
  public:
    regret_bench(const options &chosen, results &found) : chosen_(chosen), found_(found) {}

    void measure(const random_pull &point, const char *transport)
    {
        const exchange both(point, "owner of " + std::to_string(point.index) + " over " + transport);
        const explained before = explain(both.make(0), both.bytes());
        std::vector<kv::transfer> made;
        std::string expected;
        for (size_t which = 0; which < paths.size(); ++which) {
            made.push_back(both.make(paths[which]));
            char each[64];
            std::snprintf(each, sizeof each, "%s%.1f", which > 0 ? ", " : "",
                          explain(made.back(), both.bytes()).expected_ns * 1e-3);
            expected += each;
        }
        const durations taken = measure_paths(chosen_, both, made);
        const explained after = explain(both.make(0), both.bytes());
        add(point, transport, both.bytes(), taken, expected, {before.path, after.path});
    }

    void add_summary() const
    {
        for (const auto &[when, regrets] : {std::pair{"before any run", regrets_[0]}, std::pair{"after them", regrets_[1]}}) {
            if (regrets.empty())
                continue;
            const auto add = [&](const char *statistic, double value) {
                found_.add({row_name,
                            {{"statistic", statistic}, {"chosen", when}, {"points", regrets.size()}, {"seed", chosen_.seed}},
                            {value},
                            "the best forced path",
                            {1.0},
                            {},
                            "x"});
            };
            add("median", median(regrets));
            add("p90", percentile(regrets, 0.90));
            add("worst", summarize(regrets).max);
        }
    }

  private:
    void add(const random_pull &point, const char *transport, uint64_t bytes, const durations &taken,
             const std::string &expected, std::array<uint32_t, 2> chosen)
    {
        size_t best = 0;
        std::array<size_t, 2> ours{};
        std::string times;
        for (size_t which = 0; which < paths.size(); ++which) {
            char each[64];
            std::snprintf(each, sizeof each, "%s%.1f", which > 0 ? ", " : "", median(taken[which]) * 1e-3);
            times += each;
            if (median(taken[which]) < median(taken[best]))
                best = which;
            for (size_t when = 0; when < ours.size(); ++when)
                if (paths[which] == chosen[when])
                    ours[when] = which;
        }
        found_.add({row_name,
                    {{"transport", transport},
                     {"layers", point.layers},
                     {"piece_bytes", point.piece_bytes},
                     {"blocks", point.blocks},
                     {"run", point.run},
                     {"owner", point.owner_has_layers ? "layers" : "blocks"},
                     {"requester", point.requester_has_layers ? "layers" : "blocks"},
                     {"bytes", bytes},
                     {"path", kvmem_method_name(paths[ours[0]])},
                     {"best_path", kvmem_method_name(paths[best])},
                     {"us", times},
                     {"expected_us", expected},
                     {"order", "NIXL, staged, served"},
                     {"seed", chosen_.seed}},
                    rates(static_cast<double>(bytes), taken[ours[0]]),
                    "the best forced path",
                    rates(static_cast<double>(bytes), taken[best]),
                    {},
                    "GB/s"});
        for (size_t when = 0; when < ours.size(); ++when)
            regrets_[when].push_back(median(taken[ours[when]]) / median(taken[best]));
    }

    const options &chosen_;
    results &found_;
    std::array<samples, 2> regrets_;
};

// Half of the points are over shared memory, half over TCP.
void measure(const options &chosen, results &found)
{
    std::mt19937_64 random(chosen.seed);
    points grid(chosen);
    regret_bench bench(chosen, found);
    const unsigned count = chosen.quick ? 4 : chosen.points / 2;
    for (const char *transport : {"shared memory", "tcp"}) {
        if (transport == std::string("tcp"))
            use_only_tcp();
        for (unsigned index = 0; index < count; ++index) {
            const random_pull point = draw(random, index, chosen.quick ? 1 << 20 : 64 << 20);
            grid.measure(point.title(transport), [&] { bench.measure(point, transport); });
        }
    }
    bench.add_summary();
    grid.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure, serve); }
