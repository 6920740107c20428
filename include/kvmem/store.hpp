// SPDX-License-Identifier: Apache-2.0
/// Stores: blocks under keys in a folder, which survive the process and a loss of power.
#ifndef KVMEM_STORE_HPP
#define KVMEM_STORE_HPP

#include "store.h"
#include "transfer.hpp"

KVMEM_HPP_BEGIN

/// kvmem_store_info. The durability is a type here; the other fields are those of the C struct.
struct StoreInfo : kvmem_store_info {
    StoreInfo() noexcept : kvmem_store_info() {}
    StoreInfo(const kvmem_store_info &c) noexcept
        : kvmem_store_info(c), durability(Durability{c.durability}) {}

    Durability durability{};
};

/// kvmem_store_entry.
using StoreEntry = kvmem_store_entry;

/// kvmem_store_options. An identity is pairs of a name and a value, in any bytes.
struct StoreOptions {
    std::string path{};
    LayoutConfig config{};
    std::vector<std::pair<std::string, std::string>> identity{};
    std::uint64_t max_size = 0;
    Durability durability = Durability::strict;
    Eviction eviction = Eviction::store;
    Flags<DiskFlag> flags{};
    /// Zero: one second.
    std::chrono::nanoseconds interval{0};

    Result<void> check() const {
        for (const auto &[name, value] : identity)
            if (auto checked = detail::check_text(name, "a name of identity"); !checked) return checked;
        if (auto checked = detail::check_text(path, "path"); !checked) return checked;
        return config.check();
    }
};

/// kvmem_store_namespace_options. The key is read during the call.
struct StoreNamespaceOptions {
    std::string name{};
    /// Bytes; 0 for that of an existing namespace.
    std::uint64_t quota = 0;
    /// 32 random bytes; not set for a namespace that is not encrypted. An empty one is refused.
    std::optional<span<const unsigned char>> key{};
};

/// Keys of one size, one after the other.
struct StoreKeys {
    span<const unsigned char> bytes{};
    std::size_t size = 0;

    std::size_t count() const noexcept { return size == 0 ? 0 : bytes.size() / size; }

    Result<void> check() const {
        if (count() * size == bytes.size()) return {};
        return Error(Status::invalid_argument,
                     "the keys have " + std::to_string(bytes.size()) +
                         " bytes, no multiple of their size, " + std::to_string(size));
    }
};

/// kvmem_store_blocks. Spans are read during the call.
struct StoreBlocks {
    StoreKeys keys{};
    Elements<std::uint32_t> blocks{};
    /// Key of the block before the first one; empty for none.
    span<const unsigned char> parent{};
    Flags<StoreFlag> flags{};
    std::uint64_t user_data = 0;
    /// Zero: no limit.
    std::chrono::nanoseconds run_timeout{0};

    kvmem_store_blocks c() const noexcept {
        auto c = detail::defaults<kvmem_store_blocks>();
        c.keys = keys.bytes.data();
        c.key_size = keys.size;
        c.num_keys = keys.count();
        c.blocks = blocks.data();
        c.num_blocks = blocks.size();
        c.parent = parent.empty() ? nullptr : parent.data();
        c.flags = flags.bits();
        c.user_data = user_data;
        c.run_timeout_ns = detail::limit_ns(run_timeout);
        return c;
    }

    // C reads as many bytes of the parent as a key has.
    Result<void> check() const {
        if (parent.empty() || parent.size() == keys.size) return keys.check();
        return Error(Status::invalid_argument,
                     "parent has " + std::to_string(parent.size()) +
                         " bytes; give as many as a key has, " + std::to_string(keys.size));
    }
};

/// What a put or a get has started. The transfer is empty if nothing is to be moved.
struct StoreRun {
    Transfer transfer{};
    std::size_t num_moved = 0;
};

/// Blocks under keys in a folder, or in a namespace of a store.
class Store : public detail::Handle<kvmem_store, kvmem_store_destroy> {
public:
    using Handle::Handle;

    static Return<Store> open(const StoreOptions &options, Timeout timeout = forever) {
        if (auto checked = options.check(); !checked) return detail::give(Result<Store>(checked.error()));
        const auto config = options.config.c();
        std::vector<kvmem_store_value> values;
        for (const auto &[name, value] : options.identity)
            values.push_back({name.c_str(), value.data(), value.size()});
        auto c = detail::defaults<kvmem_store_options>();
        c.path = options.path.c_str();
        c.config = &config;
        c.identity = values.empty() ? nullptr : values.data();
        c.num_values = values.size();
        c.max_size = options.max_size;
        c.durability = static_cast<std::uint32_t>(options.durability);
        c.eviction = static_cast<std::uint32_t>(options.eviction);
        c.flags = options.flags.bits();
        c.interval_ns = detail::limit_ns(options.interval);
        return detail::give(detail::make<Store>(kvmem_store_open, &c, timeout.ns()));
    }

    /// Opens a namespace, or creates it: a store whose calls find its own blocks only. It keeps this store
    /// open.
    Return<Store> open_namespace(const StoreNamespaceOptions &options, Timeout timeout = forever) {
        if (auto checked = detail::check_text(options.name, "name"); !checked)
            return detail::give(Result<Store>(checked.error()));
        auto c = detail::defaults<kvmem_store_namespace_options>();
        c.name = options.name.c_str();
        c.quota = options.quota;
        if (options.key) {
            c.key = options.key->empty() ? "" : static_cast<const void *>(options.key->data());
            c.key_size = options.key->size();
        }
        return detail::give(detail::make<Store>(kvmem_store_open_namespace, get(), &c, timeout.ns()));
    }
    /// Removes a namespace. Returns the number of its blocks.
    Return<std::uint64_t> remove_namespace(const std::string &name, Timeout timeout = forever) {
        return detail::give(detail::with_text(name, "name", [&](const char *text) {
            return detail::get<std::uint64_t>(kvmem_store_remove_namespace, get(), text, timeout.ns());
        }));
    }

    /// Returns what a store is and contains, as text for people.
    static Return<std::string> describe(const std::string &path) {
        return detail::give(detail::with_text(path, "path", [](const char *text) {
            return detail::text(kvmem_store_describe, text);
        }));
    }

    // C++ has get() for the handle, so the call of C is get_blocks().
    [[nodiscard]] Return<StoreRun> put(const Layout &source, const StoreBlocks &blocks,
                                       const TransferOptions &options = {}) {
        return detail::give(start(kvmem_store_put, source, blocks, options));
    }
    [[nodiscard]] Return<StoreRun> get_blocks(const Layout &destination, const StoreBlocks &blocks,
                                              const TransferOptions &options = {}) {
        return detail::give(start(kvmem_store_get, destination, blocks, options));
    }

    /// Returns for each key whether it is stored.
    Return<std::vector<bool>> contains(const StoreKeys &keys) const {
        if (auto checked = keys.check(); !checked)
            return detail::give(Result<std::vector<bool>>(checked.error()));
        std::vector<std::uint8_t> found(keys.count());
        auto done = detail::run(kvmem_store_contains, get(), keys.bytes.data(), keys.size, keys.count(),
                                found.data());
        if (!done) return detail::give(Result<std::vector<bool>>(done.error()));
        return detail::give(Result<std::vector<bool>>(std::vector<bool>(found.begin(), found.end())));
    }
    /// Returns the number of blocks that were stored.
    Return<std::uint64_t> remove(const StoreKeys &keys, Timeout timeout = forever) {
        return detail::give(counted(kvmem_store_remove, keys, timeout.ns()));
    }
    Return<std::uint64_t> pin(const StoreKeys &keys) {
        return detail::give(counted(kvmem_store_pin, keys));
    }
    Return<std::uint64_t> unpin(const StoreKeys &keys) {
        return detail::give(counted(kvmem_store_unpin, keys));
    }

    /// Returns stored blocks in slots from `first_slot` on, at most as many as the array holds.
    Return<span<StoreEntry>> list(std::uint64_t first_slot, span<StoreEntry> entries) const {
        auto count = detail::get<std::size_t>(kvmem_store_list, get(), first_slot, entries.data(),
                                              entries.size());
        if (!count) return detail::give(Result<span<StoreEntry>>(count.error()));
        return detail::give(Result<span<StoreEntry>>(entries.first(*count)));
    }

    Return<StoreInfo> info() const {
        auto c = detail::get<kvmem_store_info>(kvmem_store_get_info, get());
        if (!c) return detail::give(Result<StoreInfo>(c.error()));
        return detail::give(Result<StoreInfo>(StoreInfo(*c)));
    }
    Return<void> flush(Timeout timeout = forever) {
        return detail::give(detail::run(kvmem_store_flush, get(), timeout.ns()));
    }
    /// Returns the number of damaged blocks, which are no longer stored.
    Return<std::uint64_t> verify(Timeout timeout = forever) {
        return detail::give(detail::get<std::uint64_t>(kvmem_store_verify, get(), timeout.ns()));
    }

private:
    template <typename Function, typename... Rest>
    Result<std::uint64_t> counted(Function function, const StoreKeys &keys, Rest... rest) {
        if (auto checked = keys.check(); !checked) return checked.error();
        return detail::get<std::uint64_t>(function, get(), keys.bytes.data(), keys.size, keys.count(),
                                          rest...);
    }

    template <typename Function>
    Result<StoreRun> start(Function function, const Layout &layout, const StoreBlocks &blocks,
                           const TransferOptions &options) {
        if (auto checked = blocks.check(); !checked) return checked.error();
        const detail::TransferOptionsInC c(options);
        const auto what = blocks.c();
        kvmem_transfer *transfer = nullptr;
        auto moved = detail::get<std::size_t>(function, get(), layout.get(), &c.c, &what, &transfer);
        if (!moved) return moved.error();
        StoreRun started;
        started.transfer = Transfer(transfer);
        started.num_moved = *moved;
        return started;
    }
};

KVMEM_HPP_END

#endif
