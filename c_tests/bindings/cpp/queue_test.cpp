// SPDX-License-Identifier: Apache-2.0
// Queues: poll, wait, drain, epoll, asio.
#include "fixtures.hpp"

#include <asio.hpp>
#include <fcntl.h>
#include <stdexcept>
#include <sys/epoll.h>
#include <unistd.h>

namespace {

struct Runs {
    explicit Runs(std::uint64_t number) {
        for (std::uint64_t i = 0; i < number; ++i) {
            const kvmem::BlockPair pair = {0, 1};
            kvmem::TransferOptions options;
            options.queue = &queue;
            kvmem::SubmitOptions blocks;
            blocks.pairs = {&pair, 1};
            blocks.user_data = i;
            transfers.push_back(kvmem::Transfer::start(layout, layout, options, blocks));
        }
        for (const auto &transfer : transfers) transfer.wait();
    }
    kvmem::Layout layout = kvmem::Layout::build(small_config(), kvmem::SystemOptions());
    kvmem::Queue queue = kvmem::Queue::create();
    std::vector<kvmem::Transfer> transfers;
};

}  // namespace

CASE(an_empty_queue_has_nothing) {
    auto queue = kvmem::Queue::create();
    std::array<kvmem::Completion, 4> space;
    CHECK(queue.poll(space).empty());
    CHECK(queue.wait_for(space, std::chrono::nanoseconds(1)).empty());
    CHECK(queue.drain([](const auto &) { CHECK(false); }) == 0);
}

CASE(no_completion_is_lost_however_many_are_taken_at_once) {
    Runs runs(150);
    std::vector<kvmem::Completion> space(100);
    std::vector<bool> seen(150);
    for (std::size_t left = 150; left > 0;) {
        const auto taken = runs.queue.wait(space);
        CHECK(!taken.empty() && taken.data() == space.data());
        for (const auto &one : taken) {
            CHECK(one.status == kvmem::Status::ok && one.bytes == 256 && !seen.at(one.user_data));
            seen.at(one.user_data) = true;
        }
        left -= taken.size();
    }
}

CASE(a_handler_that_throws_loses_no_other_completion) {
    Runs runs(3);
    std::size_t handled = 0;
    const auto handle = [&](const kvmem::Completion &) {
        if (++handled == 2) throw std::runtime_error("thrown by the handler");
    };
    while (handled < 3) {
        try {
            runs.queue.drain(handle);
        } catch (const std::runtime_error &) {
        }
    }
    CHECK(handled == 3);
}

CASE(a_completion_has_a_kind) {
    auto layout = kvmem::Layout::build(small_config(), kvmem::SystemOptions());
    auto queue = kvmem::Queue::create();
    const kvmem::BlockPair pair = {0, 1};
    kvmem::TransferOptions options;
    options.flags = kvmem::TransferFlag::by_layer | kvmem::TransferFlag::report_release;
    options.queue = &queue;
    options.layers_per_completion = 100;
    kvmem::SubmitOptions blocks;
    blocks.pairs = {&pair, 1};
    blocks.user_data = 7;
    auto transfer = kvmem::Transfer::start(layout, layout, options, blocks);
    transfer.wait();
    std::array<kvmem::Completion, 1> space;
    const auto moved = queue.wait(space)[0];
    CHECK(moved.kind == kvmem::CompletionKind::layers_moved && moved.user_data == 7 && !moved.released);
    CHECK(moved.num_layers == small_config().num_layers);
    const auto end = queue.wait(space)[0];
    CHECK(end.kind == kvmem::CompletionKind::run_ended && end.bytes == 256 && end.released);
    CHECK(end.num_layers == small_config().num_layers);
    CHECK(queue.poll(space).empty());
}

CASE(epoll_reports_completions) {
    const int events = epoll_create1(EPOLL_CLOEXEC);
    Runs runs(1);
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLET;
    CHECK(epoll_ctl(events, EPOLL_CTL_ADD, runs.queue.fd(), &event) == 0);
    CHECK(epoll_wait(events, &event, 1, -1) == 1);
    std::size_t total = 0;
    while (total == 0) total += runs.queue.drain([](const auto &) {});
    CHECK(total == 1 && epoll_wait(events, &event, 1, 0) == 0);
    runs.transfers[0].submit();
    CHECK(epoll_wait(events, &event, 1, -1) == 1);
    close(events);
}

CASE(asio_waits_for_completions) {
    Runs runs(4);
    asio::io_context context;
    asio::posix::stream_descriptor descriptor(context, runs.queue.duplicate_fd());
    std::size_t total = 0;
    std::function<void()> wait = [&] {
        descriptor.async_wait(asio::posix::descriptor_base::wait_read, [&](const asio::error_code &failed) {
            CHECK(!failed);
            total += runs.queue.drain([](const kvmem::Completion &one) { CHECK(one.status == kvmem::Status::ok); });
            if (total < 4) wait();
        });
    };
    wait();
    context.run();
    CHECK(total == 4);
    // asio has closed its duplicate; the queue still works.
    descriptor.close();
    CHECK(fcntl(runs.queue.fd(), F_GETFD) >= 0);
}

int main() { return run_cases(); }
