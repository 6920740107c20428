// SPDX-License-Identifier: Apache-2.0
// Completions in an epoll loop, and errors as results instead of exceptions.
#define KVMEM_RESULTS
#include <kvmem.hpp>

#include <sys/epoll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <vector>

constexpr std::uint64_t num_requests = 8;

kvmem::Result<kvmem::Layout> build(std::uint64_t num_blocks, const char *order) {
    kvmem::LayoutConfig config;
    config.num_blocks = num_blocks;
    config.num_layers = 4;
    config.outer_dim = 2;
    config.page_size = 16;
    config.inner_dim = 1024;
    config.dtype_width = 2;
    config.order = order;
    return kvmem::Layout::build(config, kvmem::SystemOptions());
}

// Prints an error, and returns the exit status.
int report(const kvmem::Error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    if (error.cause().domain != kvmem::Domain::none) std::fprintf(stderr, "cause: %s\n", error.cause().name.c_str());
    return 1;
}

// One epoll instance, as an engine has it for its sockets.
int wait_for_completions(kvmem::Queue &queue, int events) {
    std::uint64_t ended = 0;
    while (ended < num_requests) {
        epoll_event ready = {};
        if (epoll_wait(events, &ready, 1, -1) < 1) continue;
        const auto drained = queue.drain([&](const kvmem::Completion &one) {
            std::printf("request %u: %s, %u bytes\n", unsigned(one.user_data), kvmem::name(one.status),
                        unsigned(one.bytes));
        });
        if (!drained) return report(drained.error());
        ended += *drained;
    }
    std::printf("all %u requests have ended\n", unsigned(ended));
    return 0;
}

int main() {
    auto from = build(num_requests, KVMEM_ORDER_FULLY_CONTIGUOUS);
    auto to = build(num_requests, KVMEM_ORDER_LAYER_SEPARATE);
    auto queue = kvmem::Queue::create();
    if (!from) return report(from.error());
    if (!to) return report(to.error());
    if (!queue) return report(queue.error());

    const int events = epoll_create1(EPOLL_CLOEXEC);
    const auto fd = queue->fd();
    if (!fd) return report(fd.error());
    epoll_event readable = {};
    readable.events = EPOLLIN;
    if (epoll_ctl(events, EPOLL_CTL_ADD, *fd, &readable) != 0) return 1;

    std::vector<kvmem::Transfer> transfers;
    for (std::uint32_t request = 0; request < num_requests; ++request) {
        const kvmem::BlockPair pair = {request, request};
        kvmem::TransferOptions options;
        options.queue = &*queue;
        kvmem::SubmitOptions blocks;
        blocks.pairs = {&pair, 1};
        blocks.user_data = request;
        auto transfer = kvmem::Transfer::start(*from, *to, options, blocks);
        if (!transfer) return report(transfer.error());
        transfers.push_back(*std::move(transfer));
    }
    const int status = wait_for_completions(*queue, events);
    close(events);
    return status;
}
