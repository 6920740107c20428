// SPDX-License-Identifier: Apache-2.0
// Errors as exceptions, and arguments that C cannot represent.
#include "fixtures.hpp"

#include <cerrno>
#include <cstring>
#include <thread>
#include <type_traits>

static_assert(std::is_nothrow_copy_constructible_v<kvmem::Error>, "an exception is copied while another one is handled");

CASE(an_error_has_status_message_and_cause) {
    kvmem::DiskOptions options;
    options.path = "/nowhere/at/all";
    options.size = 4096;
    const auto error = error_of([&] { return kvmem::Region::create_disk(options); });
    CHECK(error.status() == kvmem::Status::not_found);
    CHECK(error.message().find("/nowhere/at") != std::string_view::npos);
    CHECK(error.cause().domain == kvmem::Domain::system && error.cause().code == ENOENT);
    CHECK(error.cause().name == "ENOENT");
    CHECK(std::string(error.what()) == "KVMEM_STATUS_NOT_FOUND: " + std::string(error.message()));
    const auto copy = error;
    CHECK(copy.message().data() == error.message().data());
}

CASE(an_error_that_was_moved_from_still_has_its_text) {
    auto error = error_of([] { return kvmem::Region::create_system({}); });
    const auto other = std::move(error);
    CHECK(error.status() == other.status() && error.message() == other.message());
    CHECK(std::string(error.what()) == other.what());
}

CASE(an_error_of_kvmem_has_no_cause) {
    const auto error = error_of([] { return kvmem::Region::create_system({}); });
    CHECK(error.status() == kvmem::Status::invalid_argument);
    CHECK(error.cause().domain == kvmem::Domain::none && error.cause().name.empty());
}

CASE(it_is_a_standard_exception) {
    try {
        static_cast<void>(kvmem::Region::create_system({}));
    } catch (const std::exception &error) {
        CHECK(std::strstr(error.what(), "KVMEM_STATUS_INVALID_ARGUMENT: ") == error.what());
        return;
    }
    CHECK(false);
}

CASE(text_with_a_nul_fails) {
    kvmem::DiskOptions options;
    options.size = 4096;
    options.path = std::string("/tmp/a\0b", 8);
    CHECK(error_of([&] { return kvmem::Region::create_disk(options); }).status() == kvmem::Status::invalid_argument);
    const auto layout = small_config();
    options.size = 0;
    CHECK(error_of([&] { return kvmem::Layout::build(layout, options); }).message().find("NUL") != std::string_view::npos);
    auto config = small_config();
    config.order = std::string("BL\0ONHC", 7);
    CHECK(error_of([&] { return kvmem::layout_requirements(config); }).message().find("order") !=
          std::string_view::npos);
    kvmem::FetchOptions fetch;
    fetch.path = "/tmp/socket";
    fetch.name = std::string("a\0", 2);
    CHECK(error_of([&] { return kvmem::fetch_share(fetch); }).status() == kvmem::Status::invalid_argument);
    CHECK(error_of([] { return kvmem::Agent::create(std::string_view("a\0b", 3)); }).status() ==
          kvmem::Status::invalid_argument);
}

CASE(an_empty_path_is_no_temporary_file) {
    kvmem::DiskOptions options;
    options.size = 4096;
    options.path = "";
    CHECK(error_of([&] { return kvmem::Region::create_disk(options); }).status() == kvmem::Status::invalid_argument);
}

CASE(as_many_checksums_as_pairs) {
    const auto layout = kvmem::Layout::build(small_config(), kvmem::SystemOptions());
    const kvmem::BlockPair pairs[] = {{0, 1}, {2, 3}};
    const std::uint32_t checksums[] = {1};
    kvmem::SubmitOptions step;
    step.pairs = pairs;
    step.checksums = checksums;
    CHECK(error_of([&] { return kvmem::Transfer::start(layout, layout, {}, step); }).message() ==
          "there are 1 checksums for 2 pairs; give one per pair, or none");
    auto transfer = kvmem::Transfer::create(layout, layout);
    CHECK(error_of([&] { return transfer.prepare(step), 0; }).status() == kvmem::Status::invalid_argument);
    CHECK(error_of([&] { return transfer.submit(step), 0; }).status() == kvmem::Status::invalid_argument);
    CHECK(error_of([&] { return transfer.submit(), 0; }).status() == kvmem::Status::invalid_state);

    // With block tables the number of checksums is not the reason.
    const std::uint32_t blocks[] = {0, 1}, others[] = {2, 3};
    kvmem::SubmitOptions tables;
    tables.checksums = checksums;
    tables.source_table = kvmem::BlockTable{blocks, 0, 0};
    tables.destination_table = kvmem::BlockTable{others, 0, 0};
    tables.num_tokens = 8;
    CHECK(error_of([&] { return kvmem::Transfer::start(layout, layout, {}, tables); }).message().find("block tables") !=
          std::string_view::npos);
}

// An empty store handle: the keys are checked before.
CASE(keys_of_a_store_and_their_parent_have_one_size) {
    const auto layout = kvmem::Layout::build(small_config(), kvmem::SystemOptions());
    const unsigned char bytes[64] = {};
    const std::uint32_t block = 0;
    kvmem::Store store;
    const kvmem::StoreKeys cut{{bytes, 63}, 32}, one{{bytes, 32}, 32};
    kvmem::StoreBlocks blocks;
    blocks.blocks = {&block, 1};
    blocks.keys = cut;
    const std::string_view part = "the keys have 63 bytes, no multiple of their size, 32";
    CHECK(error_of([&] { return store.contains(cut); }).message() == part);
    CHECK(error_of([&] { return store.remove(cut); }).message() == part);
    CHECK(error_of([&] { return store.put(layout, blocks); }).message() == part);
    blocks.keys = one;
    blocks.parent = {bytes, 16};
    CHECK(error_of([&] { return store.put(layout, blocks); }).message() == "parent has 16 bytes; give as many as a key has, 32");
    CHECK(error_of([&] { return store.pin(one); }).message().find("store") != std::string_view::npos);
}

CASE(a_run_that_fails_throws_where_its_end_is_read) {
    const auto layout = kvmem::Layout::build(small_config(), kvmem::SystemOptions());
    const kvmem::BlockPair pair = {0, 1};
    const std::uint32_t wrong = 1;
    kvmem::SubmitOptions blocks;
    blocks.pairs = {&pair, 1};
    blocks.checksums = {&wrong, 1};
    const auto transfer = kvmem::Transfer::start(layout, layout, {}, blocks);
    CHECK(error_of([&] { return transfer.wait(), 0; }).status() == kvmem::Status::corrupt);
    CHECK(error_of([&] { return transfer.poll(); }).status() == kvmem::Status::corrupt);
    CHECK(error_of([&] { return transfer.wait_for(std::chrono::seconds(1)); }).status() == kvmem::Status::corrupt);
}

// Such a wait returned false, as if the run were in flight: a loop that waits did not end.
CASE(a_wait_fails_after_the_deadline_of_the_run) {
    auto config = small_config(2);
    config.inner_dim = 4 << 20;
    const auto from = kvmem::Layout::build(config, kvmem::SystemOptions());
    const auto to = kvmem::Layout::build(config, kvmem::SystemOptions());
    const kvmem::BlockPair pair = {0, 1};
    kvmem::TransferOptions options;
    options.flags = kvmem::TransferFlag::by_layer;
    kvmem::SubmitOptions blocks;
    blocks.pairs = {&pair, 1};
    blocks.run_timeout = std::chrono::nanoseconds(1);
    const auto end_of = [](const kvmem::Transfer &run) {
        try {
            while (!run.poll()) std::this_thread::yield();
        } catch (const kvmem::Error &error) {
            return error.status();
        }
        return kvmem::Status::ok;
    };
    auto late = kvmem::Transfer::start(from, to, options, blocks);
    // The end of a run and its deadline may coincide.
    while (end_of(late) == kvmem::Status::ok) late = kvmem::Transfer::start(from, to, options, blocks);
    const auto now = std::chrono::nanoseconds(0);
    CHECK(error_of([&] { return late.wait_for(now); }).status() == kvmem::Status::timed_out);
    CHECK(error_of([&] { return late.wait_layers_for(2, now); }).status() == kvmem::Status::timed_out);
}

CASE(without_cuda_and_nixl) {
    CHECK(error_of([] { return kvmem::load_nixl("/nowhere/libnixl_capi.so"), 0; }).status() ==
          kvmem::Status::unavailable_nixl);
    const auto error = error_of([] { return kvmem::device_info(1000000); }).status();
    CHECK(error == kvmem::Status::unavailable_cuda || error == kvmem::Status::out_of_range);
}

int main() { return run_cases(); }
