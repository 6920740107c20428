// SPDX-License-Identifier: Apache-2.0
// Agents of NIXL: two agents in one process, which are peers of each other. Needs NIXL.
#include "fixtures.hpp"

#include <cstring>
#include <thread>

namespace {

constexpr std::chrono::seconds patience{30};

struct Peers {
    Peers() {
        for (kvmem::Agent *agent : {&own, &other}) agent->create_backend("UCX");
    }
    // Call it after the registrations.
    void exchange_metadata() {
        CHECK(own.load_remote_metadata(other.local_metadata()) == "other");
        CHECK(other.load_remote_metadata(own.local_metadata()) == "own");
    }
    kvmem::Agent own = kvmem::Agent::create("own"), other = kvmem::Agent::create("other");
};

}  // namespace

CASE(a_layout_of_a_peer_is_imported_and_read) {
    Peers peers;
    const auto source = kvmem::Layout::build(small_config(), kvmem::SystemOptions(), &peers.other);
    const auto destination = kvmem::Layout::build(small_config(), kvmem::SystemOptions(), &peers.own);
    CHECK(source.info().locality == kvmem::Locality::registered && source.info().agent == "other");
    source.host_bytes(1, 1, 1)[0] = std::byte{0x5a};
    peers.exchange_metadata();
    CHECK(peers.own.has_remote_metadata("other") && !peers.own.has_remote_metadata("unknown"));

    const auto remote = kvmem::Layout::import_descriptor(peers.own, source.export_descriptor());
    CHECK(remote.info().locality == kvmem::Locality::remote && remote.info().agent == "other");
    CHECK(error_of([&] { return remote.host_bytes(1, 1, 1); }).status() == kvmem::Status::unsupported);
    const kvmem::BlockPair pair = {1, 3};
    kvmem::SubmitOptions blocks;
    blocks.pairs = {&pair, 1};
    blocks.notification = "read";
    const auto transfer = kvmem::Transfer::start(remote, destination, {}, blocks);
    CHECK(transfer.wait_for(patience) && transfer.info().method == kvmem::Method::nixl);
    CHECK(destination.host_bytes(3, 1, 1)[0] == std::byte{0x5a});

    const auto messages = peers.other.take_notifications(patience);
    CHECK(messages.size() == 1 && messages.at(0).agent == "own" && messages.at(0).text() == "read");
    for (const auto message : messages) CHECK(message.agent == "own" && message.text() == "read");
    CHECK(error_of([&] { return messages.at(1); }).status() == kvmem::Status::out_of_range);
    CHECK(peers.other.take_notifications(std::chrono::nanoseconds(0)).empty());
    peers.own.notify("other", kvmem::Bytes("text"));
    CHECK(peers.other.take_notifications(patience).at(0).text() == "text");
}

CASE(a_registration_ends_where_its_failure_can_be_read) {
    Peers peers;
    const auto region = kvmem::Region::create_system(system_memory(4096));
    auto registration = peers.own.register_region(region);
    CHECK(registration.info().registered && registration.info().memory_type == kvmem::MemoryType::dram);
    CHECK(region.info().registration_count == 1 && region.agent(0) == "own");
    CHECK(error_of([&] { return peers.own.register_region(region); }).status() == kvmem::Status::already_exists);
    registration.deregister();
    CHECK(!registration.info().registered);
    CHECK(error_of([&] { return registration.deregister(), 0; }).status() == kvmem::Status::invalid_state);
}

CASE(plugins_and_backends_are_listed) {
    Peers peers;
    const auto backends = peers.own.backends();
    CHECK(backends.size() == 1 && backends.at(0).name == "UCX" && !backends.at(0).failure);
    CHECK(backends.at(0).accepts(kvmem::MemoryType::dram) && !backends.at(0).accepts(kvmem::MemoryType::object));
    const auto plugins = peers.own.plugins();
    bool found = false;
    for (std::size_t i = 0; i < plugins.size(); ++i) found = found || plugins.at(i).name == "POSIX";
    CHECK(found);
}

CASE(descriptors_are_checked) {
    auto agent = kvmem::Agent::create("checking");
    kvmem::Descriptor wrong;
    wrong.agent = std::string("a\0b", 3);
    CHECK(error_of([&] { return agent.register_descriptors({wrong}); }).status() == kvmem::Status::invalid_argument);
    wrong.agent.reset();
    wrong.address = ~std::uint64_t{0};
    wrong.size = 2;
    CHECK(error_of([&] { return agent.register_descriptors({wrong}); }).status() == kvmem::Status::out_of_range);
    const auto region = kvmem::Region::create_system(system_memory(8192));
    const auto all = kvmem::descriptors_of(region);
    CHECK(all.size() == 1 && all[0].size == 8192 && all[0].address == region.info().address);
    CHECK(all[0].memory_type == kvmem::MemoryType::dram && all[0].region == &region && all[0].metadata.empty());
}

CASE(a_request_moves_raw_memory) {
    Peers peers;
    const auto here = kvmem::Region::create_system(system_memory(8192));
    const auto there = kvmem::Region::create_system(system_memory(8192));
    auto queue = kvmem::Queue::create();
    const auto local = kvmem::descriptors_of(here), remote = kvmem::descriptors_of(there);
    const auto own = peers.own.register_descriptors(local);
    const auto others = peers.other.register_descriptors(remote);
    peers.exchange_metadata();
    peers.own.connect("other");

    std::memset(here.host_bytes().data(), 0x11, 8192);
    kvmem::NixlOptions options;
    options.notification = "written";
    options.queue = &queue;
    options.user_data = 9;
    auto request = kvmem::Request::create(peers.own, kvmem::Operation::write, local, "other", remote, options);
    CHECK(request.backend() == "UCX");
    CHECK(error_of([&] { return request.poll(); }).status() == kvmem::Status::invalid_state);
    request.post();
    CHECK(request.wait_for(patience) && request.poll());
    CHECK(there.host_bytes()[8191] == std::byte{0x11});
    CHECK(peers.other.take_notifications(patience).at(0).text() == "written");
    std::array<kvmem::Completion, 1> space;
    CHECK(queue.wait_for(space, patience).size() == 1 && space[0].user_data == 9 && space[0].status == kvmem::Status::ok);

    // A notification belongs to requests. The message names it, not the flag that it sets.
    kvmem::NixlOptions message;
    message.notification = "registered";
    CHECK(error_of([&] { return peers.own.register_descriptors(local, message); }).message().find("notification of") !=
          std::string_view::npos);

    // Selected entries of prepared lists.
    std::vector<kvmem::Descriptor> pieces(4), targets(4);
    for (std::size_t i = 0; i < 4; ++i) {
        pieces[i].address = here.info().address + 1024 * i;
        targets[i].address = there.info().address + 1024 * i;
        pieces[i].size = targets[i].size = 1024;
    }
    CHECK(error_of([&] {
              return kvmem::Request::create(peers.own, kvmem::Operation::write, pieces, "other", {});
          }).message().find("4 local descriptors and 0 remote") != std::string_view::npos);
    const auto from = kvmem::Prepared::create_local(peers.own, pieces);
    const auto to = kvmem::Prepared::create_remote(peers.own, "other", targets);
    std::memset(here.host_bytes().data(), 0x22, 1024);
    const std::uint32_t first[] = {0}, last[] = {3}, both[] = {0, 1};
    auto piece = kvmem::Request::make(kvmem::Operation::write, from, first, to, last);
    piece.post(kvmem::Bytes("piece"));
    piece.wait();
    CHECK(there.host_bytes()[3072] == std::byte{0x22} && there.host_bytes()[0] == std::byte{0x11});
    CHECK(peers.other.take_notifications(patience).at(0).text() == "piece");
    CHECK(error_of([&] { return kvmem::Request::make(kvmem::Operation::write, from, both, to, last); }).message().find(
              "2 local indices and 1 remote") != std::string_view::npos);
}

CASE(a_wait_fails_after_the_deadline_of_a_request) {
    Peers peers;
    const auto here = kvmem::Region::create_system(system_memory(1 << 20));
    const auto there = kvmem::Region::create_system(system_memory(1 << 20));
    const auto local = kvmem::descriptors_of(here), remote = kvmem::descriptors_of(there);
    const auto own = peers.own.register_descriptors(local);
    const auto others = peers.other.register_descriptors(remote);
    peers.exchange_metadata();
    kvmem::NixlOptions options;
    options.run_timeout = std::chrono::nanoseconds(1);
    auto request = kvmem::Request::create(peers.own, kvmem::Operation::read, local, "other", remote, options);
    const auto has_succeeded = [&] {
        try {
            while (!request.poll()) std::this_thread::yield();
        } catch (const kvmem::Error &error) {
            CHECK(error.status() == kvmem::Status::timed_out);
            return false;
        }
        return true;
    };
    // The end of a run and its deadline may coincide.
    do request.post();
    while (has_succeeded());
    CHECK(error_of([&] { return request.wait_for(std::chrono::nanoseconds(0)); }).status() ==
          kvmem::Status::timed_out);
}

CASE(files_are_queried) {
    auto agent = kvmem::Agent::create("files");
    agent.create_backend("POSIX");
    kvmem::Descriptor there, missing;
    there.memory_type = missing.memory_type = kvmem::MemoryType::file;
    there.metadata = "/proc/self/exe";
    missing.metadata = "/nowhere/at/all";
    const auto query = agent.query({there, missing});
    CHECK(query.size() == 2 && query.at(0).exists && !query.at(1).exists);
}

CASE(a_queue_reports_messages) {
    Peers peers;
    peers.exchange_metadata();
    auto queue = kvmem::Queue::create();
    peers.other.report_notifications(&queue, 4);
    peers.own.notify("other", "hello");
    std::array<kvmem::Completion, 1> space;
    CHECK(queue.wait_for(space, patience).size() == 1 && space[0].user_data == 4);
    CHECK(peers.other.take_notifications(std::chrono::nanoseconds(0)).at(0).text() == "hello");
    peers.other.report_notifications(nullptr);
}

int main() { return run_cases(); }
