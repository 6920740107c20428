// SPDX-License-Identifier: Apache-2.0
// Row 7: transfers of rows 1 and 3 beside matrix products on another stream: the slowdown of both.
#include "common/block_ids.hpp"
#include "common/clock.hpp"
#include "common/gpu.hpp"
#include "common/methods.hpp"
#include "common/points.hpp"
#include "common/side.hpp"
#include "reference/gemm.hpp"

#include <algorithm>
#include <cstdio>

namespace {

using namespace bench;

constexpr int device = 0;
constexpr uint64_t layers = 32;
constexpr uint64_t outers = 2;
constexpr uint32_t spread = 2;    // blocks of a side per block that moves
constexpr unsigned few_ctas = 16; // enough for a direct kernel to fill the link

enum class work {
    blocks_scattered,  // row 1: a block is one piece, scattered on both sides
    blocks_contiguous, // row 1: consecutive on the host
    layout_change,     // row 3: layer separate on the GPU, fully contiguous on the host
};

struct workload {
    const char *name;
    work kind;
    bool to_device;
    uint64_t piece_bytes;
    uint64_t bytes;
    uint32_t blocks() const
    {
        const uint64_t pieces = kind == work::layout_change ? layers * outers : 1;
        return static_cast<uint32_t>(bytes / (piece_bytes * pieces));
    }
    const char *direction() const { return to_device ? "H2D" : "D2H"; }
};

struct stage {
    const arena &host;
    const arena &gpu;
    const arena &mirror;
    const shared_kernel &kernel;
    cuda::gemms &compute;
    int gemms; // in one turn
};

kvmem_layout_config config_of(const workload &measured, place where)
{
    const bool change = measured.kind == work::layout_change;
    kvmem_layout_config config{};
    config.struct_size = sizeof config;
    config.num_blocks = measured.blocks() * spread;
    config.num_layers = change ? layers : 1;
    config.outer_dim = change ? outers : 1;
    config.page_size = 16;
    config.inner_dim = measured.piece_bytes / (16 * 2);
    config.dtype_width = 2;
    config.order = KVMEM_ORDER_FULLY_CONTIGUOUS;
    if (change && where == place::device) {
        config.order = KVMEM_ORDER_LAYER_SEPARATE_OUTER_FIRST;
    }
    return config;
}

kv::pairs pairs_of(const workload &measured)
{
    kv::pairs pairs = scattered_pairs(measured.blocks(), measured.blocks() * spread);
    if (measured.kind == work::blocks_contiguous)
        for (uint32_t index = 0; index < pairs.size(); ++index)
            (measured.to_device ? pairs[index].source : pairs[index].destination) = index;
    return pairs;
}

// The results of one method.
struct beside_times {
    samples gemm_us;
    samples link; // GB/s
};

// Repeats the transfer until the last product is done. Returns GB/s of the transfers that ended before that.
double move_beside(const move_method &method, uint64_t bytes, cuda::gemms &compute)
{
    const double start = now_ns();
    double end = start;
    uint64_t moved = 0;
    while (compute.busy()) {
        method.submit();
        method.wait();
        if (!compute.busy())
            break;
        end = now_ns();
        moved += bytes;
    }
    if (moved == 0)
        throw std::runtime_error("no transfer ended before the products were done");
    return static_cast<double>(moved) / (end - start);
}

void take_turn(const stage &on, const move_method &method, const checked_move &moved, beside_times &seen)
{
    (method.role == role::ceiling ? moved.wipe_for_ceiling : moved.wipe)();
    on.compute.start(on.gemms);
    const double link = move_beside(method, moved.bytes, on.compute);
    seen.gemm_us.push_back(on.compute.wait());
    seen.link.push_back(link);
    if (method.role != role::ceiling)
        moved.verify();
}

bool take_turn_or_drop(const stage &on, const move_method &method, const checked_move &moved, beside_times &seen)
{
    try {
        take_turn(on, method, moved, seen);
        return true;
    } catch (const std::exception &failure) {
        on.compute.wait();
        std::printf("    %s is left out: %s\n", method.name.c_str(), failure.what());
        seen = {};
        return false;
    }
}

struct outcome {
    samples alone_us;
    std::vector<beside_times> methods;
};

outcome alternate(const stage &on, int rounds, const checked_move &moved, const std::vector<move_method> &methods)
{
    outcome seen{{}, std::vector<beside_times>(methods.size())};
    std::vector<bool> in(methods.size(), true);
    for (int round = -1; round < rounds; ++round) {
        if (round == 0)
            seen = {{}, std::vector<beside_times>(methods.size())};
        on.compute.start(on.gemms);
        seen.alone_us.push_back(on.compute.wait());
        for (size_t which = 0; which < methods.size(); ++which)
            in[which] = in[which] && take_turn_or_drop(on, methods[which], moved, seen.methods[which]);
    }
    return seen;
}

std::vector<move_method> methods_of(const options &chosen, const stage &on, const moved_blocks &moved, uint64_t bytes)
{
    std::vector<move_method> methods = prepared_as("prepared", moved, {});
    if (chosen.engines)
        append(methods, engines(moved, chosen, KVMEM_COMPUTE_MAY_RUN));
    append(methods, driver_batch(moved, true));
    append(methods, pointer_kernel(moved, on.kernel));
    append(methods, pointer_kernel(moved, on.kernel, few_ctas));
    methods.push_back(one_large_copy(moved, bytes));
    return methods;
}

class beside_rows {
  public:
    beside_rows(results &found, const parameters &setting, const std::vector<move_method> &methods,
                const outcome &seen)
        : found_(found), setting_(setting), methods_(methods), seen_(seen)
    {}

    void add(size_t ours) const
    {
        const samples &gemm = seen_.methods[ours].gemm_us;
        const samples &ceiling = seen_.methods.back().link; // one large copy
        const parameters beside = with(ours, "one GEMM beside the transfers");
        found_.add({name, beside, gemm, "the same GEMM alone", seen_.alone_us, {}, "us"});
        for (size_t which = 0; which < methods_.size(); ++which) {
            const beside_times &reference = seen_.methods[which];
            if (methods_[which].role == role::ours || reference.link.empty())
                continue;
            found_.add(
                {name, beside, gemm, "beside " + methods_[which].name, reference.gemm_us, seen_.alone_us, "us"});
            if (methods_[which].role == role::reference)
                found_.add({name, with(ours, "the transfers beside the GEMMs"), seen_.methods[ours].link,
                            methods_[which].name, reference.link, ceiling, "GB/s"});
        }
    }

  private:
    static constexpr char name[] = "07-beside-compute";

    parameters with(size_t ours, const char *what) const
    {
        parameters all = setting_;
        all.emplace_back("way", methods_[ours].name);
        all.emplace_back("path", methods_[ours].path());
        all.emplace_back("measured", what);
        return all;
    }

    results &found_;
    const parameters &setting_;
    const std::vector<move_method> &methods_;
    const outcome &seen_;
};

void add_rows(results &found, const parameters &setting, const std::vector<move_method> &methods, const outcome &seen)
{
    const beside_rows rows(found, setting, methods, seen);
    bool any = false;
    for (size_t ours = 0; ours < methods.size(); ++ours)
        if (methods[ours].role == role::ours && !seen.methods[ours].link.empty()) {
            rows.add(ours);
            any = true;
        }
    if (!any)
        throw std::runtime_error("no method of kvmem has results");
}

void measure_workload(const options &chosen, const stage &on, const workload &measured, results &found)
{
    const side host(on.host, on.mirror, config_of(measured, place::host));
    const side gpu(on.gpu, on.mirror, config_of(measured, place::device));
    const side &from = measured.to_device ? host : gpu;
    const side &to = measured.to_device ? gpu : host;
    from.fill();
    const kv::pairs pairs = pairs_of(measured);
    const uint64_t bytes = pairs.size() * from.used() / (measured.blocks() * spread);
    const std::vector<move_method> methods = methods_of(chosen, on, {from, to, pairs}, bytes);
    const checked_move moved = {bytes, [&] { to.wipe(pairs); }, [&] { to.verify(pairs); },
                                [&] { to.wipe_first(bytes); }};
    const outcome seen = alternate(on, chosen.quick ? 2 : 5, moved, methods);
    const parameters setting = {
        {"work", measured.name}, {"direction", measured.direction()}, {"piece_bytes", measured.piece_bytes},
        {"MiB", bytes >> 20},    {"compute", on.compute.name()},      {"gpu", gpu_description(device)}};
    add_rows(found, setting, methods, seen);
}

std::vector<workload> workloads(const options &chosen)
{
    const uint64_t bytes = chosen.quick ? 4 << 20 : 320 << 20;
    std::vector<workload> found;
    for (uint64_t piece_bytes :
         chosen.quick ? std::vector<uint64_t>{16 << 10} : std::vector<uint64_t>{16 << 10, 256 << 10, 4 << 10})
        for (bool to_device : {false, true}) {
            found.push_back(
                {"blocks, host side scattered", work::blocks_scattered, to_device, piece_bytes, bytes});
            found.push_back(
                {"blocks, host side contiguous", work::blocks_contiguous, to_device, piece_bytes, bytes});
            found.push_back({"layer separate on the GPU, fully contiguous on the host", work::layout_change,
                             to_device, piece_bytes, bytes});
        }
    return found;
}

void measure(const options &chosen, results &found)
{
    warn_of_stand_in();
    const cuda::current_device current(device);
    const std::vector<workload> all = workloads(chosen);
    const uint64_t size = arena_size(spread * all.front().bytes);
    const arena host(place::host, device, size);
    const arena gpu(place::device, device, size);
    const arena mirror(place::host, device, size);
    const shared_kernel kernel = make_pointer_kernel(device, all.front().bytes / (4 << 10));
    cuda::gemms compute(cuda::load().stand_in ? 1024 : 8192);
    const stage on = {host, gpu, mirror, kernel, compute, chosen.quick ? 20 : 200};
    points grid(chosen);
    for (const workload &measured : all)
        grid.measure(std::string(measured.name) + ", " + measured.direction() + ", pieces of " +
                         std::to_string(measured.piece_bytes >> 10) + " KiB",
                     [&] { measure_workload(chosen, on, measured, found); });
    grid.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
