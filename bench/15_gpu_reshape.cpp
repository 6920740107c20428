// SPDX-License-Identifier: Apache-2.0
// Rows 15 and 16 on a GPU: tokens between caches that differ as those of engines do. The reference of row 15 is a plain
// transfer of the same bytes. The references of row 16 are the driver's batch with a copy per span, and KVBM's kernel
// over pointers.
#include "common/clock.hpp"
#include "common/gpu.hpp"
#include "common/methods.hpp"
#include "common/parallel.hpp"
#include "common/points.hpp"
#include "common/reshape.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>

namespace {

using namespace bench;

constexpr int device = 0;
// Of the methods with a copy or pointer per span, because the driver's calls for so many copies are slow.
constexpr uint64_t bytes_by_span = 32 << 20;

struct direction {
    const char *name;
    const arena &from;
    const arena &to;
    uint64_t bytes;
};

struct memory {
    const arena &mirror; // host memory for the CPU's view of what is on the GPU
    const shared_kernel &kernel;
};

unsigned threads() { return std::clamp(std::thread::hardware_concurrency(), 1u, 16u); }

// Writes a different number to every word.
void fill_source(const arena &source, const arena &mirror, uint64_t bytes)
{
    auto *words = reinterpret_cast<uint64_t *>(source.where() == place::host ? source.base() : mirror.base());
    in_parts(bytes / sizeof *words, threads(), [words](size_t first, size_t last) {
        for (size_t index = first; index < last; ++index)
            words[index] = (index + 1) * 0x9E3779B97F4A7C15u;
    });
    if (source.where() == place::device)
        cuda::check(cuda::load().copy(source.base(), mirror.base(), bytes), "cuMemcpy");
}

void wipe(const arena &destination, uint64_t bytes)
{
    if (destination.where() == place::host)
        std::memset(reinterpret_cast<void *>(destination.base()), 0, bytes);
    else
        cuda::check(cuda::load().fill(destination.base(), 0, bytes), "cuMemsetD8");
    cuda::check(cuda::load().context_synchronize(), "cuCtxSynchronize");
}

// Throws unless every span arrived. The source has the same numbers in each run, so it is not read back.
void verify(const cache_pair &pair, const cuda::copy_list &spans, const arena &mirror, uint64_t bytes)
{
    const bool is_on_host = pair.destination.where() == place::host;
    if (!is_on_host)
        cuda::check(cuda::load().copy(mirror.base(), pair.destination.base(), bytes), "cuMemcpy");
    const uint64_t shift = is_on_host ? 0 : mirror.base() - pair.destination.base();
    in_parts(spans.sizes.size(), threads(), [&](size_t first, size_t last) {
        for (size_t index = first; index < last; ++index) {
            const auto *words = reinterpret_cast<const uint64_t *>(spans.to[index] + shift);
            uint64_t word = (spans.from[index] - pair.source.base()) / sizeof *words;
            for (uint64_t at = 0; at < spans.sizes[index] / sizeof *words; ++at)
                if (words[at] != (word + at + 1) * 0x9E3779B97F4A7C15u)
                    throw std::runtime_error("span " + std::to_string(index) + " did not arrive");
        }
    });
}

// A method to move the bytes; it is checked once.
struct mover {
    std::string name;
    std::function<void()> move;
};

candidate checked_once(const cache_pair &pair, const cuda::copy_list &spans, const arena &mirror, const mover &by)
{
    const uint64_t bytes = pair.shape.to.bytes(pair.tokens, pair.row_bytes);
    wipe(pair.destination, bytes);
    by.move();
    verify(pair, spans, mirror, bytes);
    return [by] { return time_ns(by.move); };
}

double expected_us(const kv::transfer &transfer, uint64_t bytes)
{
    kvmem_transfer_explanation explanation{};
    kv::call(kvmem_transfer_explain, transfer.get(), &explanation, nullptr);
    return static_cast<double>(bytes) / static_cast<double>(explanation.bytes_per_second) * 1e6;
}

struct method {
    const char *name;
    kv::preferences preferred;
};

std::vector<method> methods_of(const options &chosen)
{
    std::vector<method> methods = {{"prepared", {}}, {"prepared, GPU idle", {KVMEM_COMPUTE_IDLE}}};
    if (chosen.engines) {
        methods.push_back({"by CUDA kernel, 16 CTAs", {KVMEM_COMPUTE_IDLE, KVMEM_PATH_CUDA_KERNEL, 16}});
        methods.push_back({"by CUDA kernel", {KVMEM_COMPUTE_IDLE, KVMEM_PATH_CUDA_KERNEL}});
        methods.push_back({"by CUDA staged copy", {KVMEM_COMPUTE_IDLE, KVMEM_PATH_CUDA_STAGED}});
    }
    return methods;
}

kv::transfer possible(const cache_pair &pair, kv::preferences preferred)
{
    try {
        return pair.transfer(preferred);
    } catch (const std::exception &) {
        if (preferred.path == 0)
            throw;
        return nullptr; // the path does not support this direction
    }
}

parameters describe(const cache_pair &pair, const direction &along, const method &by, const kv::transfer &made)
{
    return {{"difference", pair.shape.name},     {"row_bytes", pair.row_bytes},
            {"direction", along.name},           {"bytes", pair.bytes()},
            {"way", by.name},                    {"path", kv::path_of(made)},
            {"expected_us", static_cast<uint64_t>(expected_us(made, pair.bytes()))},
            {"gpu", gpu_description(device)}};
}

void against_plain(const options &chosen, const direction &along, const memory &on, const cache_difference &shape,
                   uint64_t row_bytes, results &found)
{
    const uint64_t tokens = shape.tokens_for(along.bytes * shape.heads() / std::max(shape.from.heads, shape.to.heads),
                                             row_bytes);
    const cache_pair reshaped(shape, row_bytes, tokens, along.from, along.to);
    const cache_pair plain(plain_like(shape), row_bytes, tokens, along.from, along.to);
    fill_source(along.from, on.mirror, shape.from.bytes(tokens, row_bytes));
    const cuda::copy_list spans = reshaped.spans();
    const cuda::copy_list plain_spans = plain.spans();
    const cuda::own_stream stream;
    for (const method &by : methods_of(chosen)) {
        const kv::transfer ours = possible(reshaped, by.preferred);
        const kv::transfer theirs = possible(plain, by.preferred);
        if (ours == nullptr || theirs == nullptr)
            continue;
        const std::vector<samples> taken = alternate(
            chosen.rounds(11),
            {checked_once(reshaped, spans, on.mirror, {"ours", [&] { kv::submit_and_wait(ours); }}),
             checked_once(plain, plain_spans, on.mirror, {"plain", [&] { kv::submit_and_wait(theirs); }}), [&] {
                 return time_ns([&] {
                     cuda::copy_whole(along.to.base(), along.from.base(), plain.bytes(), stream);
                     stream.wait();
                 });
             }});
        const auto rate = [&](const samples &times) { return rates(static_cast<double>(reshaped.bytes()), times); };
        parameters setting = describe(reshaped, along, by, ours);
        setting.emplace_back("plain_path", kv::path_of(theirs));
        found.add({"15-reshape", setting, rate(taken[0]), "plain transfer of the same bytes", rate(taken[1]), rate(taken[2]),
                   "GB/s"});
    }
}

// KVBM's method: uploads pointers of all spans for each transfer. All spans have one size.
void copy_by_pointers(const cuda::copy_list &spans, cuda::pointer_kernel &kernel, const cuda::own_stream &stream)
{
    kernel.reuse_arrays();
    const size_t bytes = spans.to.size() * sizeof spans.to[0];
    std::memcpy(kernel.to(), spans.to.data(), bytes);
    std::memcpy(kernel.from(), spans.from.data(), bytes);
    kernel.copy(static_cast<uint32_t>(spans.to.size()), spans.sizes[0], 0, stream.get());
    stream.wait();
}

void against_others(const options &chosen, const direction &along, const memory &on, const cache_difference &shape,
                    uint64_t row_bytes, results &found)
{
    const uint64_t most = std::min(along.bytes, bytes_by_span);
    const cache_pair pair(shape, row_bytes, shape.tokens_for(most, row_bytes), along.from, along.to);
    fill_source(along.from, on.mirror, shape.from.bytes(pair.tokens, row_bytes));
    cuda::copy_list spans = pair.spans();
    const cuda::own_stream stream;
    const cuda::batch_hints hints = {along.from.where() == place::host, false};
    const kv::transfer ours = pair.transfer({});
    std::vector<mover> movers = {{"ours", [&] { kv::submit_and_wait(ours); }}};
    if (on.kernel != nullptr)
        movers.push_back({"pointers uploaded, one kernel", [&] { copy_by_pointers(spans, *on.kernel, stream); }});
    if (cuda::has_batch())
        movers.push_back({"cuMemcpyBatchAsync, a copy per span", [&] {
                              cuda::copy_batch(spans, hints, stream);
                              stream.wait();
                          }});
    std::vector<candidate> candidates;
    for (const mover &by : movers)
        candidates.push_back(checked_once(pair, spans, on.mirror, by));
    const std::vector<samples> taken = alternate(chosen.rounds(5), candidates);
    const auto rate = [&](const samples &times) { return rates(static_cast<double>(pair.bytes()), times); };
    parameters setting = describe(pair, along, {"prepared", {}}, ours);
    setting.emplace_back("spans", spans.sizes.size());
    for (size_t which = 1; which < movers.size(); ++which)
        found.add({"16-reshape", setting, rate(taken[0]), movers[which].name, rate(taken[which]), {}, "GB/s"});
}

bool has_second_gpu()
{
    kvmem_cuda_info driver{};
    kv::call(kvmem_cuda_get_info, &driver);
    return driver.device_count > 1;
}

void measure(const options &chosen, results &found)
{
    warn_of_stand_in();
    const cuda::current_device current(device);
    const uint64_t across = chosen.quick ? 16 << 20 : 256 << 20;
    const uint64_t within = chosen.quick ? 16 << 20 : 1 << 30;
    // The largest rows need a little more memory than what is moved.
    const uint64_t size = arena_size(within + (64 << 20));
    const arena host(place::host, device, size);
    const arena gpu(place::device, device, size);
    const arena other(place::device, device, size);
    const arena mirror(place::host, device, size);
    const uint64_t shortest = 128;
    const shared_kernel kernel = make_pointer_kernel(device, bytes_by_span / shortest);
    const memory on = {mirror, kernel};
    std::vector<direction> directions = {{"D2D", gpu, other, std::min(within, size)},
                                         {"H2D", host, gpu, std::min(across, size)},
                                         {"D2H", gpu, host, std::min(across, size)}};
    std::unique_ptr<const arena> peer;
    if (has_second_gpu()) {
        peer = std::make_unique<const arena>(place::device, device + 1, size);
        directions.push_back({"from the other GPU", *peer, gpu, std::min(within, size)});
    }
    points grid(chosen);
    for (const uint64_t row_bytes : {256, 128, 512})
        for (const direction &along : directions)
            for (const cache_difference &shape : cache_differences()) {
                const std::string title =
                    std::string(along.name) + ", " + shape.name + ", rows of " + std::to_string(row_bytes) + " bytes";
                grid.measure(title, [&] { against_plain(chosen, along, on, shape, row_bytes, found); });
                if (row_bytes == 256)
                    grid.measure(title + ", other methods",
                                 [&] { against_others(chosen, along, on, shape, row_bytes, found); });
            }
    grid.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
