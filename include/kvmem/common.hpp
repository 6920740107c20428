// SPDX-License-Identifier: Apache-2.0
/// What all nouns have in common: spans, bytes, flags, timeouts, handles, blobs, versions.
#ifndef KVMEM_COMMON_HPP
#define KVMEM_COMMON_HPP

#include "result.hpp"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <type_traits>
#include <vector>
#if defined(_MSVC_LANG) ? _MSVC_LANG >= 202002L : __cplusplus >= 202002L
#include <span>
#endif

KVMEM_HPP_BEGIN

// ---- Spans and bytes ----

#if defined(_MSVC_LANG) ? _MSVC_LANG >= 202002L : __cplusplus >= 202002L
template <typename T>
using span = std::span<T>;
#else
/// A view of contiguous elements: the part of std::span that kvmem needs. From C++20 on it is std::span.
template <typename T>
class span {
public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;
    using iterator = T *;

    constexpr span() noexcept = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <std::size_t size>
    constexpr span(T (&array)[size]) noexcept : data_(array), size_(size) {}
    /// Any container with contiguous elements, such as std::vector.
    template <typename Container,
              typename = std::enable_if_t<!std::is_array_v<std::remove_reference_t<Container>> &&
                                          std::is_convertible_v<
                  std::remove_pointer_t<decltype(std::data(std::declval<Container &>()))> (*)[], T (*)[]>>>
    constexpr span(Container &&container) noexcept
        : data_(std::data(container)), size_(std::size(container)) {}

    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T &operator[](std::size_t index) const { return data_[index]; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr span first(std::size_t count) const { return {data_, count}; }
    constexpr span subspan(std::size_t offset) const { return {data_ + offset, size_ - offset}; }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};
#endif

/// A view of elements that a call reads. A list in braces lasts until the end of the statement. So
/// `{.pairs = {{1, 2}}}` is correct within a call, and not in an options object that is used later.
template <typename T>
class Elements : public span<const T> {
public:
    using span<const T>::span;
    constexpr Elements() noexcept = default;
    constexpr Elements(span<const T> elements) noexcept : span<const T>(elements) {}
    constexpr Elements(std::initializer_list<T> elements) noexcept
        : span<const T>(std::data(elements), elements.size()) {}
};

namespace detail {

/// Iterates over a list whose elements are made when they are read: for (const auto message : messages).
template <typename List, typename Element>
class Indexed {
public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Element;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = Element;

    Indexed() noexcept = default;
    Indexed(const List *list, std::size_t index) noexcept : list_(list), index_(index) {}
    Element operator*() const { return list_->element(index_); }
    Indexed &operator++() noexcept {
        ++index_;
        return *this;
    }
    Indexed operator++(int) noexcept { return {list_, index_++}; }
    bool operator==(const Indexed &other) const noexcept { return index_ == other.index_; }
    bool operator!=(const Indexed &other) const noexcept { return index_ != other.index_; }

private:
    const List *list_ = nullptr;
    std::size_t index_ = 0;
};

}  // namespace detail

/// A view of bytes of any element type: text, std::vector<std::byte>, std::array<std::uint8_t, n>, a Blob.
class Bytes {
public:
    constexpr Bytes() noexcept = default;
    constexpr Bytes(const void *data, std::size_t size) noexcept : data_(data), size_(size) {}
    /// Text, without the NUL at its end.
    constexpr Bytes(const char *text) noexcept : Bytes(std::string_view(text)) {}
    template <typename Container, typename Data = decltype(std::data(std::declval<const Container &>())),
              typename = std::enable_if_t<!std::is_array_v<Container> &&
                                          !std::is_void_v<std::remove_pointer_t<Data>>>>
    constexpr Bytes(const Container &container) noexcept
        : data_(std::data(container)), size_(std::size(container)) {
        static_assert(sizeof(*std::data(container)) == 1, "the elements are not bytes");
    }

    constexpr const void *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }

private:
    const void *data_ = nullptr;
    std::size_t size_ = 0;
};

// ---- Flags ----

/// A set of flags of one kind: `SystemFlag::shareable | SystemFlag::numa_bind`.
template <typename Flag>
class Flags {
    static_assert(std::is_same_v<std::underlying_type_t<Flag>, std::uint64_t>, "flags are uint64_t");

public:
    constexpr Flags() noexcept = default;
    constexpr Flags(Flag flag) noexcept : bits_(static_cast<std::uint64_t>(flag)) {}
    static constexpr Flags from_bits(std::uint64_t bits) noexcept {
        Flags flags;
        flags.bits_ = bits;
        return flags;
    }

    constexpr std::uint64_t bits() const noexcept { return bits_; }
    constexpr bool has(Flag flag) const noexcept { return (bits_ & static_cast<std::uint64_t>(flag)) != 0; }
    constexpr bool empty() const noexcept { return bits_ == 0; }

    friend constexpr Flags operator|(Flags a, Flags b) noexcept { return from_bits(a.bits_ | b.bits_); }
    constexpr Flags &operator|=(Flags other) noexcept { return *this = *this | other; }
    friend constexpr bool operator==(Flags a, Flags b) noexcept { return a.bits_ == b.bits_; }
    friend constexpr bool operator!=(Flags a, Flags b) noexcept { return a.bits_ != b.bits_; }

private:
    std::uint64_t bits_ = 0;
};

// Two flags give a set. All enums of kvmem with 64 bits are flags.
template <typename Flag, typename = std::enable_if_t<std::is_enum_v<Flag>>,
          typename = std::enable_if_t<std::is_same_v<std::underlying_type_t<Flag>, std::uint64_t>>>
constexpr Flags<Flag> operator|(Flag a, Flag b) noexcept {
    return Flags<Flag>(a) | Flags<Flag>(b);
}

// ---- Timeouts ----

/// A duration to wait. Any std::chrono::duration converts to it, rounded up to nanoseconds: a negative one
/// does not wait, and one that is longer than 292 years never expires.
class Timeout {
public:
    template <typename Rep, typename Period>
    constexpr Timeout(std::chrono::duration<Rep, Period> duration) noexcept
        : ns_(nanoseconds(std::chrono::duration<long double, std::nano>(duration).count())) {}

    static constexpr Timeout forever() noexcept {
        Timeout timeout(std::chrono::nanoseconds(0));
        timeout.ns_ = KVMEM_TIMEOUT_FOREVER;
        return timeout;
    }
    constexpr std::uint64_t ns() const noexcept { return ns_; }

private:
    static constexpr std::uint64_t nanoseconds(long double count) noexcept {
        // A comparison with NaN is false.
        if (!(count > 0)) return 0;
        if (count >= 9.2e18L) return KVMEM_TIMEOUT_FOREVER;
        const auto whole = static_cast<std::uint64_t>(count);
        return whole + (static_cast<long double>(whole) < count ? 1 : 0);
    }
    std::uint64_t ns_;
};

/// A timeout that never expires.
inline constexpr Timeout forever = Timeout::forever();

namespace detail {

// A limit of options in nanoseconds. A negative duration is the time until a moment that has passed, so it is
// the shortest limit: 0 of C is the default, or no limit.
constexpr std::uint64_t limit_ns(std::chrono::nanoseconds limit) noexcept {
    return limit.count() < 0 ? 1 : Timeout(limit).ns();
}

// The time until a lease ends; none if it has no end.
constexpr std::optional<std::chrono::nanoseconds> remaining(std::uint64_t ns) noexcept {
    if (ns == UINT64_MAX) return std::nullopt;
    constexpr std::uint64_t max = INT64_MAX;
    return std::chrono::nanoseconds(static_cast<std::int64_t>(ns < max ? ns : max));
}

}  // namespace detail

// ---- Handles ----

namespace detail {

// Owns one C handle. Empty after a move; a call with an empty handle fails with invalid_argument.
template <typename T, void (*destroy)(T *)>
class Handle {
public:
    using pointer = T *;

    Handle() noexcept = default;
    /// Owns a handle of the C interface.
    explicit Handle(T *handle) noexcept : handle_(handle) {}
    Handle(Handle &&other) noexcept : handle_(other.release()) {}
    Handle &operator=(Handle &&other) noexcept {
        if (this != &other) reset(other.release());
        return *this;
    }
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;
    ~Handle() { destroy(handle_); }

    /// Returns the handle for a call of the C interface. This object still owns it.
    T *get() const noexcept { return handle_; }
    /// Returns the handle, which the caller then destroys. This object is empty afterwards.
    [[nodiscard]] T *release() noexcept { return std::exchange(handle_, nullptr); }
    /// Destroys the handle, and owns another one.
    void reset(T *handle = nullptr) noexcept { destroy(std::exchange(handle_, handle)); }
    explicit operator bool() const noexcept { return handle_ != nullptr; }

private:
    T *handle_ = nullptr;
};

/// A list that C returns as an array. Its elements are made when they are read: for (const auto one : list).
template <typename T, void (*destroy)(T *), typename C, typename Element, Element (*convert)(const C &)>
class List : public Handle<T, destroy> {
public:
    using Handle<T, destroy>::Handle;

    std::size_t size() const noexcept { return this->get() ? this->get()->count : 0; }
    bool empty() const noexcept { return size() == 0; }
    /// Fails with out_of_range if there is no such element.
    Return<Element> at(std::size_t index) const {
        if (index < size()) return give(Result<Element>(element(index)));
        const auto message = "index is " + std::to_string(index) + " of " + std::to_string(size());
        return give(Result<Element>(Error(Status::out_of_range, message)));
    }
    using iterator = Indexed<List, Element>;
    iterator begin() const noexcept { return {this, 0}; }
    iterator end() const noexcept { return {this, size()}; }

private:
    friend class Indexed<List, Element>;
    Element element(std::size_t index) const { return convert(this->get()->items[index]); }
};

// What an option that points to an empty handle passes to C, which fails for it with invalid_argument: NULL
// would select the default.
alignas(std::max_align_t) inline unsigned char no_handle[64] = {};

template <typename T>
auto get_or_null(const T *object) noexcept -> decltype(object->get()) {
    if (object && !object->get()) return reinterpret_cast<decltype(object->get())>(no_handle);
    return object ? object->get() : nullptr;
}

// An options struct of C with its defaults.
template <typename Options>
Options defaults() noexcept {
    Options options{};
    options.struct_size = sizeof options;
    return options;
}

// C reads text up to its first NUL, so text that contains one is an error.
inline Result<void> check_text(std::string_view text, const char *what) {
    if (text.find('\0') == std::string_view::npos) return {};
    return Error(Status::invalid_argument,
                 std::string(what) + " contains a NUL, and C reads text up to there");
}
inline Result<void> check_optional(const std::optional<std::string> &text, const char *what) {
    return text ? check_text(std::string_view(*text), what) : Result<void>();
}
inline const char *c_text(const std::optional<std::string> &text) noexcept {
    return text ? text->c_str() : nullptr;
}

// Returns `then(text as a C string)`.
template <typename Then>
auto with_text(std::string_view text, const char *what, Then then) -> decltype(then("")) {
    if (auto checked = check_text(text, what); !checked) return checked.error();
    return then(std::string(text).c_str());
}

}  // namespace detail

// ---- Blobs ----

/// Bytes or text that kvmem created.
class Blob : public detail::Handle<kvmem_blob, kvmem_blob_destroy> {
public:
    using Handle::Handle;

    const std::byte *data() const noexcept { return static_cast<const std::byte *>(kvmem_blob_data(get())); }
    std::size_t size() const noexcept { return kvmem_blob_size(get()); }
    /// Valid as long as the blob.
    std::string_view text() const noexcept { return {reinterpret_cast<const char *>(data()), size()}; }
    span<const std::byte> bytes() const noexcept { return {data(), size()}; }
};

namespace detail {

// The text of a function whose last output is a blob.
template <typename Function, typename... Arguments>
Result<std::string> text(Function function, Arguments... arguments) {
    auto blob = make<Blob>(function, arguments...);
    if (!blob) return blob.error();
    return std::string(blob->text());
}

}  // namespace detail

// ---- Versions ----

/// Returns the version of the library, such as "0.1.0".
inline std::string_view version() noexcept { return kvmem_version_string(); }
/// Returns whether the library that is loaded has the binary interface that this program was compiled with. A
/// program that includes this header ends when it is loaded if that is not so.
inline bool abi_matches() noexcept { return kvmem_abi_version() == KVMEM_ABI_VERSION; }

namespace detail {
// Structs of another binary interface have other sizes and fields, so nothing may be called.
inline bool ensure_abi() noexcept {
    if (abi_matches()) return true;
    std::fprintf(stderr, "kvmem: libkvmem.so has binary interface %u, and this program was compiled for %u\n",
                 static_cast<unsigned>(kvmem_abi_version()), static_cast<unsigned>(KVMEM_ABI_VERSION));
    std::abort();
}
inline const bool abi_is_ensured = ensure_abi();
}  // namespace detail

KVMEM_HPP_END

#endif
