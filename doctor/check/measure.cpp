// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include "../machine/memory.hpp"

#include <algorithm>
#include <array>

namespace doctor {

namespace {

using std::chrono::nanoseconds;

constexpr std::uint32_t max_blocks = 32;
constexpr std::size_t min_runs = 3, max_runs = 7;

// Reversed, so that no two blocks are one contiguous range on both sides.
std::vector<kvmem::BlockPair> pairs_of(std::uint32_t count, std::uint32_t blocks) {
    std::vector<kvmem::BlockPair> pairs;
    for (std::uint32_t i = 0; i < count; ++i) pairs.push_back({i, blocks - 1 - i});
    return pairs;
}

kvmem::Transfer create(const Place &from, const Place &to, const std::vector<kvmem::BlockPair> &pairs,
                       kvmem::Flags<kvmem::SubmitFlag> flags = {}) {
    kvmem::SubmitOptions blocks;
    blocks.pairs = pairs;
    blocks.flags = flags;
    auto transfer = kvmem::Transfer::create(from.layout, to.layout);
    transfer.prepare(blocks);
    return transfer;
}

nanoseconds run(kvmem::Transfer &transfer) {
    transfer.submit();
    transfer.wait();
    return std::max(transfer.info().duration, nanoseconds(1));
}

// One block, verified where both sides can be read.
void verify(const Place &from, const Place &to, std::uint32_t blocks) {
    try {
        auto transfer = create(from, to, pairs_of(1, blocks), kvmem::SubmitFlag::verify);
        run(transfer);
    } catch (const kvmem::Error &error) {
        if (error.status() != kvmem::Status::unsupported) throw;
    }
}

std::string key_of(kvmem::Method method) {
    static constexpr std::array names = {"fastest",     "memcpy",      "cuda_copy", "cuda_batch",
                                         "cuda_2d",     "cuda_kernel", "cuda_staged", "uring",
                                         "pread",       "nixl",        "nixl_staged", "nixl_served"};
    static_assert(names.size() == static_cast<std::size_t>(kvmem::Method::nixl_served) + 1);
    const auto index = static_cast<std::size_t>(method);
    return index < names.size() ? names[index] : "unknown";
}

// The methods that are not chosen for another reason than their speed.
void add_others(Route &route, const kvmem::Transfer &transfer) {
    for (const kvmem::ComparedMethod &each : transfer.methods()) {
        if (each.choice == kvmem::Choice::used) {
            route.text = each.reason;
            route.estimated_bytes_per_second = each.bytes_per_second;
        } else if (each.choice != kvmem::Choice::slower) {
            route.others.push_back({key_of(each.method), kvmem::name(each.method), each.reason,
                                    each.choice == kvmem::Choice::impossible, each.bytes_per_second});
        }
    }
}

// Returns the number of blocks that move within a part of the time.
std::uint32_t count_for(nanoseconds one, nanoseconds time, std::uint32_t blocks) {
    const auto fitting = static_cast<std::uint64_t>(time.count() / 3 / one.count());
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(fitting, 1, blocks));
}

void measure_into(Route &route, const Place &from, const Place &to, std::uint32_t blocks, nanoseconds time) {
    verify(from, to, blocks);
    auto trial = create(from, to, pairs_of(1, blocks));
    run(trial);
    const auto pairs = pairs_of(count_for(run(trial), time, blocks), blocks);
    auto transfer = create(from, to, pairs);
    run(transfer); // not counted: it touches the memory for the first time, and starts threads
    std::vector<nanoseconds> durations;
    nanoseconds total(0);
    while (durations.size() < min_runs || (durations.size() < max_runs && total < time)) {
        durations.push_back(run(transfer));
        total += durations.back();
    }
    std::sort(durations.begin(), durations.end());
    const auto info = transfer.info();
    const auto seconds = std::chrono::duration<double>(durations[durations.size() / 2]).count();
    route.method = key_of(info.method);
    route.bytes_per_second = static_cast<std::uint64_t>(static_cast<double>(info.bytes) / seconds);
    add_others(route, transfer);
    route.method_name = kvmem::name(info.method);
    route.data = {{"bytes", info.bytes}, {"runs", static_cast<std::uint64_t>(durations.size())}};
}

}  // namespace

kvmem::LayoutConfig shape(std::uint32_t num_blocks) {
    kvmem::LayoutConfig config;
    config.num_blocks = num_blocks;
    config.num_layers = 16;
    config.outer_dim = 2;
    config.page_size = 16;
    config.inner_dim = 1024;
    config.dtype_width = 2;
    config.alignment = 4096;
    config.order = KVMEM_ORDER_FULLY_CONTIGUOUS;
    return config;
}

std::uint32_t affordable_blocks() {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(max_blocks, available_memory() / (16 * block_size)));
}

Route measure(const Place &from, const Place &to, std::uint32_t blocks, std::chrono::milliseconds time) {
    Route route;
    route.from = from.name;
    route.to = to.name;
    try {
        measure_into(route, from, to, blocks, time);
    } catch (const std::exception &error) {
        const auto *const failure = dynamic_cast<const kvmem::Error *>(&error);
        return without_rate(from.name, to.name, Level::failed, failure ? failure->message() : error.what());
    }
    return route;
}

Route without_rate(const std::string &from, const std::string &to, Level level, std::string_view reason) {
    Route route;
    route.from = from;
    route.to = to;
    route.level = level;
    route.text = reason;
    return route;
}

}  // namespace doctor
