// SPDX-License-Identifier: Apache-2.0
// Row 19: the duration of the path that kvmem chooses, relative to the best path that can be forced at the same point.
// Points are drawn at random from a seed, because the choice must be right for all sizes, not only for those it was
// tuned with.
#include "common/block_ids.hpp"
#include "common/clock.hpp"
#include "common/gpu.hpp"
#include "common/methods.hpp"
#include "common/points.hpp"
#include "common/random_transfer.hpp"
#include "common/side.hpp"
#include "reference/gemm.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>

namespace {

using namespace bench;

constexpr int device = 0;
constexpr char row_name[] = "19-regret";
constexpr uint64_t few_large_blocks = 64 << 20; // a side has at least 8 blocks
// Turns go on until two runs of one path differ by no more than this, or for so long.
constexpr double low_noise = 1.02;
constexpr double longest_ns = 3e9;
constexpr int min_turns = 7, turns_beside = 9;
// A path is left out after its first counted turn if it takes more than this many times as long as the fastest one.
constexpr double drop_factor = 3;

struct stage {
    const arena &host;
    const arena &gpu;
    const arena &mirror;
    cuda::gemms &products;
    int count; // of products in one turn
};

// The transfer of a path, and its durations by turn: nanoseconds of the caller's clock from submission until the end is seen.
struct measured_path {
    std::string path;
    kv::transfer transfer;
    double expected_ns;
    std::string compute; // kvmem's estimate of it
    samples ns;
    bool is_dropped = false;
};

// Returns the text after "compute: " in an explanation, kvmem's estimate of how busy the GPU is. Empty if there is
// none.
std::string compute_in(const std::string &explanation)
{
    const std::string first = "\ncompute: ";
    const size_t at = explanation.find(first);
    if (at == std::string::npos)
        return {};
    const size_t begin = at + first.size();
    return explanation.substr(begin, explanation.find('\n', begin) - begin);
}

measured_path prepare(const moved_blocks &moved, const random_transfer &point, uint32_t path)
{
    kv::preferences preferred;
    preferred.compute = point.compute == compute::declared_idle ? KVMEM_COMPUTE_IDLE : KVMEM_COMPUTE_MAY_RUN;
    preferred.path = path;
    kv::transfer made = kv::make_transfer(moved.from.layout(), moved.to.layout(), moved.pairs, {}, preferred);
    const kvmem_compared_method used = kv::used_method(made);
    const auto text = kv::make<kv::blob>(kvmem_transfer_explain, made.get());
    const std::string compute = compute_in(static_cast<const char *>(kvmem_blob_data(text.get())));
    const double expected = static_cast<double>(point.bytes()) / static_cast<double>(used.bytes_per_second) * 1e9;
    return {kvmem_method_name(used.method), std::move(made), expected, compute, {}};
}

// kvmem's choice first, then each path that supports the transfer.
std::vector<measured_path> prepare_all(const moved_blocks &moved, const random_transfer &point)
{
    std::vector<measured_path> all;
    all.push_back(prepare(moved, point, 0));
    for (uint32_t path : {KVMEM_METHOD_CUDA_COPY, KVMEM_METHOD_CUDA_BATCH, KVMEM_METHOD_CUDA_2D,
                          KVMEM_METHOD_CUDA_KERNEL, KVMEM_METHOD_CUDA_STAGED})
        try {
            all.push_back(prepare(moved, point, path));
        } catch (const std::exception &) {
            // The path does not support this transfer.
        }
    return all;
}

double time_alone(const measured_path &taken)
{
    return time_ns([&] { kv::submit_and_wait(taken.transfer); });
}

// Returns the mean duration of the transfers that end before the products do. If even the first one takes longer than
// the products, it counts although its end ran on an idle GPU: such a path is far slower than the others.
double time_beside(const measured_path &taken, cuda::gemms &products, int count)
{
    products.start(count);
    const double start = now_ns();
    double end = start;
    int ended = 0;
    do {
        kv::submit_and_wait(taken.transfer);
        if (ended > 0 && !products.busy())
            break;
        end = now_ns();
        ++ended;
    } while (products.busy());
    products.wait();
    return (end - start) / ended;
}

void take_turn(const stage &on, const random_transfer &point, const side &to, const kv::pairs &pairs, measured_path &taken)
{
    to.wipe(pairs);
    const bool is_beside = point.compute == compute::beside;
    const double ns = is_beside ? time_beside(taken, on.products, on.count) : time_alone(taken);
    to.verify(pairs);
    taken.ns.push_back(ns);
}

double median(const samples &values) { return summarize(values).median; }

void drop_slow(std::vector<measured_path> &all)
{
    double best = median(all.front().ns);
    for (const measured_path &taken : all)
        best = std::min(best, median(taken.ns));
    // The chosen path stays, because it is what is measured.
    for (size_t which = 1; which < all.size(); ++which)
        all[which].is_dropped = median(all[which].ns) > drop_factor * best;
}

// The durations of one path by those of another one, turn by turn. The two of a turn are some milliseconds apart at most, so that both
// are in the same phase of a host whose processors change their speed.
samples by_turn(const samples &ns, const samples &of)
{
    samples ratios(std::min(ns.size(), of.size()));
    std::transform(ns.begin(), ns.begin() + static_cast<ptrdiff_t>(ratios.size()), of.begin(), ratios.begin(), std::divides<>());
    return ratios;
}

// What a median of these ratios would be at most in 19 of 20 measurements, or at least, inverted: the more of both.
double limit_of_median(samples ratios)
{
    std::sort(ratios.begin(), ratios.end());
    const auto count = static_cast<double>(ratios.size());
    const auto low = static_cast<size_t>(std::max(count / 2 - 0.98 * std::sqrt(count), 0.0));
    return std::max(ratios[ratios.size() - 1 - low], 1 / ratios[low]);
}

// The forced path that kvmem has chosen, too; null if it can't be forced.
const measured_path *twin_of_choice(const std::vector<measured_path> &all)
{
    const auto found = std::find_if(all.begin() + 1, all.end(), [&](const measured_path &each) { return each.path == all.front().path; });
    return found == all.end() || found->is_dropped ? nullptr : &*found;
}

// How much two runs of the chosen path differ, after as many turns. None if only one was measured.
std::optional<double> noise_of(const std::vector<measured_path> &all)
{
    const measured_path *twin = twin_of_choice(all);
    return twin ? std::optional(limit_of_median(by_turn(all.front().ns, twin->ns))) : std::nullopt;
}

// How much longer the choice takes than the best of the other paths: the median over all turns. 1 if it is the best one, whatever two
// runs of it have taken.
double regret_of(const std::vector<measured_path> &all)
{
    const measured_path *twin = twin_of_choice(all);
    double worst = 1;
    for (size_t which = 1; which < all.size(); ++which) {
        const measured_path &other = all[which];
        if (&other == twin || other.is_dropped)
            continue;
        samples ratios = by_turn(all.front().ns, other.ns);
        if (twin) {
            const samples again = by_turn(twin->ns, other.ns);
            ratios.insert(ratios.end(), again.begin(), again.end());
        }
        worst = std::max(worst, median(ratios));
    }
    return worst;
}

void alternate(const stage &on, const options &chosen, const random_transfer &point, const side &to, const kv::pairs &pairs,
               std::vector<measured_path> &all)
{
    const int rounds = chosen.quick ? 2 : point.compute == compute::beside ? turns_beside : min_turns;
    const double end = now_ns() + longest_ns;
    const auto is_enough = [&](int round) {
        return round >= rounds && (chosen.quick || now_ns() > end || noise_of(all).value_or(1) <= low_noise);
    };
    for (int round = -1; !is_enough(round); ++round) {
        for (size_t step = 0; step < all.size(); ++step) {
            measured_path &taken = all[(step + static_cast<size_t>(round + 1)) % all.size()];
            if (!taken.is_dropped)
                take_turn(on, point, to, pairs, taken);
        }
        if (round == 0)
            drop_slow(all);
        if (round < 0)
            for (measured_path &taken : all)
                taken.ns.clear();
    }
}

const measured_path &best_forced(const std::vector<measured_path> &all)
{
    return *std::min_element(all.begin() + 1, all.end(), [](const measured_path &a, const measured_path &b) {
        return median(a.ns) < median(b.ns);
    });
}

// "CUDA batch 12.3 (expected 11.9); ..." in microseconds.
std::string times_text(const std::vector<measured_path> &all)
{
    std::string text;
    for (size_t which = 1; which < all.size(); ++which) {
        char each[128];
        std::snprintf(each, sizeof each, "%s%s %.1f (expected %.1f)", which > 1 ? "; " : "",
                      all[which].path.c_str(), median(all[which].ns) * 1e-3, all[which].expected_ns * 1e-3);
        text += each;
    }
    return text;
}

std::string three_digits(double value)
{
    char text[32];
    std::snprintf(text, sizeof text, "%.3f", value);
    return text;
}

struct regret {
    double value;
    std::optional<double> noise;
    bool is_other_path;
    bench::compute compute;
};

class regret_bench {
  public:
    regret_bench(const options &chosen, results &found) : chosen_(chosen), found_(found) {}

    void measure(const stage &on, const random_transfer &point)
    {
        if (point.compute == compute::beside && !has_learned_)
            learn(on);
        const side host(on.host, on.mirror, point.host);
        const side gpu(on.gpu, on.mirror, point.gpu);
        const side &from = point.to_device ? host : gpu;
        const side &to = point.to_device ? gpu : host;
        from.fill();
        const kv::pairs pairs = point.pairs();
        std::vector<measured_path> all = prepare_all({from, to, pairs}, point);
        if (all.size() < 2)
            throw std::runtime_error("no path can be forced");
        alternate(on, chosen_, point, to, pairs, all);
        add(point, all);
    }

    // Adds median, 95th percentile and worst regret, of all points and of each state of the GPU.
    void add_summary() const
    {
        for (const std::string which : {"all", name_of(compute::declared_idle), name_of(compute::idle),
                                        name_of(compute::beside)}) {
            samples values, noises;
            int others = 0;
            for (const regret &each : regrets_)
                if (which == "all" || which == name_of(each.compute)) {
                    values.push_back(each.value);
                    if (each.noise)
                        noises.push_back(*each.noise);
                    others += each.is_other_path && each.value > 1.02;
                }
            if (values.empty())
                continue;
            const auto above = std::count_if(values.begin(), values.end(), [](double v) { return v > 1.10; });
            const auto add = [&](const char *statistic, double value) {
                found_.add({row_name,
                            {{"statistic", statistic},
                             {"points", values.size()},
                             {"of", which},
                             {"seed", chosen_.seed},
                             {"above 1.10", above},
                             {"another path by more than 1.02", others},
                             {"gpu", gpu_description(device)}},
                            {value},
                            "the best forced path",
                            {1.0},
                            {},
                            "x"});
            };
            add("median", summarize(values).median);
            add("p95", percentile(values, 0.95));
            add("worst", summarize(values).max);
            if (noises.empty())
                continue;
            add("noise, median", summarize(noises).median);
            add("noise, worst", summarize(noises).max);
        }
    }

  private:
    // kvmem estimates compute from transfers that run beside it, so a few of them come first, as in a running engine.
    void learn(const stage &on)
    {
        const kvmem_layout_config config = whole_blocks(16 << 10, 128);
        const side gpu(on.gpu, on.mirror, config);
        const side host(on.host, on.mirror, config);
        const kv::transfer moved =
            kv::make_transfer(gpu.layout(), host.layout(), scattered_pairs(64, 128), {},
                              {KVMEM_COMPUTE_MAY_RUN, KVMEM_METHOD_CUDA_KERNEL});
        on.products.start(on.count);
        for (int run = 0; run < 4; ++run)
            kv::submit_and_wait(moved);
        on.products.wait();
        has_learned_ = true;
    }

    void add(const random_transfer &point, const std::vector<measured_path> &all)
    {
        const measured_path &ours = all.front();
        const measured_path &best = best_forced(all);
        const auto bytes = static_cast<double>(point.bytes());
        found_.add({row_name,
                    {{"shape", point.shape},
                     {"direction", point.to_device ? "H2D" : "D2H"},
                     {"compute", name_of(point.compute)},
                     {"host", name_of(point.order)},
                     {"piece_bytes", point.piece_bytes()},
                     {"blocks", point.blocks},
                     {"bytes", point.bytes()},
                     {"path", ours.path},
                     {"best_path", best.path},
                     {"us", times_text(all)},
                     {"regret", three_digits(regret_of(all))},
                     {"noise", three_digits(noise_of(all).value_or(0))},
                     {"compute_estimate", ours.compute},
                     {"seed", chosen_.seed},
                     {"gpu", gpu_description(device)}},
                    rates(bytes, ours.ns),
                    "the best forced path",
                    rates(bytes, best.ns),
                    {},
                    "GB/s"});
        regrets_.push_back({regret_of(all), noise_of(all), ours.path != best.path, point.compute});
    }

    const options &chosen_;
    results &found_;
    std::vector<regret> regrets_;
    bool has_learned_ = false;
};

// Two of three points are blocks of any size, the third is an engine's cache. For two fifths of the points the options
// declare the GPU idle, for one fifth it is idle without that, and the others run beside compute.
std::vector<random_transfer> draw_all(const options &chosen, uint64_t max_bytes)
{
    std::mt19937_64 random(chosen.seed);
    std::vector<random_transfer> all;
    for (unsigned index = 0; index < chosen.points; ++index) {
        all.push_back(index % 3 == 2 ? draw_engine(random, max_bytes) : draw_blocks(random, max_bytes));
        all.back().compute = 5 * index < 2 * chosen.points   ? compute::declared_idle
                             : 5 * index < 3 * chosen.points ? compute::idle
                                                             : compute::beside;
    }
    return all;
}

void print_rates()
{
    kvmem_blob *rates = nullptr, *text = nullptr;
    kv::call(kvmem_cuda_get_copy_rates, device, device, &rates);
    kv::call(kvmem_cuda_describe_rates, kvmem_blob_data(rates), kvmem_blob_size(rates),
             static_cast<kvmem_rates_info *>(nullptr), &text);
    std::printf("%s", static_cast<const char *>(kvmem_blob_data(text)));
    kvmem_blob_destroy(text);
    kvmem_blob_destroy(rates);
}

void measure(const options &chosen, results &found)
{
    warn_of_stand_in();
    const cuda::current_device current(device);
    const uint64_t max_bytes = chosen.quick ? 4 << 20 : 160 << 20;
    // The largest of the listed transfers has 500 MiB on each side, among twice as many blocks.
    const uint64_t size = arena_size(chosen.quick ? 2 * max_bytes + few_large_blocks : uint64_t{1} << 30);
    const arena host(place::host, device, size);
    const arena gpu(place::device, device, size);
    const arena mirror(place::host, device, size);
    std::printf("seed %" PRIu64 ", %u points\n", chosen.seed, chosen.points);
    print_rates();
    cuda::gemms products(cuda::load().stand_in ? 1024 : 8192);
    const stage on = {host, gpu, mirror, products, chosen.quick ? 4 : 16};
    regret_bench bench(chosen, found);
    points grid(chosen);
    std::vector<random_transfer> all = listed_transfers();
    const std::vector<random_transfer> drawn = draw_all(chosen, std::min(max_bytes, size / 4));
    all.insert(all.end(), drawn.begin(), drawn.end());
    for (const random_transfer &point : all)
        if (point.gpu.num_blocks * point.block_bytes() > size)
            grid.skip(point.title(), "more than " + std::to_string(size >> 20) + " MiB on a side");
        else
            grid.measure(point.title(), [&] { bench.measure(on, point); });
    bench.add_summary();
    grid.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
