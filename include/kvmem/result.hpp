// SPDX-License-Identifier: Apache-2.0
/// Statuses, errors, and what functions return: a value, or with KVMEM_RESULTS a Result.
#ifndef KVMEM_RESULT_HPP
#define KVMEM_RESULT_HPP

#include "constants.hpp"

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

KVMEM_HPP_BEGIN

/// Result of a call: KVMEM_STATUS_*. Values that this header does not name are possible.
enum class Status : kvmem_status {
    ok = KVMEM_STATUS_OK,
    in_progress = KVMEM_STATUS_IN_PROGRESS,
    invalid_argument = KVMEM_STATUS_INVALID_ARGUMENT,
    out_of_memory = KVMEM_STATUS_OUT_OF_MEMORY,
    out_of_range = KVMEM_STATUS_OUT_OF_RANGE,
    not_found = KVMEM_STATUS_NOT_FOUND,
    already_exists = KVMEM_STATUS_ALREADY_EXISTS,
    invalid_state = KVMEM_STATUS_INVALID_STATE,
    busy = KVMEM_STATUS_BUSY,
    timed_out = KVMEM_STATUS_TIMED_OUT,
    cancelled = KVMEM_STATUS_CANCELLED,
    unsupported = KVMEM_STATUS_UNSUPPORTED,
    permission_denied = KVMEM_STATUS_PERMISSION_DENIED,
    unavailable_cuda = KVMEM_STATUS_UNAVAILABLE_CUDA,
    unavailable_nixl = KVMEM_STATUS_UNAVAILABLE_NIXL,
    cuda = KVMEM_STATUS_CUDA,
    nixl = KVMEM_STATUS_NIXL,
    io = KVMEM_STATUS_IO,
    peer_lost = KVMEM_STATUS_PEER_LOST,
    stale = KVMEM_STATUS_STALE,
    corrupt = KVMEM_STATUS_CORRUPT,
    version_mismatch = KVMEM_STATUS_VERSION_MISMATCH,
    panic = KVMEM_STATUS_PANIC,
};

/// Returns the name of a status, such as "KVMEM_STATUS_BUSY".
inline const char *name(Status status) noexcept {
    return kvmem_status_name(static_cast<kvmem_status>(status));
}

/// Returns the meaning of a status in one sentence.
inline const char *message(Status status) noexcept {
    return kvmem_status_message(static_cast<kvmem_status>(status));
}

/// Native cause of an error: an errno value, a CUresult, or a status of NIXL.
struct Cause {
    Domain domain = Domain::none;
    std::int32_t code = 0;
    /// Name of the code, such as "ENOSPC".
    std::string name = {};
};

/// A failed call. Copies share the text, so copying does not throw. Moving copies: an error keeps its text.
class Error : public std::exception {
public:
    Error(Status status, std::string_view message, Cause cause = {})
        : state_(std::make_shared<const State>(status, message, std::move(cause))) {}

    /// Takes the error of a call of the C interface, and destroys it. NULL gives an error without message.
    Error(kvmem_status status, kvmem_error *error) {
        const std::unique_ptr<kvmem_error, void (*)(kvmem_error *)> owned(error, kvmem_error_destroy);
        kvmem_error_cause native = {};
        Cause cause;
        if (kvmem_error_get_cause(error, &native) == KVMEM_STATUS_OK) {
            cause = {static_cast<Domain>(native.domain), native.code, native.name};
        }
        std::size_t length = 0;
        const char *const text = kvmem_error_message(error, &length);
        // With an error its own status counts; both are equal after a call.
        if (error) status = kvmem_error_status(error);
        state_ = std::make_shared<const State>(static_cast<Status>(status), std::string_view(text, length),
                                               std::move(cause));
    }

    Error(const Error &) noexcept = default;
    Error &operator=(const Error &) noexcept = default;

    Status status() const noexcept { return state_->status; }
    /// What was asked, what was found and what to do. Valid as long as a copy of the error exists.
    std::string_view message() const noexcept {
        return std::string_view(state_->what).substr(state_->message);
    }
    const Cause &cause() const noexcept { return state_->cause; }
    /// The name of the status, and the message.
    const char *what() const noexcept override { return state_->what.c_str(); }

private:
    struct State {
        State(Status of, std::string_view text, Cause native)
            : status(of), what(kvmem::name(of)), cause(std::move(native)) {
            what += ": ";
            message = what.size();
            what += text;
        }
        Status status;
        std::string what;
        std::size_t message = 0;
        Cause cause;
    };
    std::shared_ptr<const State> state_;
};

namespace detail {

[[noreturn]] inline void raise(const Error &error) {
#if KVMEM_HPP_EXCEPTIONS
    throw error;
#else
    static_cast<void>(error);
    std::abort();
#endif
}

}  // namespace detail

/// A value, or the error of the call that should have returned it.
template <typename T>
class [[nodiscard]] Result {
public:
    using value_type = T;

    Result(T value) : value_(std::move(value)) {}
    Result(Error error) : error_(std::move(error)) {}

    bool has_value() const noexcept { return value_.has_value(); }
    explicit operator bool() const noexcept { return has_value(); }

    /// Returns the value. Without one it throws the error, or aborts in a program without exceptions. That of
    /// a temporary is returned by value, so that `for (auto event : *directory.take_events())` is correct.
    T &value() & { return check(), *value_; }
    const T &value() const & { return check(), *value_; }
    T value() && { return check(), *std::move(value_); }
    T &operator*() & { return value(); }
    const T &operator*() const & { return value(); }
    T operator*() && { return std::move(*this).value(); }
    T *operator->() { return &value(); }
    const T *operator->() const { return &value(); }

    /// Returns the error. Only valid without a value.
    const Error &error() const { return *error_; }
    Status status() const noexcept { return error_ ? error_->status() : Status::ok; }

private:
    void check() const {
        if (!has_value()) detail::raise(error());
    }
    std::optional<T> value_;
    std::optional<Error> error_;
};

template <>
class [[nodiscard]] Result<void> {
public:
    using value_type = void;

    Result() = default;
    Result(Error error) : error_(std::move(error)) {}

    bool has_value() const noexcept { return !error_; }
    explicit operator bool() const noexcept { return has_value(); }
    /// Without success it throws the error, or aborts in a program without exceptions.
    void value() const {
        if (error_) detail::raise(*error_);
    }
    /// Returns the error. Only valid after a failure.
    const Error &error() const { return *error_; }
    Status status() const noexcept { return error_ ? error_->status() : Status::ok; }

private:
    std::optional<Error> error_;
};

// What a function that can fail returns.
#if KVMEM_HPP_EXCEPTIONS && !defined(KVMEM_RESULTS)
template <typename T>
using Return = T;
#else
template <typename T>
using Return = Result<T>;
#endif

namespace detail {

// The last step of each public function: throws, or returns the result as it is.
template <typename T>
Return<T> give(Result<T> &&result) {
#if KVMEM_HPP_EXCEPTIONS && !defined(KVMEM_RESULTS)
    return std::move(result).value();
#else
    return std::move(result);
#endif
}
#if KVMEM_HPP_EXCEPTIONS && !defined(KVMEM_RESULTS)
inline void give(Result<void> &&result) { result.value(); }
#endif

// Calls a function of the C interface whose last parameter is the error.
template <typename Function, typename... Arguments>
Result<Status> call(Function function, Arguments... arguments) {
    kvmem_error *error = nullptr;
    const kvmem_status status = function(arguments..., &error);
    if (status < 0) return Error(status, error);
    return static_cast<Status>(status);
}

template <typename T>
Result<void> without_value(const Result<T> &result) {
    if (!result) return result.error();
    return {};
}

template <typename Function, typename... Arguments>
Result<void> run(Function function, Arguments... arguments) {
    return without_value(call(function, arguments...));
}

// For waits: false if `wait` has timed out. A run that has ended at its own deadline has the same status, and
// `poll` fails.
template <typename T, typename Poll>
Result<bool> in_time(const Result<T> &wait, Poll poll) {
    if (wait) return true;
    if (wait.status() != Status::timed_out) return wait.error();
    const Result<Status> run = poll();
    if (!run) return run.error();
    return *run != Status::in_progress;
}

// Calls a function whose last output is a struct or a number.
template <typename T, typename Function, typename... Arguments>
Result<T> get(Function function, Arguments... arguments) {
    T value{};
    if (auto result = call(function, arguments..., &value); !result) return result.error();
    return value;
}

// Calls a function whose last outputs are an array, its capacity, and how many items there are. Another
// thread may cause more of them between two calls.
template <typename Item, typename Function, typename... Arguments>
Result<std::vector<Item>> list(Function function, Arguments... arguments) {
    std::vector<Item> items;
    for (;;) {
        const auto count = get<std::size_t>(function, arguments..., items.data(), items.size());
        if (!count) return count.error();
        const bool fits = *count <= items.size();
        items.resize(*count);
        if (fits) return items;
    }
}

// Calls a function whose last output is a handle.
template <typename T, typename Function, typename... Arguments>
Result<T> make(Function function, Arguments... arguments) {
    typename T::pointer handle = nullptr;
    if (auto result = call(function, arguments..., &handle); !result) return result.error();
    return T(handle);
}

}  // namespace detail

KVMEM_HPP_END

#endif
