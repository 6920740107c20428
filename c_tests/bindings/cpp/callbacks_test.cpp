// SPDX-License-Identifier: Apache-2.0
// Callbacks: when they are called and destroyed, and that no exception passes through C.
#include "fixtures.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stdexcept>

namespace {

class Signal {
public:
    void set() {
        const std::lock_guard lock(mutex_);
        set_ = true;
        changed_.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return set_; });
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool set_ = false;
};

// Sets a signal when the callback that holds it is destroyed.
std::shared_ptr<void> at_destruction(const std::shared_ptr<Signal> &signal) {
    return std::shared_ptr<void>(nullptr, [signal](void *) { signal->set(); });
}

struct Memory {
    void *address = std::aligned_alloc(4096, 4096);
    ~Memory() { std::free(address); }
};

kvmem::AdoptOptions adopt(const Memory &memory) {
    kvmem::AdoptOptions options;
    options.address = memory.address;
    options.size = 4096;
    return options;
}

}  // namespace

CASE(release_is_called_after_the_last_user_and_then_destroyed) {
    const Memory memory;
    const auto called = std::make_shared<Signal>(), destroyed = std::make_shared<Signal>();
    std::atomic<bool> too_early{true};
    auto options = adopt(memory);
    options.release = [&, called, guard = at_destruction(destroyed)] {
        CHECK(!too_early);
        called->set();
    };
    auto region = kvmem::Region::adopt_host(std::move(options));
    auto view = region.create_view(0, 16);
    region.reset();
    too_early = false;
    view.reset();
    called->wait();
    destroyed->wait();
}

CASE(release_is_destroyed_without_a_call_if_adopting_fails) {
    const Memory memory;
    const auto destroyed = std::make_shared<Signal>();
    auto options = adopt(memory);
    options.size = 0;
    options.release = [guard = at_destruction(destroyed)] { CHECK(false); };
    CHECK(error_of([&] { return kvmem::Region::adopt_host(std::move(options)); }).status() ==
          kvmem::Status::invalid_argument);
    destroyed->wait();
}

CASE(a_release_that_throws_ends_there) {
    const Memory memory;
    const auto destroyed = std::make_shared<Signal>();
    auto options = adopt(memory);
    options.release = [guard = at_destruction(destroyed)] { throw std::runtime_error("thrown by release"); };
    kvmem::Region::adopt_host(std::move(options)).reset();
    destroyed->wait();
    // The thread of kvmem still calls other callbacks.
    const auto called = std::make_shared<Signal>();
    options = adopt(memory);
    options.release = [called] { called->set(); };
    kvmem::Region::adopt_host(std::move(options)).reset();
    called->wait();
}

CASE(log_messages_arrive_and_a_callback_that_throws_ends_there) {
    std::atomic<int> messages{0};
    kvmem::set_log_callback(kvmem::LogLevel::debug, [&](kvmem::LogLevel level, std::string_view target, std::string_view text) {
        CHECK(level >= kvmem::LogLevel::error && level <= kvmem::LogLevel::debug);
        CHECK(target.substr(0, 5) == "kvmem" && !text.empty());
        ++messages;
        throw std::runtime_error("thrown by the log callback");
    });
    kvmem::Region::create_system(system_memory(4096)).reset();
    kvmem::set_log_callback(kvmem::LogLevel::off, nullptr);
    CHECK(messages >= 2);
}

CASE(a_log_callback_is_destroyed_when_it_is_replaced) {
    const auto destroyed = std::make_shared<Signal>();
    kvmem::set_log_callback(kvmem::LogLevel::error, [guard = at_destruction(destroyed)](auto, auto, auto) {});
    kvmem::set_log_callback(kvmem::LogLevel::error, [](auto, auto, auto) {});
    destroyed->wait();
    kvmem::set_log_callback(kvmem::LogLevel::off, {});
}

// A sink that removes itself when the last callback that holds it is destroyed.
CASE(the_destructor_of_a_log_callback_may_set_another_one) {
    bool is_destroyed = false;
    std::shared_ptr<void> sink(nullptr, [&](void *) {
        kvmem::set_log_callback(kvmem::LogLevel::off, {});
        is_destroyed = true;
    });
    kvmem::set_log_callback(kvmem::LogLevel::error, [sink = std::move(sink)](auto, auto, auto) {});
    kvmem::set_log_callback(kvmem::LogLevel::error, [](auto, auto, auto) {});
    CHECK(is_destroyed);
    kvmem::set_log_callback(kvmem::LogLevel::off, {});
}

CASE(a_log_callback_cannot_replace_itself) {
    const auto tried = std::make_shared<Signal>();
    std::atomic<bool> refused{false};
    kvmem::set_log_callback(kvmem::LogLevel::debug, [&](auto, auto, auto) {
        try {
            kvmem::set_log_callback(kvmem::LogLevel::off, {});
        } catch (const kvmem::Error &error) {
            refused = error.status() == kvmem::Status::invalid_state;
        }
        tried->set();
    });
    const auto region = kvmem::Region::create_system(system_memory(4096));
    tried->wait();
    kvmem::set_log_callback(kvmem::LogLevel::off, {});
    CHECK(refused);
}

// Calls the callback as page-locking would; the rest of create_pinned needs a GPU.
CASE(a_progress_callback_that_throws_cancels) {
    const std::function<bool(std::uint64_t, std::uint64_t)> throws = [](auto, auto) -> bool {
        throw std::runtime_error("thrown by progress");
    };
    kvmem::detail::Progress progress{throws};
    CHECK(kvmem::detail::call_progress(1, 2, &progress) != 0);
    CHECK(progress.thrown);
    const std::function<bool(std::uint64_t, std::uint64_t)> ends = [](auto done, auto total) { return done < total; };
    kvmem::detail::Progress counting{ends};
    CHECK(kvmem::detail::call_progress(1, 2, &counting) == 0 && kvmem::detail::call_progress(2, 2, &counting) != 0);
}

int main() { return run_cases(); }
