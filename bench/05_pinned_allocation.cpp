// SPDX-License-Identifier: Apache-2.0
// Row 5: pinned memory, against cuMemHostAlloc; and its page lock alone, against the bare cuMemHostRegister.
#include "common/clock.hpp"
#include "common/gpu.hpp"
#include "common/kv.hpp"
#include "common/machine.hpp"
#include "common/program.hpp"
#include "reference/cuda.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <time.h>

namespace {

using namespace bench;
using kv::region;

constexpr int device = 0;
constexpr unsigned host_flags = cuda::host_portable | cuda::host_mapped; // kvmem passes the same flags
constexpr uint64_t gib = 1 << 30;

const char *max_gib = nullptr; // largest size; NULL: half of the free memory, at most 32

// With a chunk size of 0, the default, pages are touched while the pages before them are locked.
region create_pinned(uint64_t size, uint32_t threads, uint64_t chunk_size = 0)
{
    kvmem_pinned_options options{};
    options.struct_size = sizeof options;
    options.size = size;
    options.device = device;
    options.threads = threads;
    options.chunk_size = chunk_size;
    return kv::make<region>(kvmem_region_create_pinned, &options);
}

// Memory like that of create_pinned, with the same page size and NUMA node, but not locked.
region create_unlocked(const kvmem_region_info &like, uint32_t threads)
{
    kvmem_system_options options{};
    options.struct_size = sizeof options;
    options.flags = KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES;
    options.size = like.size;
    options.prefault_threads = threads;
    if (like.numa_node >= 0) {
        options.flags |= KVMEM_SYSTEM_NUMA_BIND;
        options.numa_node = static_cast<uint32_t>(like.numa_node);
    }
    return kv::make<region>(kvmem_region_create_system, &options);
}

kvmem_region_info info_of(const region &memory)
{
    kvmem_region_info info{};
    kv::call(kvmem_region_get_info, memory.get(), &info);
    return info;
}

void *host_alloc(uint64_t size)
{
    void *memory = nullptr;
    cuda::check(cuda::load().host_alloc(&memory, size, host_flags), "cuMemHostAlloc");
    return memory;
}

uint64_t max_bytes()
{
    if (max_gib == nullptr)
        return std::min(32 * gib, free_bytes() / 2);
    char *end = nullptr;
    const uint64_t number = std::strtoull(max_gib, &end, 10);
    if (*end != '\0' || number == 0 || number > 1024)
        throw std::invalid_argument("--most-gib takes 1 to 1024, not " + std::string(max_gib));
    return number * gib;
}

std::vector<uint64_t> sizes(const options &chosen)
{
    const uint64_t most = max_bytes();
    if (chosen.quick)
        return {64 << 20};
    std::vector<uint64_t> found;
    for (uint64_t size = gib; size <= most; size *= 2)
        found.push_back(size);
    if (found.empty())
        throw std::runtime_error("less than 2 GiB of memory are free; --most-gib 1 measures anyway");
    return found;
}

int rounds(const options &chosen, uint64_t size) { return chosen.rounds(size <= 8 * gib ? 5 : 3); }

samples milliseconds(const samples &nanoseconds)
{
    samples values;
    for (double value : nanoseconds)
        values.push_back(value * 1e-6);
    return values;
}

struct subject {
    uint64_t size;
    uint32_t threads;
    const char *timed;
    const char *reference;
};

void add_row(results &found, const subject &what, const samples &ours_ns, const samples &reference_ns)
{
    const parameters measured = {{"MiB", what.size >> 20},
                                 {"threads", what.threads},
                                 {"timed", what.timed},
                                 {"gpu", gpu_description(device)}};
    found.add({"05-pinned-allocation", measured, milliseconds(ours_ns), what.reference,
               milliseconds(reference_ns), {}, "ms"});
}

// Allocates and frees memory. Returns the duration of the allocation, and adds that of both to `whole`.
template <typename Allocate, typename Free>
candidate allocation_turn(samples &whole, Allocate allocate, Free free)
{
    return [&whole, allocate, free] {
        const double start = now_ns();
        auto memory = allocate();
        const double allocated = now_ns();
        free(memory);
        whole.push_back(now_ns() - start);
        return allocated - start;
    };
}

void measure_allocation(const options &chosen, uint64_t size, results &found)
{
    const uint32_t threads[] = {1, 4, 8, 16};
    constexpr size_t reference = std::size(threads);
    std::vector<samples> whole(reference + 1);
    std::vector<candidate> candidates;
    for (size_t ours = 0; ours < reference; ++ours)
        candidates.push_back(allocation_turn(
            whole[ours], [size, count = threads[ours]] { return create_pinned(size, count); },
            [](region &memory) { memory.reset(); }));
    candidates.push_back(allocation_turn(
        whole[reference], [size] { return host_alloc(size); },
        [](void *memory) { cuda::check(cuda::load().host_free(memory), "cuMemFreeHost"); }));
    const std::vector<samples> allocation = alternate(rounds(chosen, size), candidates);
    for (samples &turns : whole)
        turns.erase(turns.begin()); // `alternate` does not count the first turn either

    for (size_t ours = 0; ours < reference; ++ours) {
        add_row(found, {size, threads[ours], "allocate", "cuMemHostAlloc"}, allocation[ours],
                allocation[reference]);
        add_row(found, {size, threads[ours], "allocate, free", "cuMemHostAlloc, cuMemFreeHost"},
                whole[ours], whole[reference]);
    }
}

struct cost {
    double wall_ns;
    double cpu_ns; // of the calling thread
};

double thread_cpu_ns()
{
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

template <typename Work> cost cost_of(Work &&work)
{
    const double cpu = thread_cpu_ns();
    const double wall = time_ns(work);
    return {wall, thread_cpu_ns() - cpu};
}

// kvmem locks pages only while it creates memory. Here it touches all of them first and then locks them by one call, as
// the reference does. The duration of the lock is measured in two ways:
// - CPU time of the calling thread, which maps the memory and locks it while other threads touch the pages;
// - the duration of the whole creation, less that of creating the same memory unlocked in the same turn.
void measure_page_lock(const options &chosen, uint64_t size, results &found)
{
    constexpr uint32_t threads = 8;
    samples ours_cpu, ours_left, bare_cpu, bare_wall;
    for (int round = -1; round < rounds(chosen, size); ++round) {
        region memory;
        const cost pinned = cost_of([&] { memory = create_pinned(size, threads, size); });
        const kvmem_region_info like = info_of(memory);
        memory.reset();
        const cost unlocked = cost_of([&] { memory = create_unlocked(like, threads); });
        void *address = reinterpret_cast<void *>(info_of(memory).address);
        const cost bare = cost_of([&] {
            cuda::check(cuda::load().host_register(address, size, host_flags), "cuMemHostRegister");
        });
        cuda::check(cuda::load().host_unregister(address), "cuMemHostUnregister");
        if (round < 0)
            continue; // the first turn is not counted
        ours_cpu.push_back(pinned.cpu_ns);
        ours_left.push_back(pinned.wall_ns - unlocked.wall_ns);
        bare_cpu.push_back(bare.cpu_ns);
        bare_wall.push_back(bare.wall_ns);
    }
    const char *bare = "cuMemHostRegister of pages that are there";
    add_row(found, {size, threads, "page lock: CPU time of the calling thread", bare}, ours_cpu, bare_cpu);
    add_row(found, {size, threads, "page lock: allocate less allocate unlocked", bare}, ours_left, bare_wall);
}

void measure(const options &chosen, results &found)
{
    warn_of_stand_in();
    const cuda::current_device current(device);
    for (uint64_t size : sizes(chosen)) {
        measure_allocation(chosen, size, found);
        measure_page_lock(chosen, size, found);
    }
}

// Removes `--most-gib N` from the arguments; every bench has the others.
int take_max_gib(int argc, char **argv)
{
    char **end = argv + argc;
    char **option = std::find(argv, end, std::string("--most-gib"));
    if (end - option < 2)
        return argc;
    max_gib = option[1];
    std::copy(option + 2, end, option);
    return argc - 2;
}

} // namespace

int main(int argc, char **argv)
{
    argc = take_max_gib(argc, argv);
    return bench::run_program(argc, argv, measure);
}
