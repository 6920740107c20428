// SPDX-License-Identifier: Apache-2.0
// Agents of NIXL: two agents in one process, which are peers of each other. Needs NIXL.
#include "fixtures.hpp"

namespace {

constexpr std::chrono::seconds patience{30};

struct Peers {
    Peers() {
        for (kvmem::Agent *agent : {&own, &other}) agent->create_backend("UCX");
    }
    // After the registrations.
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
    CHECK(source.info().locality == kvmem::Locality::registered && source.agent() == "other");
    kvmem::host_bytes(source.block(1, 1, 1))[0] = std::byte{0x5a};
    peers.exchange_metadata();
    CHECK(peers.own.has_remote_metadata("other") && !peers.own.has_remote_metadata("unknown"));

    const auto remote = kvmem::Layout::import_descriptor(peers.own, source.export_descriptor());
    CHECK(remote.info().locality == kvmem::Locality::remote && remote.agent() == "other");
    const kvmem::BlockPair pair = {1, 3};
    kvmem::TransferOptions options;
    options.pairs = {&pair, 1};
    options.notification = "read";
    const auto transfer = kvmem::Transfer::start(remote, destination, options);
    CHECK(transfer.wait_for(patience) && transfer.info().path == kvmem::Path::nixl_read);
    CHECK(kvmem::host_bytes(destination.block(3, 1, 1))[0] == std::byte{0x5a});

    const auto messages = peers.other.take_notifications(patience);
    CHECK(messages.size() == 1 && messages.at(0).agent == "own" && messages.at(0).text() == "read");
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

int main() { return run_cases(); }
