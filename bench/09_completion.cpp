// SPDX-License-Identifier: Apache-2.0
// Row 9: the latency until the end of a transfer is seen, compared with raw NIXL polled without pause.
#include "common/completion.hpp"
#include "common/peer.hpp"
#include "common/program.hpp"
#include "common/two_sides.hpp"

#include <string>

namespace {

using namespace bench;

constexpr uint64_t blocks = 64;
constexpr uint64_t block_bytes = 16'384;

// Returns the durations of `count` transfers by raw NIXL polled without pause, by kvmem's three methods to wait, and by
// NIXL polled every 1 ms.
std::vector<samples> time_methods(const two_sides &sides, const kv::pairs &pairs, int count)
{
    const kv::queue queue = kv::make<kv::queue>(kvmem_queue_create);
    int32_t fd = -1;
    kv::call(kvmem_queue_get_fd, queue.get(), &fd);
    const kv::transfer plain = kv::make_transfer(sides.remote(), sides.local(), pairs);
    const kv::transfer queued = kv::make_transfer(sides.remote(), sides.local(), pairs, {queue.get(), 1});
    // Polling without pause is faster without NIXL's progress thread; polling every 1 ms needs it.
    const std::unique_ptr<nixl::agent> raw_agent = sides.make_reference("raw-initiator", false);
    nixl::read_request raw = sides.read_as_one(*raw_agent, pairs.size() * block_bytes);
    nixl::read_request polled = sides.read_as_one(sides.reference(), pairs.size() * block_bytes);

    const host_view view = sides.view();
    return alternate(count, {
        checked(view, pairs, [&] { raw.post_and_poll(); }),
        checked(view, pairs, [&] { kv::submit_and_wait(plain); }),
        checked(view, pairs, [&] {
            kv::submit(queued);
            wait_on_queue(queue.get());
        }),
        checked(view, pairs, [&] {
            kv::submit(queued);
            wait_on_fd(queue.get(), fd);
        }),
        checked(view, pairs, [&] {
            polled.post();
            while (!polled.done())
                sleep_1_ms();
        }),
    });
}

void measure_size(const options &chosen, const two_sides &sides, const char *transport, uint32_t count,
                  results &found)
{
    const size_t length = chosen.quick ? 50 : 500;
    const int series = chosen.quick ? 2 : 5;
    const std::vector<samples> taken =
        time_methods(sides, first_blocks(count), static_cast<int>(length) * series);

    add_completion_rows(found, {{"transport", transport}, {"bytes", count * block_bytes}}, taken, length);
}

void measure(const options &chosen, results &found)
{
    for (const char *transport : {"shared memory", "tcp"}) {
        if (transport == std::string("tcp"))
            use_only_tcp();
        const two_sides sides({blocks, block_bytes}, true);
        for (uint32_t count : {1u, 64u})
            measure_size(chosen, sides, transport, count, found);
    }
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure, bench::serve_pool); }
