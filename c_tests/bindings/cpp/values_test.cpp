// SPDX-License-Identifier: Apache-2.0
// Values that need no call: spans, bytes, flags, timeouts, options.
#include "fixtures.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

using kvmem::Timeout;
using namespace std::chrono_literals;

// ---- Timeouts ----

static_assert(Timeout(0s).ns() == 0 && Timeout(-5s).ns() == 0);
static_assert(Timeout(1500us).ns() == 1'500'000);
static_assert(Timeout(std::chrono::duration<double, std::nano>(0.25)).ns() == 1, "rounded up: it still waits");
static_assert(Timeout(std::chrono::hours::max()).ns() == KVMEM_TIMEOUT_FOREVER, "no overflow");
static_assert(Timeout(std::chrono::nanoseconds::max()).ns() == KVMEM_TIMEOUT_FOREVER);
static_assert(Timeout(std::chrono::nanoseconds::min()).ns() == 0);
static_assert(kvmem::forever.ns() == KVMEM_TIMEOUT_FOREVER);

CASE(a_timeout_that_is_not_a_number_does_not_wait) {
    CHECK(Timeout(std::chrono::duration<double>(std::numeric_limits<double>::quiet_NaN())).ns() == 0);
    CHECK(Timeout(std::chrono::duration<double>(std::numeric_limits<double>::infinity())).ns() == KVMEM_TIMEOUT_FOREVER);
}

// ---- Spans and bytes ----

static_assert(std::is_constructible_v<kvmem::span<const int>, std::vector<int> &>);
static_assert(std::is_constructible_v<kvmem::span<const int>, const std::vector<int> &>);
static_assert(std::is_constructible_v<kvmem::span<int>, std::array<int, 3> &>);
static_assert(!std::is_constructible_v<kvmem::span<int>, const std::vector<int> &>, "the elements are const");
static_assert(!std::is_constructible_v<kvmem::span<const int>, std::vector<long> &>, "elements of another type");
static_assert(std::is_convertible_v<kvmem::span<int>, kvmem::span<const int>>);
#if defined(_MSVC_LANG) ? _MSVC_LANG >= 202002L : __cplusplus >= 202002L
static_assert(std::is_same_v<kvmem::span<int>, std::span<int>>);
#endif

CASE(a_span_views_elements) {
    std::vector<int> numbers = {1, 2, 3};
    const kvmem::span<int> all = numbers;
    all[1] = 7;
    CHECK(numbers[1] == 7 && all.size() == 3 && !all.empty() && all.data() == numbers.data());
    int sum = 0;
    for (const int number : all.subspan(1)) sum += number;
    CHECK(sum == 10 && all.first(2).size() == 2);
    CHECK(kvmem::span<int>().empty());
}

CASE(bytes_of_any_container) {
    CHECK(kvmem::Bytes("text").size() == 4);
    CHECK(kvmem::Bytes(std::string("a\0b", 3)).size() == 3);
    const std::vector<std::byte> bytes(5);
    CHECK(kvmem::Bytes(bytes).data() == bytes.data() && kvmem::Bytes(bytes).size() == 5);
    const std::array<std::uint8_t, 2> pair = {1, 2};
    CHECK(kvmem::Bytes(pair).size() == 2);
    CHECK(kvmem::Bytes().data() == nullptr);
}

// ---- Flags ----

CASE(flags_are_sets) {
    using kvmem::SystemFlag;
    kvmem::Flags<SystemFlag> flags = SystemFlag::shareable | SystemFlag::numa_bind;
    CHECK(flags.has(SystemFlag::shareable) && !flags.has(SystemFlag::huge_pages_required));
    flags |= SystemFlag::huge_pages_required;
    CHECK(flags.bits() == (KVMEM_SYSTEM_SHAREABLE | KVMEM_SYSTEM_NUMA_BIND | KVMEM_SYSTEM_HUGE_PAGES_REQUIRED));
    CHECK(kvmem::Flags<SystemFlag>().empty() && flags != SystemFlag::shareable);
}
static_assert(!std::is_constructible_v<kvmem::Flags<kvmem::SystemFlag>, kvmem::DiskFlag>, "flags of another kind");
static_assert(!std::is_convertible_v<int, kvmem::Flags<kvmem::SystemFlag>>, "numbers are not flags");

// ---- Options ----

CASE(options_without_values_are_the_defaults_of_c) {
    CHECK(kvmem::SystemOptions().c().struct_size == sizeof(kvmem_system_options));
    CHECK(kvmem::DiskOptions().c().path == nullptr);
    CHECK(kvmem::LayoutConfig().c().order == nullptr);
    const kvmem::TransferOptions none;
    const kvmem::detail::TransferOptionsInC c(none);
    kvmem_transfer_options expected{};
    expected.struct_size = sizeof expected;
    CHECK(c.c.struct_size == expected.struct_size && c.c.queue == nullptr && c.c.method == 0);
    const kvmem::SubmitOptions no_blocks;
    const kvmem::detail::SubmitOptionsInC step(no_blocks);
    CHECK(step.c.num_pairs == 0 && step.c.checksums == nullptr && step.c.source_table == nullptr);
    CHECK(step.c.notification == nullptr);
}

// In C, 0 means the default or no limit. Without this rule, a token whose time has passed would never expire.
CASE(a_negative_limit_is_the_shortest_one) {
    const auto limits = [](std::chrono::nanoseconds limit) {
        kvmem::BrokerOptions broker;
        broker.client_timeout = limit;
        kvmem::PublishOptions publish;
        publish.lifetime = limit;
        kvmem::ServeOptions serve;
        serve.stall_timeout = limit;
        kvmem::TransferOptions transfer;
        transfer.stall_timeout = limit;
        kvmem::SubmitOptions submit;
        submit.run_timeout = limit;
        kvmem::NixlOptions nixl;
        nixl.run_timeout = limit;
        return std::array<std::uint64_t, 6>{
            broker.c().client_timeout_ns, publish.c().lifetime_ns,
            serve.c().stall_timeout_ns,
            kvmem::detail::TransferOptionsInC(transfer).c.stall_timeout_ns,
            kvmem::detail::SubmitOptionsInC(submit).c.run_timeout_ns,
            kvmem::detail::NixlOptionsInC(nixl).c.run_timeout_ns};
    };
    const auto all = [&](std::chrono::nanoseconds limit, std::uint64_t expected) {
        const auto found = limits(limit);
        return std::all_of(found.begin(), found.end(), [&](std::uint64_t one) { return one == expected; });
    };
    CHECK(all(-5s, 1) && all(std::chrono::nanoseconds::min(), 1));
    CHECK(all(0s, 0) && all(7ns, 7) && all(std::chrono::nanoseconds::max(), KVMEM_TIMEOUT_FOREVER));
}

CASE(an_empty_notification_is_a_message) {
    kvmem::SubmitOptions options;
    options.notification = "";
    const kvmem::detail::SubmitOptionsInC c(options);
    CHECK(c.c.notification != nullptr && c.c.notification_size == 0);
}

CASE(versions) {
    CHECK(kvmem::abi_matches());
    CHECK(!kvmem::version().empty());
    CHECK(kvmem::name(kvmem::Method::memcpy) == std::string("memcpy"));
    CHECK(kvmem::name(kvmem::Status::busy) == std::string("KVMEM_STATUS_BUSY"));
    CHECK(kvmem::message(kvmem::Status::busy)[0] != '\0');
}

#if defined(_MSVC_LANG) ? _MSVC_LANG >= 202002L : __cplusplus >= 202002L
// Without a warning about missing fields, and in the order of the fields.
CASE(designated_initializers) {
    const auto region = kvmem::Region::create_system({.size = 4096, .flags = kvmem::SystemFlag::shareable});
    CHECK(region.info().flags.has(kvmem::RegionFlag::shareable));
    const auto file = kvmem::Region::create_disk({.size = 4096, .flags = kvmem::DiskFlag::buffered});
    CHECK(file.info().tier == kvmem::Tier::disk);
}
#endif

int main() { return run_cases(); }

// ---- Statistics ----

CASE(statistics_of_the_process_of_a_method_and_as_text) {
    kvmem::SystemOptions options;
    options.size = 4096;
    const auto region = kvmem::Region::create_system(options);
    CHECK(kvmem::statistics().system_bytes >= 4096 && kvmem::statistics().num_regions == 1);
    CHECK(kvmem::statistics(kvmem::Method::memcpy).bytes[KVMEM_DIRECTION_HOST_TO_HOST] == 0);
    CHECK(kvmem::request_statistics().latency_sums_ns[0] == 0);
    CHECK(kvmem::statistics_text().find("kvmem_handles{type=\"region\"} 1\n") != std::string::npos);
    CHECK(kvmem::export_trace().find("\"traceEvents\":[") != std::string::npos);
}
