// SPDX-License-Identifier: Apache-2.0
// Calls of stores.
#include "calls.hpp"

#include <kvmem/store.hpp>

namespace {

constexpr std::size_t key_size = 32;

Results store_open(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    kvmem::StoreOptions options;
    SET_SHAPE(options.config);
    if (step.has("order")) options.config.order = step.text("order");
    options.path = world.path(step.text("path"));
    for (const std::string &value : step.list("values")) options.identity.push_back(split_pair(value));
    SET(options, max_size);
    options.durability = static_cast<kvmem::Durability>(step.word("durability", durabilities));
    options.eviction = static_cast<kvmem::Eviction>(step.word("eviction", evictions));
    options.flags = flags<kvmem::DiskFlag>(step, "flags", disk_flags);
    world.add(name, kvmem::Store::open(options));
    return {};
}

std::vector<unsigned char> key_bytes(const std::vector<std::uint64_t> &numbers) {
    std::vector<unsigned char> bytes;
    for (const std::uint64_t one : numbers) bytes.insert(bytes.end(), key_size, static_cast<unsigned char>(one));
    return bytes;
}

kvmem::StoreKeys keys_of(const std::vector<unsigned char> &bytes) { return {{bytes.data(), bytes.size()}, key_size}; }

Results store_open_namespace(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    std::vector<unsigned char> key;
    if (step.has("key")) key = key_bytes({step.number("key")});
    kvmem::StoreNamespaceOptions options;
    options.name = step.text("name");
    SET(options, quota);
    if (step.has("key")) options.key = {key.data(), key.size()};
    world.add(name, world.get<kvmem::Store>(step.text("store")).open_namespace(options));
    return {};
}

Results store_remove_namespace(const Step &step, World &world) {
    return {{"count", number(world.get<kvmem::Store>(step.name()).remove_namespace(step.text("name")))}};
}

template <typename Start>
Results move(const Step &step, World &world, Start start) {
    kvmem::TransferOptions options;
    SET_SELECTION(options);
    const auto keys = key_bytes(step.numbers("keys"));
    const auto blocks = ids(step, "blocks");
    std::vector<unsigned char> parent;
    if (step.has("parent")) parent = key_bytes({step.number("parent")});
    kvmem::StoreBlocks what;
    what.keys = keys_of(keys);
    what.blocks = blocks;
    what.parent = {parent.data(), parent.size()};
    what.flags = flags<kvmem::StoreFlag>(step, "store_flags", store_flags);
    auto run = start(world.get<kvmem::Store>(step.name()), world.get<kvmem::Layout>(step.text("layout")), what, options);
    if (run.transfer) run.transfer.wait();
    return {{"num_moved", number(run.num_moved)}};
}

Results store_put(const Step &step, World &world) {
    return move(step, world, [](auto &store, auto &layout, auto &what, auto &options) {
        return store.put(layout, what, options);
    });
}

Results store_get(const Step &step, World &world) {
    return move(step, world, [](auto &store, auto &layout, auto &what, auto &options) {
        return store.get_blocks(layout, what, options);
    });
}

Results store_contains(const Step &step, World &world) {
    const auto keys = key_bytes(step.numbers("keys"));
    std::string found;
    for (const bool is_stored : world.get<kvmem::Store>(step.name()).contains(keys_of(keys))) append(found, is_stored ? "1" : "0");
    return {{"found", found}};
}

Results store_remove(const Step &step, World &world) {
    const auto keys = key_bytes(step.numbers("keys"));
    return {{"count", number(world.get<kvmem::Store>(step.name()).remove(keys_of(keys)))}};
}

Results store_pin(const Step &step, World &world) {
    const auto keys = key_bytes(step.numbers("keys"));
    return {{"count", number(world.get<kvmem::Store>(step.name()).pin(keys_of(keys)))}};
}

Results store_unpin(const Step &step, World &world) {
    const auto keys = key_bytes(step.numbers("keys"));
    return {{"count", number(world.get<kvmem::Store>(step.name()).unpin(keys_of(keys)))}};
}

Results store_list(const Step &step, World &world) {
    std::vector<kvmem::StoreEntry> space(step.number("capacity"));
    std::string entries;
    for (const auto &entry : world.get<kvmem::Store>(step.name()).list(step.number("first_slot"), {space.data(), space.size()})) {
        const std::string parent = entry.parent_size == 0 ? "" : number(entry.parent[0]);
        append(entries, number(entry.key[0]) + ":" + parent + ":" + number(entry.is_pinned));
    }
    return {{"entries", entries}};
}

Results store_get_info(const Step &step, World &world) {
    const auto info = world.get<kvmem::Store>(step.name()).info();
    return {NUMBER(info, num_slots),  NUMBER(info, num_stored),  NUMBER(info, num_retired), NUMBER(info, num_hits),
            NUMBER(info, num_misses), NUMBER(info, num_evicted), NUMBER(info, num_damaged), WORD(info, durability, durabilities)};
}

}  // namespace

Calls store_calls() {
    return {
        {"store_open", store_open},
        {"store_open_namespace", store_open_namespace},
        {"store_remove_namespace", store_remove_namespace},
        {"store_put", store_put},
        {"store_get", store_get},
        {"store_contains", store_contains},
        {"store_remove", store_remove},
        {"store_pin", store_pin},
        {"store_unpin", store_unpin},
        {"store_list", store_list},
        {"store_get_info", store_get_info},
        {"store_flush", simply<kvmem::Store>([](auto &store, const Step &step) { store.flush(timeout(step)); })},
        {"store_verify", simply<kvmem::Store>([](auto &store, const Step &step) { store.verify(timeout(step)); })},
    };
}
