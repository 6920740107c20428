// SPDX-License-Identifier: Apache-2.0
// The calls of the tables through kvmem.hpp, one file per noun, and what they have in common.
#pragma once

#include "../fields.h"
#include "world.hpp"

#include <functional>
#include <utility>

using Call = std::function<Results(const Step &, World &)>;
using Calls = std::map<std::string, Call>;

Calls region_calls();
Calls gpu_calls();
Calls layout_calls();
Calls block_calls();
Calls agent_calls();
Calls transfer_calls();
Calls share_calls();
Calls store_calls();
Calls simple_calls();  // generated

inline std::string number(std::uint64_t value) { return std::to_string(value); }

template <typename E>
std::uint64_t raw(E value) {
    return static_cast<std::uint64_t>(value);
}

// A field as a result, and a key as a field, of the same name.
#define NUMBER(object, field) {#field, number((object).field)}
#define WORD(object, field, words) {#field, word_of(raw((object).field), words)}
#define SET(object, field) (object).field = step.number(#field)

template <typename Flag>
kvmem::Flags<Flag> flags(const Step &step, const std::string &key, const Words &words) {
    return kvmem::Flags<Flag>::from_bits(step.flags(key, words));
}

inline std::optional<std::string> optional_path(const Step &step, const std::string &key, const World &world) {
    if (!step.has(key)) return std::nullopt;
    return world.path(step.text(key));
}

inline std::vector<std::uint32_t> ids(const Step &step, const std::string &key) {
    std::vector<std::uint32_t> ids;
    for (const std::uint64_t id : step.numbers(key)) ids.push_back(static_cast<std::uint32_t>(id));
    return ids;
}

// The name of the object that the call creates, which must be free.
inline const std::string &new_name(const Step &step, const World &world) {
    world.require_free(step.name());
    return step.name();
}

inline std::chrono::nanoseconds timeout(const Step &step) {
    const std::uint64_t ns = step.number("timeout_ns", KVMEM_TIMEOUT_FOREVER);
    return ns == KVMEM_TIMEOUT_FOREVER ? std::chrono::nanoseconds::max()
                                       : std::chrono::nanoseconds(static_cast<std::int64_t>(ns));
}

// In C++ a timeout is a value; the tables expect the status.
[[noreturn]] inline void timed_out() { throw kvmem::Error(kvmem::Status::timed_out, "not in time"); }

// Appends an item to a list of a result.
inline void append(std::string &list, const std::string &item) { list += (list.empty() ? "" : ",") + item; }
template <typename Item> std::string joined(const std::vector<Item> &numbers) {
    std::string list;
    for (const Item &one : numbers) {
        if constexpr (std::is_same_v<Item, std::string>) {
            append(list, one);
        } else {
            append(list, number(one));
        }
    }
    return list;
}

// "a:b"
inline std::pair<std::string, std::string> split_pair(const std::string &text) {
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos) throw Failure("'" + text + "' is not a pair");
    return {text.substr(0, colon), text.substr(colon + 1)};
}

// A call without keys and results.
template <typename T, typename Do>
Call simply(Do call) {
    return [call](const Step &step, World &world) {
        call(world.get<T>(step.name()), step);
        return Results();
    };
}
