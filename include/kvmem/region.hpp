// SPDX-License-Identifier: Apache-2.0
/// Regions: memory on one tier.
#ifndef KVMEM_REGION_HPP
#define KVMEM_REGION_HPP

#include "common.hpp"

#include <functional>

KVMEM_HPP_BEGIN

// ---- Options ----

/// Host memory: kvmem_system_options.
struct SystemOptions {
    std::uint64_t size = 0;
    Flags<SystemFlag> flags{};
    std::uint64_t huge_page_size = 0;
    std::uint32_t numa_node = 0;
    std::uint32_t prefault_threads = 0;

    kvmem_system_options c() const noexcept {
        auto c = detail::defaults<kvmem_system_options>();
        c.flags = flags.bits();
        c.size = size;
        c.huge_page_size = huge_page_size;
        c.numa_node = numa_node;
        c.prefault_threads = prefault_threads;
        return c;
    }
};

/// Page-locked host memory: kvmem_pinned_options.
struct PinnedOptions {
    std::uint64_t size = 0;
    std::int32_t device = 0;
    std::uint32_t threads = 0;
    Flags<PinnedFlag> flags{};
    std::uint32_t numa_node = 0;
    std::uint64_t chunk_size = 0;
    /// Called with bytes done and in total. Returns false to cancel. An exception cancels too, and the call
    /// that allocates throws it.
    std::function<bool(std::uint64_t done, std::uint64_t total)> progress{};

    /// Without progress and its user_data: create_pinned sets them.
    kvmem_pinned_options c() const noexcept {
        auto c = detail::defaults<kvmem_pinned_options>();
        c.flags = flags.bits();
        c.size = size;
        c.chunk_size = chunk_size;
        c.device = device;
        c.numa_node = numa_node;
        c.threads = threads;
        return c;
    }
};

/// GPU memory: kvmem_device_options.
struct DeviceOptions {
    std::uint64_t size = 0;
    std::int32_t device = 0;

    kvmem_device_options c() const noexcept {
        auto c = detail::defaults<kvmem_device_options>();
        c.size = size;
        c.device = device;
        return c;
    }
};

/// GPU memory that grows and shrinks: kvmem_elastic_options.
struct ElasticOptions {
    std::uint64_t size = 0;
    std::int32_t device = 0;
    std::uint64_t extent_size = 0;
    Flags<ElasticFlag> flags{};

    kvmem_elastic_options c() const noexcept {
        auto c = detail::defaults<kvmem_elastic_options>();
        c.flags = flags.bits();
        c.size = size;
        c.extent_size = extent_size;
        c.device = device;
        return c;
    }
};

/// A file: kvmem_disk_options.
struct DiskOptions {
    /// Not set: a temporary file.
    std::optional<std::string> path{};
    std::uint64_t size = 0;
    Flags<DiskFlag> flags{};
    std::optional<std::string> directory{};

    /// Valid as long as this object is not changed.
    kvmem_disk_options c() const noexcept {
        auto c = detail::defaults<kvmem_disk_options>();
        c.flags = flags.bits();
        c.size = size;
        c.path = detail::c_text(path);
        c.directory = detail::c_text(directory);
        return c;
    }
    Result<void> check() const {
        if (auto checked = detail::check_optional(path, "path"); !checked) return checked;
        return detail::check_optional(directory, "directory");
    }
};

/// Objects of an object store: kvmem_object_options.
struct ObjectOptions {
    std::string key_prefix{};
    std::uint64_t object_size = 0;
    std::uint64_t count = 0;

    /// Valid as long as this object is not changed.
    kvmem_object_options c() const noexcept {
        auto c = detail::defaults<kvmem_object_options>();
        c.key_prefix = key_prefix.c_str();
        c.object_size = object_size;
        c.count = count;
        return c;
    }
    Result<void> check() const { return detail::check_text(key_prefix, "key_prefix"); }
};

/// A part of a block device: kvmem_block_options.
struct BlockOptions {
    std::uint64_t device_id = 0;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::uint64_t alignment = 0;
    /// What the backend needs.
    std::vector<std::byte> metadata{};

    /// Valid as long as this object is not changed.
    kvmem_block_options c() const noexcept {
        auto c = detail::defaults<kvmem_block_options>();
        c.device_id = device_id;
        c.offset = offset;
        c.size = size;
        c.alignment = alignment;
        c.metadata = metadata.empty() ? nullptr : metadata.data();
        c.metadata_size = metadata.size();
        return c;
    }
};

/// Called once when kvmem no longer uses adopted memory, on a thread of kvmem. An exception that leaves it is
/// discarded: no caller is there to catch it.
using ReleaseCallback = std::function<void()>;

/// Memory of the caller: kvmem_adopt_options.
struct AdoptOptions {
    Flags<AdoptFlag> flags{};
    void *address = nullptr;
    std::uint64_t size = 0;
    ReleaseCallback release{};

    /// Without release and its user_data: the functions that adopt set them.
    kvmem_adopt_options c() const noexcept {
        auto c = detail::defaults<kvmem_adopt_options>();
        c.flags = flags.bits();
        c.address = address;
        c.size = size;
        return c;
    }
};

/// Part of a memory file: kvmem_adopt_memfd_options.
struct AdoptMemfdOptions {
    Flags<AdoptFlag> flags{};
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    void *address = nullptr;
    ReleaseCallback release{};
    std::int32_t fd = 0;

    /// Without release and its user_data: adopt_memfd sets them.
    kvmem_adopt_memfd_options c() const noexcept {
        auto c = detail::defaults<kvmem_adopt_memfd_options>();
        c.flags = flags.bits();
        c.offset = offset;
        c.size = size;
        c.address = address;
        c.fd = fd;
        return c;
    }
};

// ---- Information ----

/// kvmem_region_info. The fields declared here have types; the others are those of the C struct.
struct RegionInfo : kvmem_region_info {
    RegionInfo() noexcept : kvmem_region_info() {}
    RegionInfo(const kvmem_region_info &c) noexcept
        : kvmem_region_info(c), tier(Tier{c.tier}), origin(Origin{c.origin}),
          flags(Flags<RegionFlag>::from_bits(c.flags)) {}

    Tier tier{};
    Origin origin{};
    Flags<RegionFlag> flags{};
};

using RegionResidency = kvmem_region_residency;
using RegionHolders = kvmem_region_holders;

// ---- Callbacks ----

namespace detail {

// Passed through C as user_data; destroyed after its one call.
inline void call_release(void *user_data) noexcept {
    const std::unique_ptr<ReleaseCallback> callback(static_cast<ReleaseCallback *>(user_data));
#if KVMEM_HPP_EXCEPTIONS
    try {
        (*callback)();
    } catch (...) {
        // Nothing above this frame could catch it: kvmem is not C++.
    }
#else
    (*callback)();
#endif
}

struct Progress {
    const std::function<bool(std::uint64_t, std::uint64_t)> &callback;
#if KVMEM_HPP_EXCEPTIONS
    std::exception_ptr thrown{};
#endif
};

inline std::int32_t call_progress(std::uint64_t done, std::uint64_t total, void *user_data) noexcept {
    auto &progress = *static_cast<Progress *>(user_data);
#if KVMEM_HPP_EXCEPTIONS
    try {
        return progress.callback(done, total) ? 0 : 1;
    } catch (...) {
        progress.thrown = std::current_exception();
        return 1;
    }
#else
    return progress.callback(done, total) ? 0 : 1;
#endif
}

}  // namespace detail

// ---- Regions ----

class Region : public detail::Handle<kvmem_region, kvmem_region_destroy> {
public:
    using Handle::Handle;

    static Return<Region> create_system(const SystemOptions &options) {
        const auto c = options.c();
        return detail::give(detail::make<Region>(kvmem_region_create_system, &c));
    }

    /// An exception of the progress callback is thrown again, also with KVMEM_RESULTS.
    static Return<Region> create_pinned(const PinnedOptions &options) {
        auto c = options.c();
        detail::Progress progress{options.progress};
        if (options.progress) {
            c.progress = detail::call_progress;
            c.user_data = &progress;
        }
        auto region = detail::make<Region>(kvmem_region_create_pinned, &c);
#if KVMEM_HPP_EXCEPTIONS
        if (progress.thrown) std::rethrow_exception(progress.thrown);
#endif
        return detail::give(std::move(region));
    }

    static Return<Region> create_device(const DeviceOptions &options) {
        const auto c = options.c();
        return detail::give(detail::make<Region>(kvmem_region_create_device, &c));
    }

    static Return<Region> create_elastic(const ElasticOptions &options) {
        const auto c = options.c();
        return detail::give(detail::make<Region>(kvmem_region_create_elastic, &c));
    }

    static Return<Region> create_disk(const DiskOptions &options) {
        if (auto checked = options.check(); !checked) return detail::give(Result<Region>(checked.error()));
        const auto c = options.c();
        return detail::give(detail::make<Region>(kvmem_region_create_disk, &c));
    }

    static Return<Region> create_object(const ObjectOptions &options) {
        if (auto checked = options.check(); !checked) return detail::give(Result<Region>(checked.error()));
        const auto c = options.c();
        return detail::give(detail::make<Region>(kvmem_region_create_object, &c));
    }

    static Return<Region> create_block(const BlockOptions &options) {
        const auto c = options.c();
        return detail::give(detail::make<Region>(kvmem_region_create_block, &c));
    }

    static Return<Region> adopt_host(AdoptOptions options) {
        auto c = options.c();
        return detail::give(adopt(c, options.release, [](auto... arguments) {
            return detail::make<Region>(kvmem_region_adopt_host, arguments...);
        }));
    }

    /// The address is a device pointer.
    static Return<Region> adopt_device(AdoptOptions options, std::int32_t device) {
        auto c = options.c();
        return detail::give(adopt(c, options.release, [device](auto... arguments) {
            return detail::make<Region>(kvmem_region_adopt_device, arguments..., device);
        }));
    }

    static Return<Region> adopt_memfd(AdoptMemfdOptions options) {
        auto c = options.c();
        return detail::give(adopt(c, options.release, [](auto... arguments) {
            return detail::make<Region>(kvmem_region_adopt_memfd, arguments...);
        }));
    }

    Return<Region> create_view(std::uint64_t offset, std::uint64_t size) const {
        return detail::give(detail::make<Region>(kvmem_region_create_view, get(), offset, size));
    }

    Return<void> commit(std::uint64_t offset, std::uint64_t size) {
        return detail::give(detail::run(kvmem_region_commit, get(), offset, size));
    }
    Return<void> decommit(std::uint64_t offset, std::uint64_t size) {
        return detail::give(detail::run(kvmem_region_decommit, get(), offset, size));
    }

    Return<void> sync() const { return detail::give(detail::run(kvmem_region_sync, get())); }
    Return<std::string> path() const { return detail::give(detail::text(kvmem_region_get_path, get())); }
    Return<RegionInfo> info() const {
        auto c = detail::get<kvmem_region_info>(kvmem_region_get_info, get());
        if (!c) return detail::give(Result<RegionInfo>(c.error()));
        return detail::give(Result<RegionInfo>(*c));
    }
    /// The bytes of a region in host memory; empty for other tiers. Valid as long as the memory.
    Return<span<std::byte>> host_bytes() const {
        auto c = detail::get<kvmem_region_info>(kvmem_region_get_info, get());
        if (!c) return detail::give(Result<span<std::byte>>(c.error()));
        const bool host = c->tier == KVMEM_TIER_SYSTEM || c->tier == KVMEM_TIER_PINNED;
        span<std::byte> bytes;
        if (host) {
            bytes = {reinterpret_cast<std::byte *>(static_cast<std::uintptr_t>(c->address)),
                     static_cast<std::size_t>(c->size)};
        }
        return detail::give(Result<span<std::byte>>(bytes));
    }
    Return<RegionResidency> residency() const {
        return detail::give(detail::get<RegionResidency>(kvmem_region_get_residency, get()));
    }
    Return<RegionHolders> holders() const {
        return detail::give(detail::get<RegionHolders>(kvmem_region_get_holders, get()));
    }
    Return<void> check_owner() const {
        return detail::give(detail::run(kvmem_region_check_owner, get()));
    }
    /// Name of an agent that the region is registered with.
    Return<std::string> agent(std::size_t index) const;

private:
    // The callback belongs to kvmem if the call succeeds; otherwise it is destroyed here, without a call.
    template <typename Options, typename Adopt>
    static Result<Region> adopt(Options &c, ReleaseCallback &release, Adopt adopt) {
        std::unique_ptr<ReleaseCallback> owned;
        if (release) {
            owned = std::make_unique<ReleaseCallback>(std::move(release));
            c.release = detail::call_release;
            c.user_data = owned.get();
        }
        auto region = adopt(static_cast<const Options *>(&c));
        if (region) static_cast<void>(owned.release());
        return region;
    }
};

KVMEM_HPP_END

#endif
