// SPDX-License-Identifier: Apache-2.0
// Row 8, one request at a time: what kvmem adds to a NIXL request that is posted and awaited, with 1, 8 and 32 peers. Both
// sides have their requests created once, on the same memory.
#include "common/block_ids.hpp"
#include "common/clock.hpp"
#include "common/program.hpp"
#include "common/two_sides.hpp"

#include <algorithm>
#include <functional>
#include <memory>

namespace {

using namespace bench;

constexpr uint64_t largest = uint64_t{1} << 20;
constexpr const char *reference_name = "NIXL's C API: post, poll without pause";

// The memory of one peer, as both know it.
struct there {
    std::unique_ptr<peer> process;
    uintptr_t base = 0;
    kv::layout remote; // kvmem imports it, so that it knows the process
    std::string name;
    std::string reference_name;
};

// This process, its agents, and all peers.
class neighbourhood {
  public:
    explicit neighbourhood(unsigned num_peers)
        : agent_(kv::make_agent("initiator", false)),
          local_(kv::make_layout(blocks_of(largest, 1, 1, 1), agent_.get())),
          base_(reinterpret_cast<uintptr_t>(host_view(local_).piece(0, 0, 0))), reference_("reference", false)
    {
        reference_.add_memory({base_, largest});
        for (unsigned number = 0; number < num_peers; ++number)
            peers_.push_back(meet(number));
    }

    kv::request request(const there &peer, uint64_t bytes, kvmem_queue *queue) const
    {
        const kv::descriptors here = list(base_, bytes);
        const kv::descriptors there = list(peer.base, bytes);
        kvmem_nixl_options options;
        kvmem_nixl_options_init(&options, sizeof options);
        options.queue = queue;
        return kv::make<kv::request>(kvmem_request_create, agent_.get(), uint32_t{KVMEM_REQUEST_READ}, here.get(),
                                     peer.name.c_str(), there.get(), &options);
    }

    std::unique_ptr<nixl::read_request> reference(const there &peer, uint64_t bytes) const
    {
        nixl::descriptors here(reference_);
        nixl::descriptors there(reference_);
        here.add({base_, bytes});
        there.add({peer.base, bytes});
        return std::make_unique<nixl::read_request>(reference_, here, there, peer.reference_name);
    }

    const std::vector<there> &peers() const { return peers_; }
    host_view view() const { return host_view(local_); }

  private:
    static kv::descriptors list(uintptr_t address, uint64_t bytes)
    {
        kv::descriptors made = kv::make<kv::descriptors>(kvmem_descriptors_create, uint32_t{KVMEM_MEMORY_DRAM});
        kvmem_descriptor descriptor{};
        descriptor.address = address;
        descriptor.size = bytes;
        kv::call(kvmem_descriptors_add, made.get(), &descriptor, size_t{1});
        return made;
    }

    there meet(unsigned number)
    {
        there met;
        met.process = std::make_unique<peer>(
            std::vector<std::string>{"1", std::to_string(largest), std::to_string(number)});
        channel &link = met.process->link();
        const nixl::bytes metadata = link.receive();
        const nixl::bytes descriptor = link.receive();
        const nixl::bytes reference_metadata = link.receive();
        met.base = value_of<uintptr_t>(link.receive());
        met.name = "target " + std::to_string(number);
        kv::call(kvmem_agent_load_remote_metadata, agent_.get(), metadata.data(), metadata.size(), nullptr);
        met.remote = kv::make<kv::layout>(kvmem_layout_import, agent_.get(), descriptor.data(), descriptor.size());
        met.reference_name = reference_.load_peer(reference_metadata);
        return met;
    }

    kv::agent agent_;
    kv::layout local_;
    uintptr_t base_;
    nixl::agent reference_;
    std::vector<there> peers_;
};

void post(const kv::request &request) { kv::call(kvmem_request_post, request.get(), nullptr, size_t{0}); }

void wait(const kv::request &request) { kv::call(kvmem_request_wait, request.get(), uint64_t{30'000'000'000}); }

void take(kvmem_queue *queue)
{
    kvmem_completion completion{};
    size_t count = 0;
    kv::call(kvmem_queue_wait, queue, uint64_t{30'000'000'000}, &completion, size_t{1}, &count);
}

// A way to run a round of requests, with the CPU time that each took.
struct way {
    std::function<void()> round;
    samples cpu{};
};

// Mean duration of a request, in us; the CPU time of all threads of this process goes to the way.
double run(way &chosen, unsigned rounds, unsigned per_round)
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

void measure_size(const options &chosen, const neighbourhood &all, uint64_t bytes, results &found)
{
    const kv::queue queue = kv::make<kv::queue>(kvmem_queue_create);
    std::vector<kv::request> ours;
    std::vector<kv::request> queued;
    std::vector<std::unique_ptr<nixl::read_request>> theirs;
    for (const there &peer : all.peers()) {
        ours.push_back(all.request(peer, bytes, nullptr));
        queued.push_back(all.request(peer, bytes, queue.get()));
        theirs.push_back(all.reference(peer, bytes));
    }
    const unsigned count = static_cast<unsigned>(all.peers().size());

    way one_by_one{[&] {
        for (const kv::request &request : ours) {
            post(request);
            wait(request);
        }
    }};
    way by_queue{[&] {
        for (const kv::request &request : queued) {
            post(request);
            take(queue.get());
        }
    }};
    way reference_one_by_one{[&] {
        for (const auto &request : theirs)
            request->post_and_poll();
    }};
    way at_once{[&] {
        for (const kv::request &request : ours)
            post(request);
        for (const kv::request &request : ours)
            wait(request);
    }};
    way reference_at_once{[&] {
        for (const auto &request : theirs)
            request->post();
        for (const auto &request : theirs)
            while (!request->done()) {
            }
    }};

    // About 20 ms per sample at 10 GB/s, and at least as many requests as a timer of CPU time needs.
    const unsigned wanted = bytes <= 65536 ? 2000 : 400;
    const unsigned rounds = std::max(1u, (chosen.quick ? wanted / 20 : wanted) / count);
    way *const ways[] = {&one_by_one, &reference_one_by_one, &by_queue, &at_once, &reference_at_once};
    std::vector<candidate> candidates;
    for (way *each : ways)
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
        found.add({"08-request", cpu, ways[ours_at]->cpu, reference_name, ways[theirs_at]->cpu, {}, "us"});
    };
    add("post, wait", 0, 1);
    add("post, queue", 2, 1);
    add("post to all peers, wait for all", 3, 4);
}

void measure(const options &chosen, results &found)
{
    for (unsigned num_peers : {1u, 8u, 32u}) {
        const neighbourhood all(num_peers);
        for (uint64_t bytes : {uint64_t{64}, uint64_t{4096}, uint64_t{65536}, largest})
            measure_size(chosen, all, bytes, found);
    }
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure, bench::serve_pool); }
