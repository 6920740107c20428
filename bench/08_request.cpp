// SPDX-License-Identifier: Apache-2.0
// Row 8, one request at a time: the time that kvmem adds to a NIXL request that is posted and awaited, with 1, 8 and 32
// peers. kvmem and the reference create their requests once, on the same memory.
#include "common/clock.hpp"
#include "common/many_sides.hpp"
#include "common/points.hpp"
#include "common/program.hpp"

#include <algorithm>
#include <functional>
#include <memory>

namespace {

using namespace bench;

constexpr uint64_t largest = uint64_t{1} << 20;
constexpr const char *reference_name = "NIXL's C API: post, poll without pause";

kvmem_nixl_descriptor descriptor(const nixl::span &memory, uint64_t bytes)
{
    kvmem_nixl_descriptor made{};
    made.address = memory.address;
    made.size = bytes;
    made.memory_type = KVMEM_MEMORY_DRAM;
    return made;
}

kv::request request(const many_sides &sides, unsigned peer, uint64_t bytes, kvmem_queue *queue)
{
    const kvmem_nixl_descriptor here = descriptor(sides.local_block(peer, 0), bytes);
    const kvmem_nixl_descriptor there = descriptor(sides.remote_block(peer, 0), bytes);
    kvmem_nixl_options options{};
    options.struct_size = sizeof options;
    options.queue = queue;
    return kv::make<kv::request>(kvmem_request_create, sides.agent(), uint32_t{KVMEM_REQUEST_READ}, &here,
                                 sides.peers()[peer].name.c_str(), &there, size_t{1}, &options);
}

std::unique_ptr<nixl::read_request> request(const many_sides &sides, const nixl::agent &reference, unsigned peer,
                                            uint64_t bytes)
{
    nixl::descriptors here(reference), there(reference);
    here.add({sides.local_block(peer, 0).address, bytes});
    there.add({sides.remote_block(peer, 0).address, bytes});
    return std::make_unique<nixl::read_request>(reference, here, there, sides.peers()[peer].reference_name);
}

void post(const kv::request &request) { kv::call(kvmem_request_post, request.get(), nullptr, size_t{0}); }

void wait(const kv::request &request) { kv::call(kvmem_request_wait, request.get(), KVMEM_TIMEOUT_FOREVER); }

void take(kvmem_queue *queue)
{
    kvmem_completion completion{};
    size_t count = 0;
    kv::call(kvmem_queue_wait, queue, uint64_t{30'000'000'000}, &completion, size_t{1}, &count);
}

// A method to run a round of requests, and its CPU time per request.
struct method {
    std::function<void()> round;
    samples cpu{};
};

// Returns the mean duration of a request in us, and adds its mean CPU time, of all threads of this process, to the
// method.
double run(method &chosen, unsigned rounds, unsigned per_round)
{
    const double cpu = cpu_seconds();
    const double spent = time_ns([&] {
        for (unsigned i = 0; i < rounds; ++i)
            chosen.round();
    });
    const double count = double(rounds) * per_round;
    chosen.cpu.push_back((cpu_seconds() - cpu) * 1e6 / count);
    return spent / 1000 / count;
}

void measure_size(const options &chosen, const many_sides &all, const nixl::agent &reference, uint64_t bytes,
                  results &found)
{
    const kv::queue queue = kv::make<kv::queue>(kvmem_queue_create);
    std::vector<kv::request> ours;
    std::vector<kv::request> queued;
    std::vector<std::unique_ptr<nixl::read_request>> theirs;
    const unsigned count = static_cast<unsigned>(all.peers().size());
    for (unsigned peer = 0; peer < count; ++peer) {
        ours.push_back(request(all, peer, bytes, nullptr));
        queued.push_back(request(all, peer, bytes, queue.get()));
        theirs.push_back(request(all, reference, peer, bytes));
    }

    method one_by_one{[&] {
        for (const kv::request &request : ours) {
            post(request);
            wait(request);
        }
    }};
    method by_queue{[&] {
        for (const kv::request &request : queued) {
            post(request);
            take(queue.get());
        }
    }};
    method reference_one_by_one{[&] {
        for (const auto &request : theirs)
            request->post_and_poll();
    }};
    method at_once{[&] {
        for (const kv::request &request : ours)
            post(request);
        for (const kv::request &request : ours)
            wait(request);
    }};
    method reference_at_once{[&] {
        for (const auto &request : theirs)
            request->post();
        for (const auto &request : theirs)
            while (!request->done()) {
            }
    }};

    // About 20 ms per sample at 10 GB/s, and enough requests for the resolution of the CPU clock.
    const unsigned wanted = bytes <= 65536 ? 2000 : 400;
    const unsigned rounds = std::max(1u, (chosen.quick ? wanted / 20 : wanted) / count);
    method *const methods[] = {&one_by_one, &reference_one_by_one, &by_queue, &at_once, &reference_at_once};
    std::vector<candidate> candidates;
    for (method *each : methods)
        candidates.push_back([each, rounds, count] { return run(*each, rounds, count); });
    const std::vector<samples> taken = alternate(chosen.rounds(15), candidates);

    const auto add = [&](const char *step, size_t ours_at, size_t theirs_at) {
        const parameters setting = {
            {"peers", count}, {"bytes", bytes}, {"step", step}, {"progress_thread", "off"}};
        parameters wall = setting;
        wall.emplace_back("time", "wall");
        found.add({"08-request", wall, taken[ours_at], reference_name, taken[theirs_at], {}, "us"});
        parameters cpu = setting;
        cpu.emplace_back("time", "CPU");
        found.add({"08-request", cpu, methods[ours_at]->cpu, reference_name, methods[theirs_at]->cpu, {}, "us"});
    };
    add("post, wait", 0, 1);
    add("post, queue", 2, 1);
    add("post to all peers, wait for all", 3, 4);
}

void measure(const options &chosen, results &found)
{
    points wanted(chosen);
    for (unsigned num_peers : {1u, 8u, 32u})
        wanted.measure(std::to_string(num_peers) + " peers", [&] {
            const many_sides all(num_peers, {1, largest}, false);
            const std::unique_ptr<nixl::agent> reference = all.make_reference("reference", false);
            for (uint64_t bytes : {uint64_t{64}, uint64_t{4096}, uint64_t{65536}, largest})
                measure_size(chosen, all, *reference, bytes, found);
        });
    wanted.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure, bench::serve_pool); }
