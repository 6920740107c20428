// SPDX-License-Identifier: Apache-2.0
/// Queues of completions.
#ifndef KVMEM_QUEUE_HPP
#define KVMEM_QUEUE_HPP

#include "common.hpp"

#include <array>
#include <cerrno>
#include <fcntl.h>

KVMEM_HPP_BEGIN

/// The end of a run, layers that have moved, memory that is released, or news: kvmem_completion.
struct Completion {
    CompletionKind kind = CompletionKind::run_ended;
    std::uint64_t user_data = 0;
    std::uint64_t bytes = 0;
    std::uint64_t num_layers = 0;
    Status status = Status::ok;
    /// The run no longer uses its memory.
    bool released = false;
};

/// A queue of completions. Its file descriptor is readable while it has some, so epoll, io_uring and asio can
/// wait for it; then call poll or drain. Level-triggered and edge-triggered waits both work with drain.
class Queue : public detail::Handle<kvmem_queue, kvmem_queue_destroy> {
public:
    using Handle::Handle;

    static Return<Queue> create() { return detail::give(detail::make<Queue>(kvmem_queue_create)); }

    /// The queue owns the file descriptor: neither read nor close it.
    Return<int> fd() const { return detail::give(file()); }

    /// Returns a duplicate that the caller closes, for objects that own their file descriptor, such as
    /// asio::posix::stream_descriptor.
    Return<int> duplicate_fd() const {
        auto own = file();
        if (!own) return detail::give(std::move(own));
        const int duplicate = ::fcntl(*own, F_DUPFD_CLOEXEC, 0);
        if (duplicate < 0) {
            const int code = errno;
            own = Error(Status::out_of_memory,
                        "the event fd of a queue cannot be duplicated: "
                        "the process has no free file descriptor",
                        {Domain::system, code, code == EMFILE ? "EMFILE" : "errno"});
            return detail::give(std::move(own));
        }
        return detail::give(Result<int>(duplicate));
    }

    /// Removes completions, oldest first, at most as many as the array holds. Never waits. Returns the part
    /// of the array that was filled.
    [[nodiscard]] Return<span<Completion>> poll(span<Completion> completions) {
        return detail::give(take(completions, [this](kvmem_completion *out, std::size_t capacity) {
            return detail::get<std::size_t>(kvmem_queue_wait, get(), std::uint64_t{0}, out, capacity);
        }));
    }

    /// The same, but waits for a completion if there is none.
    [[nodiscard]] Return<span<Completion>> wait(span<Completion> completions) {
        return wait_for(completions, forever);
    }

    /// The same with a timeout, after which the result is empty.
    [[nodiscard]] Return<span<Completion>> wait_for(span<Completion> completions, Timeout timeout) {
        auto taken = take(completions, [&](kvmem_completion *out, std::size_t capacity) {
            return detail::get<std::size_t>(kvmem_queue_wait, get(), timeout.ns(), out, capacity);
        });
        if (taken.status() == Status::timed_out) taken = span<Completion>();
        return detail::give(std::move(taken));
    }

    /// Calls `handle(completion)` for each completion until the queue is empty. Returns their number. Never
    /// waits. If `handle` throws, the other completions stay in the queue.
    template <typename Function>
    Return<std::size_t> drain(Function &&handle) {
        for (std::size_t total = 0;; ++total) {
            kvmem_completion one = {};
            auto count = detail::get<std::size_t>(kvmem_queue_wait, get(), std::uint64_t{0}, &one,
                                                  std::size_t{1});
            if (!count) return detail::give(std::move(count));
            if (*count == 0) return detail::give(Result<std::size_t>(total));
            handle(from_c(one));
        }
    }

private:
    static Completion from_c(const kvmem_completion &c) noexcept {
        return {static_cast<CompletionKind>(c.kind), c.user_data, c.bytes, c.num_layers,
                static_cast<Status>(c.status), c.released != 0};
    }
    Result<int> file() const { return detail::get<std::int32_t>(kvmem_queue_get_fd, get()); }

    template <typename Take>
    static Result<span<Completion>> take(span<Completion> completions, Take take) {
        // The capacity of one call; the rest stays in the queue for the next one.
        std::array<kvmem_completion, 64> batch;
        auto count = take(batch.data(),
                          completions.size() < batch.size() ? completions.size() : batch.size());
        if (!count) return count.error();
        for (std::size_t i = 0; i < *count; ++i) completions[i] = from_c(batch[i]);
        return completions.first(*count);
    }
};

KVMEM_HPP_END

#endif
