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

// The number of the word at an offset.
uint64_t word_at(uint64_t offset) { return (offset / sizeof(uint64_t) + 1) * 0x9E3779B97F4A7C15u; }

// Writes a different number to every word.
void fill_source(const arena &source, const arena &mirror, uint64_t bytes)
{
    auto *words = reinterpret_cast<uint64_t *>(source.where() == place::host ? source.base() : mirror.base());
    in_parts(bytes / sizeof *words, threads(), [words](size_t first, size_t last) {
        for (size_t index = first; index < last; ++index)
            words[index] = word_at(index * sizeof *words);
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

// Returns where the CPU reads the destination: it is copied to the mirror if it is on the GPU.
uint64_t readable(const cache_pair &pair, const arena &mirror, uint64_t bytes)
{
    if (pair.destination.where() == place::host)
        return pair.destination.base();
    cuda::check(cuda::load().copy(mirror.base(), pair.destination.base(), bytes), "cuMemcpy");
    return mirror.base();
}

// Checks what was moved, with the CPU's address of the destination. Throws unless all of it arrived. The source has the same
// numbers in each run, so it is not read back.
using verifier = std::function<void(const cache_pair &pair, uint64_t destination)>;

void verify_spans(const cuda::copy_list &spans, const cache_pair &pair, uint64_t destination)
{
    const uint64_t shift = destination - pair.destination.base();
    in_parts(spans.sizes.size(), threads(), [&](size_t first, size_t last) {
        for (size_t index = first; index < last; ++index) {
            const auto *words = reinterpret_cast<const uint64_t *>(spans.to[index] + shift);
            const uint64_t from = spans.from[index] - pair.source.base();
            for (uint64_t at = 0; at < spans.sizes[index] / sizeof *words; ++at)
                if (words[at] != word_at(from + at * sizeof *words))
                    throw std::runtime_error("span " + std::to_string(index) + " did not arrive");
        }
    });
}

// The elements of one head of one token: the strides of both sides are constant.
void verify_row(const cache_pair &pair, element_index first, uint64_t destination)
{
    const element_index second = {first.layer, first.outer, first.token, first.head, 1};
    uint64_t from = pair.source_offset(first), to = pair.destination_offset(first);
    const uint64_t here = pair.source_offset(second) - from, there = pair.destination_offset(second) - to;
    for (uint64_t element = 0; element < pair.row.elements(); ++element, from += here, to += there) {
        const uint64_t word = word_at(from) >> 8 * (from % sizeof(uint64_t));
        if (std::memcmp(&word, reinterpret_cast<const void *>(destination + to), pair.row.element_bytes) != 0)
            throw std::runtime_error("an element of token " + std::to_string(first.token) + " did not arrive");
    }
}

void verify_elements(const cache_pair &pair, uint64_t destination)
{
    in_parts(pair.tokens, threads(), [&](size_t begin, size_t end) {
        for (element_index at = {}; at.layer < reshape_layers; ++at.layer)
            for (at.outer = 0; at.outer < reshape_outers; ++at.outer)
                for (at.token = begin; at.token < end; ++at.token)
                    for (at.head = 0; at.head < pair.shape.heads(); ++at.head)
                        verify_row(pair, at, destination);
    });
}

// A method to move the bytes; it is checked once.
struct mover {
    std::string name;
    std::function<void()> move;
};

candidate checked_once(const cache_pair &pair, const verifier &verify, const arena &mirror, const mover &by)
{
    const uint64_t bytes = pair.shape.to.bytes(pair.tokens, pair.row);
    wipe(pair.destination, bytes);
    by.move();
    verify(pair, readable(pair, mirror, bytes));
    return [by] { return time_ns(by.move); };
}

double expected_us(const kv::transfer &transfer, uint64_t bytes)
{
    return static_cast<double>(bytes) / static_cast<double>(kv::used_method(transfer).bytes_per_second) * 1e6;
}

struct method {
    const char *name;
    kv::preferences preferred;
};

std::vector<method> methods_of(const options &chosen)
{
    std::vector<method> methods = {{"prepared", {}}, {"prepared, GPU idle", {KVMEM_COMPUTE_IDLE}}};
    if (chosen.engines) {
        methods.push_back({"by CUDA kernel, 16 CTAs", {KVMEM_COMPUTE_IDLE, KVMEM_METHOD_CUDA_KERNEL, 16}});
        methods.push_back({"by CUDA kernel", {KVMEM_COMPUTE_IDLE, KVMEM_METHOD_CUDA_KERNEL}});
        methods.push_back({"by CUDA staged copy", {KVMEM_COMPUTE_IDLE, KVMEM_METHOD_CUDA_STAGED}});
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
    return {{"difference", pair.shape.name},     {"row_bytes", pair.row.bytes},
            {"element_bytes", pair.row.element_bytes},
            {"direction", along.name},           {"bytes", pair.bytes()},
            {"way", by.name},                    {"path", kv::path_of(made)},
            {"expected_us", static_cast<uint64_t>(expected_us(made, pair.bytes()))},
            {"gpu", gpu_description(device)}};
}

// Checks rows as spans, because that is faster than each element.
verifier verifier_of(const cache_pair &pair)
{
    if (!pair.shape.from.has_rows() || !pair.shape.to.has_rows())
        return verify_elements;
    const auto spans = std::make_shared<cuda::copy_list>(pair.spans());
    return [spans](const cache_pair &of, uint64_t destination) { verify_spans(*spans, of, destination); };
}

void against_plain(const options &chosen, const direction &along, const memory &on, const cache_difference &shape,
                   row_shape row, results &found)
{
    const uint64_t tokens =
        shape.tokens_for(along.bytes * shape.heads() / std::max(shape.from.heads, shape.to.heads), row);
    const cache_pair reshaped(shape, row, tokens, along.from, along.to);
    const cache_pair plain(plain_like(shape), row, tokens, along.from, along.to);
    fill_source(along.from, on.mirror, shape.from.bytes(tokens, row));
    const verifier verify = verifier_of(reshaped), verify_plain = verifier_of(plain);
    const cuda::own_stream stream;
    for (const method &by : methods_of(chosen)) {
        const kv::transfer ours = possible(reshaped, by.preferred);
        const kv::transfer theirs = possible(plain, by.preferred);
        if (ours == nullptr || theirs == nullptr)
            continue;
        const std::vector<samples> taken = alternate(
            chosen.rounds(11),
            {checked_once(reshaped, verify, on.mirror, {"ours", [&] { kv::submit_and_wait(ours); }}),
             checked_once(plain, verify_plain, on.mirror, {"plain", [&] { kv::submit_and_wait(theirs); }}), [&] {
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
                    row_shape row, results &found)
{
    const uint64_t most = std::min(along.bytes, bytes_by_span);
    const cache_pair pair(shape, row, shape.tokens_for(most, row), along.from, along.to);
    fill_source(along.from, on.mirror, shape.from.bytes(pair.tokens, row));
    cuda::copy_list spans = pair.spans();
    const verifier verify = [&](const cache_pair &of, uint64_t destination) { verify_spans(spans, of, destination); };
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
        candidates.push_back(checked_once(pair, verify, on.mirror, by));
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
                const row_shape row = {row_bytes};
                grid.measure(title, [&] { against_plain(chosen, along, on, shape, row, found); });
                if (row_bytes == 256)
                    grid.measure(title + ", other methods", [&] { against_others(chosen, along, on, shape, row, found); });
            }
    for (const uint64_t element_bytes : {2, 1, 4, 8})
        for (const direction &along : directions)
            for (const cache_difference &shape : transposed_differences())
                grid.measure(std::string(along.name) + ", transposed " + shape.name + ", elements of " +
                                 std::to_string(element_bytes) + " bytes",
                             [&] { against_plain(chosen, along, on, shape, {256, element_bytes}, found); });
    grid.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
