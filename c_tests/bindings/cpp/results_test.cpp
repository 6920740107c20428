// SPDX-License-Identifier: Apache-2.0
// Results instead of exceptions; compiled with and without exceptions.
#define KVMEM_RESULTS
#include "fixtures.hpp"

#include <type_traits>
#include <vector>

static_assert(std::is_same_v<decltype(kvmem::Region::create_system({})), kvmem::Result<kvmem::Region>>);
static_assert(std::is_same_v<decltype(std::declval<kvmem::Region &>().sync()), kvmem::Result<void>>);
static_assert(std::is_same_v<decltype(std::declval<const kvmem::Transfer &>().poll()), kvmem::Result<bool>>);
// No reference into a temporary: a loop over it would use what has ended.
static_assert(std::is_same_v<decltype(*std::declval<kvmem::Directory &>().take_events()), kvmem::DirectoryEvents>);
static_assert(std::is_same_v<decltype(std::declval<kvmem::Directory &>().take_events().value()), kvmem::DirectoryEvents>);
static_assert(std::is_same_v<decltype(*std::declval<const kvmem::Result<int> &>()), const int &>);

CASE(a_result_has_a_value) {
    auto region = kvmem::Region::create_system(system_memory(4096));
    CHECK(region && region.has_value() && region.status() == kvmem::Status::ok);
    CHECK(region->info()->size == 4096);
    CHECK((*region).sync());
    const kvmem::Region owned = *std::move(region);
    CHECK(owned && owned.info()->tier == kvmem::Tier::system);
}

CASE(a_loop_over_a_temporary_result_keeps_it) {
    const auto made = [] { return kvmem::Result<std::vector<int>>(std::vector<int>(1000, 7)); };
    int sum = 0;
    for (const int each : *made()) sum += each;
    for (const int each : made().value()) sum += each;
    CHECK(sum == 2 * 7 * 1000);
}

CASE(a_result_has_an_error) {
    const auto region = kvmem::Region::create_system({});
    CHECK(!region && region.status() == kvmem::Status::invalid_argument);
    CHECK(region.error().message().find("size") != std::string_view::npos);
    auto copy = region.error();
    CHECK(copy.status() == kvmem::Status::invalid_argument);
}

CASE(nothing_throws_for_any_function) {
    kvmem::Transfer empty;
    CHECK(empty.submit().status() == kvmem::Status::invalid_argument);
    CHECK(empty.poll().status() == kvmem::Status::invalid_argument);
    CHECK(empty.wait().status() == kvmem::Status::invalid_argument);
    CHECK(empty.explain().status() == kvmem::Status::invalid_argument);
    CHECK(kvmem::Share().open_layout().status() == kvmem::Status::invalid_argument);
    CHECK(kvmem::load_nixl("/nowhere").status() == kvmem::Status::unavailable_nixl);
    kvmem::DiskOptions options;
    options.path = std::string("a\0b", 3);
    CHECK(kvmem::Region::create_disk(options).status() == kvmem::Status::invalid_argument);
}

CASE(a_timeout_is_no_error) {
    auto queue = kvmem::Queue::create();
    CHECK(queue);
    std::array<kvmem::Completion, 2> space;
    const auto taken = queue->wait_for(space, std::chrono::nanoseconds(1));
    CHECK(taken && taken->empty());
}

#if KVMEM_HPP_EXCEPTIONS
CASE(a_value_that_is_not_there_throws_the_error) {
    auto region = kvmem::Region::create_system({});
    try {
        static_cast<void>(region.value());
    } catch (const kvmem::Error &error) {
        CHECK(error.status() == kvmem::Status::invalid_argument);
        return;
    }
    CHECK(false);
}
#endif

int main() { return run_cases(); }
