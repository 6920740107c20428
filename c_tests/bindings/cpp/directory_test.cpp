// SPDX-License-Identifier: Apache-2.0
// Directories in a folder: an agent is published, found, watched and withdrawn. Needs NIXL.
#include "fixtures.hpp"

#include <unistd.h>

#include <cstring>
#include <iterator>
#include <string>
#include <vector>

namespace {

constexpr std::chrono::seconds patience{30};

// A new folder, which is empty at the end, because directories withdraw their entries.
class Folder {
public:
    Folder() { CHECK(mkdtemp(&path_[0]) != nullptr); }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;
    ~Folder() { CHECK(rmdir(path_.c_str()) == 0); }
    kvmem::Directory open() const {
        kvmem::DirectoryOptions options;
        options.folder = path_;
        return kvmem::Directory::create(options);
    }

private:
    std::string path_ = "/tmp/kvmem-cpp-directory-XXXXXX";
};

kvmem::Agent make_agent(const char *name) {
    auto agent = kvmem::Agent::create(name);
    agent.create_backend("UCX");
    return agent;
}

kvmem::DirectoryEvents expect_event(const kvmem::Directory &directory, kvmem::DirectoryChange change, std::uint64_t version) {
    auto events = directory.take_events(patience);
    CHECK(events.size() == 1 && !events.empty());
    const auto event = events.at(0);
    CHECK(event.change == change && event.agent == "publisher" && event.version == version);
    CHECK(event.status == kvmem::Status::ok && event.message.empty());
    std::size_t counted = 0;
    for (const auto each : events) counted += each.agent == event.agent;
    CHECK(counted == 1);
    const std::vector<kvmem::DirectoryEvent> all(events.begin(), events.end());
    CHECK(all.size() == 1 && all[0].change == change && std::distance(events.begin(), events.end()) == 1);
    CHECK(error_of([&] { return events.at(1); }).status() == kvmem::Status::out_of_range);
    return events;
}

template <typename Call>
void expect(kvmem::Status status, std::string_view part, Call call) {
    const auto error = error_of([&] { return static_cast<void>(call()), 0; });
    CHECK(error.status() == status && error.message().find(part) != std::string_view::npos);
}

}  // namespace

CASE(an_agent_is_found_by_name_with_its_layouts) {
    const Folder folder;
    const auto agent = make_agent("publisher"), reader = make_agent("reader");
    const auto cache = kvmem::Layout::build(small_config(), kvmem::SystemOptions(), &agent);
    const auto own = kvmem::Layout::build(small_config(), kvmem::SystemOptions(), &reader);
    cache.host_bytes(1, 1, 1)[0] = std::byte{0x5a};
    const auto watcher = folder.open();
    auto publisher = folder.open();
    auto queue = kvmem::Queue::create();
    watcher.watch("publisher", patience);
    watcher.report_events(&queue, 7);
    expect(kvmem::Status::not_found, "publisher", [&] { return watcher.look_up("publisher", patience); });
    expect(kvmem::Status::timed_out, "publisher", [&] { return watcher.wait_for("publisher", std::chrono::milliseconds(1)); });
    publisher.publish(agent, {{"cache", &cache}}, patience);
    CHECK(watcher.wait_for("publisher", patience).info().version == 1);
    expect(kvmem::Status::invalid_argument, "", [&] { return watcher.connect(kvmem::Agent(), "publisher", patience); });
    CHECK(watcher.connect(reader, "publisher", patience).info().version == 1);
    std::array<kvmem::Completion, 1> space;
    CHECK(queue.wait_for(space, patience).size() == 1 && space[0].user_data == 7);
    watcher.report_events(nullptr);
    const auto first = expect_event(watcher, kvmem::DirectoryChange::published, 1);
    CHECK(kvmem::name(first.at(0).change) == std::string_view("published"));
    CHECK(kvmem::name(static_cast<kvmem::DirectoryChange>(99)) == std::string_view("unknown"));
    CHECK(cache.checksum({1, 2}) == cache.checksum(std::vector<std::uint32_t>{1, 2}));
    CHECK(cache.checksum({1}, patience).size() == 1);

    const auto entry = watcher.look_up("publisher", patience);
    watcher.check(entry, patience);
    const auto info = entry.info();
    CHECK(info.agent == "publisher" && info.version == 1 && info.layout_count == 1 && info.metadata.size() > 0);
    CHECK(info.incarnation != 0 && info.incarnation == first.at(0).incarnation);
    const auto published = entry.layout(0);
    const auto exported = cache.export_descriptor();
    const kvmem::Bytes bytes = exported;
    CHECK(published.name == "cache" && published.descriptor.size() == bytes.size());
    CHECK(std::memcmp(published.descriptor.data(), bytes.data(), bytes.size()) == 0);
    CHECK(error_of([&] { return entry.layout(1); }).status() == kvmem::Status::out_of_range);
    entry.load(reader);
    kvmem::OpenOptions opening;
    opening.agent = &reader;
    expect(kvmem::Status::not_found, "cache", [&] { return entry.open_layout("other", opening); });
    const auto remote = entry.open_layout("cache", opening);
    const kvmem::BlockPair pair = {1, 3};
    kvmem::SubmitOptions blocks;
    blocks.pairs = {&pair, 1};
    kvmem::Transfer::start(remote, own, {}, blocks).wait();
    CHECK(own.host_bytes(3, 1, 1)[0] == std::byte{0x5a});

    publisher.publish(agent, {}, patience);
    expect_event(watcher, kvmem::DirectoryChange::updated, 2);
    expect(kvmem::Status::stale, "version 2", [&] { watcher.check(entry, patience); });
    publisher.withdraw("publisher", patience);
    expect_event(watcher, kvmem::DirectoryChange::withdrawn, 2);
    expect(kvmem::Status::not_found, "not published", [&] { publisher.withdraw("publisher", patience); });
    publisher.publish(agent, {}, patience);
    publisher = kvmem::Directory();  // withdraws
    expect(kvmem::Status::not_found, "publisher", [&] { watcher.check(entry, patience); });
}

CASE(watches_end_and_waits_are_limited) {
    const Folder folder;
    const auto directory = folder.open();
    CHECK(directory.take_events(std::chrono::nanoseconds(0)).empty());
    directory.watch_all(patience);
    expect(kvmem::Status::not_found, "north", [&] { directory.unwatch("north", patience); });
    directory.unwatch_all(patience);
    expect(kvmem::Status::not_found, "", [&] { directory.unwatch_all(patience); });
}

CASE(options_that_contradict_each_other_are_refused) {
    const auto refused = [](std::string_view part, const kvmem::DirectoryOptions &options) {
        expect(kvmem::Status::invalid_argument, part, [&] { return kvmem::Directory::create(options); });
    };
    kvmem::DirectoryOptions folder, etcd;
    refused("folder or endpoints", folder);
    folder.folder = "/tmp";
    folder.lease = std::chrono::seconds(9);
    refused("lease_seconds", folder);
    folder.lease = std::chrono::seconds(0);
    folder.prefix = "x";
    refused("prefix", folder);
    etcd.endpoints = {"http://127.0.0.1:1"};
    // Neither is truncated to 32 bits.
    for (const auto lease : {std::chrono::seconds(-1), std::chrono::seconds((std::int64_t{1} << 32) + 5)}) {
        etcd.lease = lease;
        refused("lease_seconds", etcd);
    }
    etcd.lease = std::chrono::seconds(5);
    etcd.user = "x";
    refused("password", etcd);
    etcd.user = {};
    etcd.key_file = "x";
    refused("certificate_file", etcd);
    etcd.key_file = {};
    etcd.ca_file = "x";
    refused("https://", etcd);
    etcd.ca_file = {};
    etcd.endpoints = {std::string("http://a\0b", 10)};
    refused("an endpoint", etcd);
    etcd.endpoints = {"http://127.0.0.1:1"};
    etcd.password = std::string("a\0b", 3);
    refused("text of the options", etcd);
}

CASE(a_layout_that_is_published_with_a_broker_is_mapped) {
    const Folder folder;
    const auto agent = make_agent("publisher");
    kvmem::SystemOptions memory;
    memory.flags = kvmem::SystemFlag::shareable;
    const auto cache = kvmem::Layout::build(small_config(), memory, &agent);
    kvmem::BrokerOptions at;
    at.path = "/tmp/kvmem-cpp-broker-" + std::to_string(getpid());
    const auto broker = kvmem::Broker::create(at);
    const auto directory = folder.open();
    kvmem::NamedLayout offered{"cache", &cache, &broker, kvmem::ShareOptions{}};
    directory.publish(agent, {offered, {"plain", &cache}}, patience);
    const auto entry = directory.look_up("publisher", patience);
    kvmem::OpenOptions writable;
    writable.flags = kvmem::OpenFlag::read_write;
    const auto opened = entry.open_layout("cache", writable, patience);
    CHECK(opened.info().locality == kvmem::Locality::local);
    expect(kvmem::Status::unsupported, "with a broker", [&] { return entry.open_layout("plain"); });
    offered.share.reset(); // for reading only
    directory.publish(agent, {offered}, patience);
    const auto again = directory.look_up("publisher", patience);
    expect(kvmem::Status::permission_denied, "", [&] { return again.open_layout("cache", writable, patience); });
}

int main() { return run_cases(); }
