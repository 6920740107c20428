// SPDX-License-Identifier: Apache-2.0
// Row 6: elastic memory that grows and shrinks by 1 GiB, against the 2 MiB pages of kvcached and vAttention.
#include "common/block_ids.hpp"
#include "common/clock.hpp"
#include "common/gpu.hpp"
#include "common/kv.hpp"
#include "common/points.hpp"
#include "reference/cuda.hpp"
#include "reference/vmm_pages.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>

namespace {

using namespace bench;
using kv::region;

constexpr int device = 0;
constexpr uint64_t gib = 1 << 30;
constexpr uint64_t page = 2 << 20;
constexpr uint64_t extent = 64 << 20; // kvmem's default

// A method to grow and shrink memory by steps. The functions own the range: destroying them frees it.
struct method {
    const char *name;
    cuda::address base;
    std::function<void(uint64_t offset, uint64_t size)> grow;
    std::function<void(uint64_t offset, uint64_t size)> shrink;
};

struct growth {
    uint64_t step;
    uint64_t size;
    double per_gib(double ns) const { return ns * 1e-6 * gib / static_cast<double>(size); } // milliseconds
};

struct taken_times {
    samples grow;
    samples shrink;
    samples grow_at_once; // right after as much was freed
};

region reserve_elastic(uint64_t size)
{
    kvmem_elastic_options options{};
    options.struct_size = sizeof options;
    options.size = size;
    options.device = device;
    return kv::make<region>(kvmem_region_create_elastic, &options);
}

kv::layout lay_out(const kvmem_layout_config &config, const region *memory, int gpu)
{
    kvmem_device_options plain{};
    plain.struct_size = sizeof plain;
    plain.device = gpu;
    kvmem_region *const regions[] = {memory != nullptr ? memory->get() : nullptr};
    kvmem_layout_options options = kv::allocated(config);
    if (memory != nullptr) {
        options.source = KVMEM_LAYOUT_REGIONS;
        options.regions = regions;
        options.count = 1;
    } else {
        options.device = &plain;
    }
    return kv::make<kv::layout>(kvmem_layout_build, &options);
}

// Moves blocks of the first extent to the peer and back by kernels, so that each later extent is opened for the peer.
region open_for(int peer, region range)
{
    constexpr uint32_t blocks = 64;
    kv::call(kvmem_region_commit, range.get(), uint64_t{0}, extent);
    {
        const kvmem_layout_config config = whole_blocks(extent / blocks, blocks);
        const auto view = kv::make<region>(kvmem_region_create_view, range.get(), uint64_t{0}, extent);
        const kv::layout here = lay_out(config, &view, device);
        const kv::layout there = lay_out(config, nullptr, peer);
        const kv::preferences preferred{KVMEM_COMPUTE_IDLE, KVMEM_METHOD_CUDA_KERNEL};
        kv::submit_and_wait(kv::make_transfer(here, there, {{0, 1}}, {}, preferred));
        kv::submit_and_wait(kv::make_transfer(there, here, {{1, 2}}, {}, preferred));
    }
    kv::call(kvmem_region_decommit, range.get(), uint64_t{0}, extent);
    return range;
}

method ours(const std::shared_ptr<kvmem_region> &range)
{
    kvmem_region_info info{};
    kv::call(kvmem_region_get_info, range.get(), &info);
    return {
        "kvmem", info.address,
        [range](uint64_t offset, uint64_t size) { kv::call(kvmem_region_commit, range.get(), offset, size); },
        [range](uint64_t offset, uint64_t size) {
            kv::call(kvmem_region_decommit, range.get(), offset, size);
        }};
}

method paged(const char *name, const growth &shape, uint64_t page_size, cuda::page_access access,
          cuda::page_supply supply, cuda::page_export exported = cuda::page_export::none,
          std::vector<int> users = {})
{
    auto range =
        std::make_shared<cuda::paged_range>(device, shape.size, page_size, access, supply, exported, users);
    return {name, range->base(), [range](uint64_t offset, uint64_t size) { range->grow(offset, size); },
            [range](uint64_t offset, uint64_t size) { range->shrink(offset, size); }};
}

// Throws unless every page returns what was written to it.
void verify(const method &measured, const growth &shape, unsigned char value)
{
    cuda::check(cuda::load().fill(measured.base, value, shape.size), "cuMemsetD8");
    for (uint64_t offset = page - sizeof(uint64_t); offset < shape.size; offset += page) {
        uint64_t word = 0;
        cuda::check(
            cuda::load().copy(reinterpret_cast<cuda::address>(&word), measured.base + offset, sizeof word),
            "cuMemcpy");
        if (word != value * 0x0101010101010101u)
            throw std::runtime_error(std::string(measured.name) + ": wrong bytes at " +
                                     std::to_string(offset));
    }
}

// The driver clears freed memory, at 2 us per MiB on some hosts, and cuMemSetAccess waits for it. So a method that
// grows right after another one has shrunk would be charged for that one. The wait does not sleep, so that the core's
// clock stays as high as in an engine.
void wait_for_clearing(const growth &shape)
{
    constexpr double at_least_ns = 5e6;
    constexpr double each_mib_ns = 4e3;
    const double until = now_ns() + at_least_ns + each_mib_ns * static_cast<double>(shape.size >> 20);
    while (now_ns() < until)
        ;
}

double grow(const method &measured, const growth &shape)
{
    return shape.per_gib(time_ns([&] {
        for (uint64_t offset = 0; offset < shape.size; offset += shape.step)
            measured.grow(offset, shape.step);
    }));
}

double shrink(const method &measured, const growth &shape)
{
    return shape.per_gib(time_ns([&] {
        for (uint64_t offset = shape.size; offset > 0; offset -= shape.step)
            measured.shrink(offset - shape.step, shape.step);
    }));
}

void take_turn(const method &measured, const growth &shape, unsigned char value, taken_times &times)
{
    wait_for_clearing(shape);
    times.grow.push_back(grow(measured, shape));
    verify(measured, shape, value);
    times.shrink.push_back(shrink(measured, shape));
    times.grow_at_once.push_back(grow(measured, shape));
    shrink(measured, shape);
}

void add_rows(results &found, const growth &shape, const char *opened, const std::vector<method> &methods,
              const std::vector<taken_times> &times)
{
    const size_t ceiling = methods.size() - 1;
    const std::pair<const char *, samples taken_times::*> directions[] = {
        {"grow", &taken_times::grow},
        {"shrink", &taken_times::shrink},
        {"grow right after shrinking", &taken_times::grow_at_once}};
    for (const auto &[timed, samples_of] : directions)
        for (size_t reference = 1; reference < ceiling; ++reference)
            found.add({"06-elastic-growth",
                       {{"timed", timed},
                        {"MiB", shape.size >> 20},
                        {"step_MiB", shape.step >> 20},
                        {"opened for", opened},
                        {"gpu", gpu_description(device)}},
                       times[0].*samples_of,
                       methods[reference].name,
                       times[reference].*samples_of,
                       times[ceiling].*samples_of,
                       "ms per GiB"});
}

std::vector<taken_times> take_turns(const options &chosen, const growth &shape, const std::vector<method> &methods)
{
    std::vector<taken_times> times(methods.size());
    const int rounds = chosen.rounds(7);
    std::vector<size_t> order(methods.size());
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(6);
    for (int round = -1; round < rounds; ++round) {
        // A random order, because a method gets the memory that the one before it has freed.
        std::shuffle(order.begin(), order.end(), random);
        for (size_t which : order) {
            taken_times uncounted;
            take_turn(methods[which], shape, static_cast<unsigned char>(round + 2),
                      round < 0 ? uncounted : times[which]);
        }
    }
    return times;
}

void measure_growth(const options &chosen, const growth &shape, results &found)
{
    using access = cuda::page_access;
    using supply = cuda::page_supply;
    // The ceiling, one handle per step, is the last.
    const std::vector<method> methods = {
        ours(reserve_elastic(shape.size)),
        paged("2 MiB pages", shape, page, access::each, supply::created),
        paged("2 MiB pages, access once a step", shape, page, access::once, supply::created),
        paged("2 MiB pages from a pool", shape, page, access::each, supply::pooled),
        paged("64 MiB extents, the bare calls", shape, extent, access::once, supply::created,
              cuda::page_export::as_fd),
        paged("one handle a step", shape, shape.step, access::once, supply::created),
    };
    add_rows(found, shape, "its GPU", methods, take_turns(chosen, shape, methods));
}

// Returns another GPU that can access the memory, or -1.
int find_peer()
{
    kvmem_cuda_info driver{};
    kv::call(kvmem_cuda_get_info, &driver);
    for (int other = 0; other < driver.device_count; ++other) {
        kvmem_cuda_device_info info{};
        kv::call(kvmem_cuda_get_device_info, other, &info);
        if (other != device && ((info.can_access >> device) & 1) != 0)
            return other;
    }
    return -1;
}

// Another GPU has transferred from this memory, so each new extent is opened for that GPU too.
void measure_for_peer(const options &chosen, const growth &shape, int peer, results &found)
{
    using access = cuda::page_access;
    using supply = cuda::page_supply;
    const std::vector<method> methods = {
        ours(open_for(peer, reserve_elastic(shape.size))),
        paged("2 MiB pages", shape, page, access::each, supply::created, cuda::page_export::none, {peer}),
        paged("64 MiB extents, the bare calls", shape, extent, access::once, supply::created,
              cuda::page_export::as_fd, {peer}),
        paged("one handle a step", shape, shape.step, access::once, supply::created, cuda::page_export::none,
              {peer}),
    };
    add_rows(found, shape, "its GPU and a peer", methods, take_turns(chosen, shape, methods));
}

// One reference keeps its pool while the other methods grow.
uint64_t max_bytes()
{
    size_t free = 0;
    size_t total = 0;
    cuda::check(cuda::load().memory_info(&free, &total), "cuMemGetInfo");
    return free * 2 / 5;
}

void measure(const options &chosen, results &found)
{
    warn_of_stand_in();
    const cuda::current_device current(device);
    const std::vector<growth> shapes = chosen.quick ? std::vector<growth>{{64 << 20, 256 << 20}}
                                                    : std::vector<growth>{{gib, 4 * gib}};
    points points(chosen);
    for (const growth &shape : shapes)
        points.measure(
            std::to_string(shape.size >> 20) + " MiB in steps of " + std::to_string(shape.step >> 20), [&] {
                if (shape.size > max_bytes())
                    throw std::runtime_error(
                        "less than two and a half times as much memory is free on the GPU");
                measure_growth(chosen, shape, found);
            });
    const int peer = find_peer();
    for (const growth &shape : shapes) {
        const std::string title = std::to_string(shape.size >> 20) + " MiB, opened for a peer";
        if (peer < 0)
            points.skip(title, "no other GPU can access it");
        else
            points.measure(title, [&] { measure_for_peer(chosen, shape, peer, found); });
    }
    points.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
