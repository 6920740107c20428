// SPDX-License-Identifier: Apache-2.0
// Handles: moves, destruction, lifetime.
#include "fixtures.hpp"

#include <chrono>
#include <cstring>
#include <type_traits>
#include <unistd.h>

namespace {

template <typename... Handles>
constexpr bool all_move_only = ((!std::is_copy_constructible_v<Handles> && !std::is_copy_assignable_v<Handles> &&
                                 std::is_nothrow_move_constructible_v<Handles> &&
                                 std::is_nothrow_move_assignable_v<Handles> &&
                                 std::is_nothrow_default_constructible_v<Handles>) && ...);
template <typename... Handles>
constexpr bool all_are_pointers = ((all_move_only<Handles> && sizeof(Handles) == sizeof(void *)) && ...);

static_assert(all_are_pointers<kvmem::Agent, kvmem::Blob, kvmem::Broker, kvmem::Layout, kvmem::Lease, kvmem::Notifications, kvmem::Queue,
                               kvmem::Region, kvmem::Registration, kvmem::Share, kvmem::Transfer, kvmem::VmmMemory>);
// They also have what was returned when they were created.
static_assert(all_move_only<kvmem::MemoryView, kvmem::VmmMapping, kvmem::VmmRange>);

std::uint64_t handles_of(const kvmem::Region &region) { return region.holders().handles; }

}  // namespace

CASE(an_empty_handle_is_false_and_its_calls_fail) {
    kvmem::Region empty;
    CHECK(!empty && empty.get() == nullptr);
    CHECK(error_of([&] { return empty.info(); }).status() == kvmem::Status::invalid_argument);
    CHECK(kvmem::Agent().name().empty());
    CHECK(kvmem::Blob().text().empty() && kvmem::Blob().bytes().empty());
    CHECK(kvmem::Notifications().empty());
    CHECK(kvmem::Share().bytes().empty());
}

CASE(an_option_that_points_to_an_empty_handle_fails) {
    const auto memory = kvmem::SystemOptions();
    auto a = kvmem::Layout::build(small_config(4), memory), b = kvmem::Layout::build(small_config(4), memory);
    const kvmem::Queue queue;
    const kvmem::Agent agent;
    kvmem::Region table;
    CHECK(error_of([&] { return a.create_epochs(table), 0; }).status() == kvmem::Status::invalid_argument);
    a.create_epochs();
    const kvmem::BlockPair pairs[] = {{0, 1}};
    kvmem::TransferOptions options;
    options.queue = &queue;
    kvmem::SubmitOptions blocks;
    blocks.pairs = pairs;
    CHECK(error_of([&] { return kvmem::Transfer::start(a, b, options, blocks); }).status() ==
          kvmem::Status::invalid_argument);
    CHECK(error_of([&] { return kvmem::Layout::build(small_config(4), memory, &agent); }).status() ==
          kvmem::Status::invalid_argument);
}

CASE(a_move_leaves_the_source_empty) {
    auto first = kvmem::Region::create_system(system_memory(4096));
    kvmem_region *const c = first.get();
    kvmem::Region second = std::move(first);
    CHECK(!first && second.get() == c);
    kvmem::Region third;
    third = std::move(second);
    CHECK(!second && third.get() == c);
    auto &same = third;
    third = std::move(same);
    CHECK(third.get() == c && third.info().size == 4096);
}

CASE(each_handle_is_destroyed_once) {
    const auto layout = kvmem::Layout::build(small_config(1), kvmem::SystemOptions());
    {
        auto a = layout.region(0);
        CHECK(handles_of(a) == 1);
        auto b = layout.region(0);
        CHECK(handles_of(a) == 2);
        b = layout.region(0);  // destroys its old handle
        CHECK(handles_of(a) == 2);
        b.reset();
        CHECK(handles_of(a) == 1);
    }
    const auto again = layout.region(0);
    CHECK(handles_of(again) == 1);
}

CASE(a_handle_passes_to_c_and_back) {
    auto region = kvmem::Region::create_system(system_memory(4096));
    kvmem_region *c = region.release();
    CHECK(!region);
    kvmem_region_info info = {};
    CHECK(kvmem_region_get_info(c, &info, nullptr) == KVMEM_STATUS_OK && info.size == 4096);
    const kvmem::Region owned(c);
    CHECK(owned.info().tier == kvmem::Tier::system);
}

CASE(children_keep_their_parents_alive) {
    auto layout = [] {
        auto memory = kvmem::SystemOptions();
        memory.size = kvmem::layout_requirements(small_config()).total_size;
        const auto region = kvmem::Region::create_system(memory);
        return kvmem::Layout::build(small_config(), region);
    }();
    const auto range = layout.block(3, 1, 1);
    std::memset(reinterpret_cast<void *>(range.address), 0x5a, range.size);

    auto transfer = [&] {
        const auto destination = kvmem::Layout::build(small_config(), kvmem::SystemOptions());
        const kvmem::BlockPair pair = {3, 0};
        kvmem::SubmitOptions blocks;
        blocks.pairs = {&pair, 1};
        auto created = kvmem::Transfer::create(layout, destination);
        created.prepare(blocks);
        return created;
    }();
    layout.reset();
    transfer.submit();
    transfer.wait();
    CHECK(transfer.poll() && transfer.info().bytes == 256);
}

CASE(layouts_are_combined_and_moved_by_part) {
    const auto combined = [] {
        const auto data = kvmem::Layout::build(small_config(), kvmem::SystemOptions());
        const auto scales = kvmem::Layout::build(small_config(), kvmem::SystemOptions());
        return kvmem::Layout::combine({{"scales", &scales}, {"data", &data}});
    };
    const auto from = combined(), to = combined();
    const std::vector<std::string> names = {"data", "scales"};
    CHECK(from.info().part_names == names);
    from.part("scales").host_bytes(1, 0, 0)[0] = std::byte{0x5a};

    const kvmem::BlockPair pair = {1, 2};
    kvmem::TransferOptions options;
    options.parts = {"scales"};
    kvmem::SubmitOptions blocks;
    blocks.pairs = {&pair, 1};
    const auto transfer = kvmem::Transfer::start(from, to, options, blocks);
    transfer.wait();
    CHECK(transfer.info().bytes == 256);
    CHECK(to.part("scales").host_bytes(2, 0, 0)[0] == std::byte{0x5a});
    CHECK(error_of([&] { return from.part("keys"); }).status() == kvmem::Status::not_found);
}

CASE(a_list_of_pairs_in_braces) {
    const auto from = kvmem::Layout::build(small_config(), kvmem::SystemOptions());
    const auto to = kvmem::Layout::build(small_config(), kvmem::SystemOptions());
    from.host_bytes(1, 0, 0)[0] = std::byte{0x17};
    from.host_bytes(3, 0, 0)[0] = std::byte{0x39};
    const auto move = [&](kvmem::Elements<kvmem::BlockPair> pairs) {
        kvmem::SubmitOptions blocks;
        blocks.pairs = pairs;
        kvmem::Transfer::start(from, to, {}, blocks).wait();
    };
    move({{1, 2}, {3, 0}});
    CHECK(to.host_bytes(2, 0, 0)[0] == std::byte{0x17} && to.host_bytes(0, 0, 0)[0] == std::byte{0x39});
    move({{1, 1}});
    CHECK(to.host_bytes(1, 0, 0)[0] == std::byte{0x17});
    const kvmem::BlockPair pair = {3, 3};
    move({&pair, 1});
    CHECK(to.host_bytes(3, 0, 0)[0] == std::byte{0x39});
#if __cplusplus >= 202002L
    kvmem::Transfer::start(from, to, {}, {.pairs = {{1, 3}}}).wait();
    CHECK(to.host_bytes(3, 0, 0)[0] == std::byte{0x17});
#endif
}

CASE(bytes_that_are_not_in_host_memory) {
    const auto file = kvmem::Layout::build(small_config(), kvmem::DiskOptions());
    CHECK(error_of([&] { return file.host_bytes(0, 0, 0); }).status() == kvmem::Status::unsupported);
}

CASE(bytes_of_a_region) {
    const auto region = kvmem::Region::create_system(system_memory(4096));
    const auto bytes = region.host_bytes();
    CHECK(bytes.size() == 4096 && bytes[4095] == std::byte{0});
    kvmem::DiskOptions file;
    file.size = 4096;
    file.flags = kvmem::DiskFlag::buffered;
    CHECK(kvmem::Region::create_disk(file).host_bytes().empty());
}

CASE(accesses_of_a_run_in_flight) {
    kvmem::LayoutConfig big = small_config(64);
    big.num_layers = 64;
    big.inner_dim = 4096;
    const auto source = kvmem::Layout::build(big, kvmem::SystemOptions());
    const auto destination = kvmem::Layout::build(big, kvmem::SystemOptions());
    auto transfer = kvmem::Transfer::create(source, destination);
    std::vector<kvmem::BlockPair> pairs;
    for (std::uint32_t block = 0; block < 64; ++block) pairs.push_back({block, block});
    kvmem::SubmitOptions blocks;
    blocks.pairs = pairs;
    blocks.user_data = 5;
    std::vector<kvmem::BlockAccess> found;
    while (found.empty()) {  // until the run is in flight when that is asked
        transfer.submit(blocks);
        found = source.accesses({9, 3, 9});
        transfer.wait();
    }
    CHECK(found.size() == 2 && found[0].block == 3 && found[1].block == 9);
    for (const auto &access : found) {
        CHECK(access.accessor == kvmem::Accessor::run && access.reads && !access.writes);
        CHECK(access.user_data == 5 && access.pid == 0 && access.agent.empty());
    }
    CHECK(source.accesses({3, 9}).empty());
}

CASE(leases_of_blocks) {
    using namespace std::chrono_literals;
    const auto layout = kvmem::Layout::build(small_config(8), kvmem::SystemOptions());
    auto reader = layout.lease({2, 1, 2});
    CHECK(!reader.remaining());
    auto found = layout.accesses({0, 1, 2});
    CHECK(found.size() == 2 && found[0].block == 1 && found[1].block == 2);
    for (const auto &access : found) {
        CHECK(access.accessor == kvmem::Accessor::lease && access.reads && !access.writes && !access.remaining);
        CHECK(access.pid == static_cast<std::uint32_t>(getpid()));
    }
    reader.renew(1000s);
    CHECK(*reader.remaining() > 0s && *reader.remaining() <= 1000s);
    reader.renew(1ns);
    kvmem::LeaseOptions options;
    options.duration = 1000s;
    options.flags = kvmem::LeaseFlag::writes;
    {
        const auto writer = layout.lease({7}, options);
        found = layout.accesses({7});
        CHECK(found.size() == 1 && found[0].writes && *found[0].remaining > 0s);
    }
    CHECK(layout.accesses({7}).empty());
}

int main() { return run_cases(); }
