// SPDX-License-Identifier: Apache-2.0
// The methods to wait for a transfer, and the rows of row 9.
#include "common/completion.hpp"

#include <ctime>
#include <poll.h>

namespace bench {
namespace {

void check(const kvmem_completion &completion)
{
    if (completion.status != KVMEM_STATUS_OK)
        throw std::runtime_error(kvmem_status_name(completion.status));
}

} // namespace

void wait_on_queue(kvmem_queue *queue)
{
    kvmem_completion completion{};
    size_t count = 0;
    kv::call(kvmem_queue_wait, queue, uint64_t{30'000'000'000}, &completion, size_t{1}, &count);
    check(completion);
}

void wait_on_fd(kvmem_queue *queue, int fd)
{
    pollfd watched = {fd, POLLIN, 0};
    if (poll(&watched, 1, 30'000) != 1)
        throw std::runtime_error("no event within 30 s");
    kvmem_completion completion{};
    size_t count = 0;
    kv::call(kvmem_queue_wait, queue, uint64_t{0}, &completion, size_t{1}, &count);
    if (count != 1)
        throw std::runtime_error("the event fd is readable, but the queue is empty");
    check(completion);
}

void sleep_1_ms()
{
    const timespec pause = {0, 1'000'000};
    nanosleep(&pause, nullptr);
}

samples by_series(const samples &all, double share, size_t length)
{
    samples result;
    for (size_t first = 0; first + length <= all.size(); first += length) {
        const double *start = all.data() + first;
        result.push_back(percentile(samples(start, start + length), share) / 1000);
    }
    return result;
}

void add_completion_rows(results &found, const parameters &point, const std::vector<samples> &taken, size_t length)
{
    const char *methods[] = {"kvmem_transfer_wait", "kvmem_queue_wait", "event fd and poll(2)"};
    const std::pair<const char *, double> statistics[] = {{"p50", 0.5}, {"p99", 0.99}};
    for (const auto &[statistic, share] : statistics)
        for (size_t method = 0; method < 3; ++method) {
            parameters all = {{"way", methods[method]}, {"statistic", statistic}};
            all.insert(all.end(), point.begin(), point.end());
            all.push_back({"ceiling_is", "raw NIXL, polled without pause"});
            found.add({"09-completion", all, by_series(taken[method + 1], share, length), "NIXL polled every 1 ms",
                       by_series(taken[4], share, length), by_series(taken[0], share, length), "us"});
        }
}

kv::pairs first_blocks(uint32_t count)
{
    kv::pairs pairs;
    for (uint32_t block = 0; block < count; ++block)
        pairs.push_back({block, block});
    return pairs;
}

} // namespace bench
