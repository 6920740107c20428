// SPDX-License-Identifier: Apache-2.0
/// The log callback of the process.
#ifndef KVMEM_LOG_HPP
#define KVMEM_LOG_HPP

#include "common.hpp"

#include <functional>
#include <mutex>

KVMEM_HPP_BEGIN

/// Receives messages on a thread of kvmem. An exception that leaves it is discarded.
using LogCallback = std::function<void(LogLevel level, std::string_view target, std::string_view message)>;

namespace detail {

// The callback that is set. It is never destroyed at the end of the process, when kvmem's thread may still
// run it.
struct LogSlot {
    std::mutex mutex;
    std::unique_ptr<LogCallback> callback;

    static LogSlot &get() {
        static LogSlot *const slot = new LogSlot;
        return *slot;
    }
    // Whether the calling thread is within the callback.
    static bool &running() {
        static thread_local bool running = false;
        return running;
    }
};

inline void call_log(std::uint32_t level, const char *target, const char *message, void *user_data) noexcept {
    const auto &callback = *static_cast<const LogCallback *>(user_data);
    LogSlot::running() = true;
#if KVMEM_HPP_EXCEPTIONS
    try {
        callback(LogLevel{level}, target, message);
    } catch (...) {
        // Nothing above this frame could catch it: kvmem is not C++.
    }
#else
    callback(LogLevel{level}, target, message);
#endif
    LogSlot::running() = false;
}

inline Result<void> set_log(LogLevel level, LogCallback &&callback) {
    // The previous callback is destroyed at the end, so it must not be running.
    if (LogSlot::running()) return Error(Status::invalid_state, "the log callback cannot replace itself");
    auto &slot = LogSlot::get();
    std::unique_ptr<LogCallback> next;
    if (callback && level != LogLevel::off) next = std::make_unique<LogCallback>(std::move(callback));
    const std::lock_guard<std::mutex> lock(slot.mutex);
    auto set = run(kvmem_log_set_callback, static_cast<std::uint32_t>(level), next ? call_log : nullptr,
                   static_cast<void *>(next.get()));
    // The previous callback is destroyed after the lock is released: its destructors may set a callback.
    if (set) slot.callback.swap(next);
    return set;
}

}  // namespace detail

/// Sets the log callback of the process, or removes it: an empty callback, or LogLevel::off. The previous one
/// is destroyed when the call returns. Cannot be called from the callback.
inline Return<void> set_log_callback(LogLevel level, LogCallback callback) {
    return detail::give(detail::set_log(level, std::move(callback)));
}

KVMEM_HPP_END

#endif
