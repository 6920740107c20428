// SPDX-License-Identifier: Apache-2.0
/// Layouts: where each block is located.
#ifndef KVMEM_LAYOUT_HPP
#define KVMEM_LAYOUT_HPP

#include "nixl.hpp"

KVMEM_HPP_BEGIN

// ---- Shape ----

/// Shape of a KV cache: kvmem_layout_config.
struct LayoutConfig {
    std::uint64_t num_blocks = 0;
    std::uint64_t num_layers = 0;
    std::uint64_t outer_dim = 0;
    std::uint64_t page_size = 0;
    std::uint64_t inner_dim = 0;
    std::uint64_t dtype_width = 0;
    /// KVMEM_ORDER_*, or any other order of axes, such as "L/BHNOC".
    std::string order{};
    std::uint64_t num_heads = 0;
    std::uint64_t alignment = 0;
    std::uint64_t block_stride = 0;
    std::uint64_t layer_stride = 0;
    std::uint64_t outer_stride = 0;
    std::uint64_t token_stride = 0;
    std::uint64_t head_stride = 0;
    std::uint64_t element_stride = 0;
    /// What the blocks contain, such as the model and the data type, in any bytes.
    std::string identity{};

    /// Valid as long as this object is not changed.
    kvmem_layout_config c() const noexcept {
        auto c = detail::defaults<kvmem_layout_config>();
        c.num_blocks = num_blocks;
        c.num_layers = num_layers;
        c.outer_dim = outer_dim;
        c.page_size = page_size;
        c.inner_dim = inner_dim;
        c.dtype_width = dtype_width;
        c.alignment = alignment;
        c.num_heads = num_heads;
        c.order = order.empty() ? nullptr : order.c_str();
        c.block_stride = block_stride;
        c.layer_stride = layer_stride;
        c.outer_stride = outer_stride;
        c.token_stride = token_stride;
        c.head_stride = head_stride;
        c.element_stride = element_stride;
        c.identity = identity.empty() ? nullptr : identity.data();
        c.identity_size = identity.size();
        return c;
    }
    Result<void> check() const { return detail::check_text(order, "order"); }
};

using LayoutRequirements = kvmem_layout_requirements;

/// Returns the memory that a shape needs. Allocates nothing.
inline Return<LayoutRequirements> layout_requirements(const LayoutConfig &config) {
    if (auto checked = config.check(); !checked) {
        return detail::give(Result<LayoutRequirements>(checked.error()));
    }
    const auto c = config.c();
    return detail::give(detail::get<LayoutRequirements>(kvmem_layout_get_requirements, &c));
}

// ---- Information ----

/// kvmem_serve_options.
struct ServeOptions {
    Flags<ServeFlag> flags{};
    /// Bytes of staging memory; 0 for 16 MiB, or 64 MiB in GPU memory.
    std::uint64_t staging_size = 0;
    /// Time that the owner waits for a peer that neither reads nor writes, before it ends the session;
    /// 0 for 30 s.
    std::chrono::nanoseconds stall_timeout{0};
    /// Time after which a lease of a peer ends at the latest, unless the peer renews it; 0 for 60 s.
    std::chrono::nanoseconds max_lease{0};

    kvmem_serve_options c() const noexcept {
        auto c = detail::defaults<kvmem_serve_options>();
        c.flags = flags.bits();
        c.staging_size = staging_size;
        c.stall_timeout_ns = detail::limit_ns(stall_timeout);
        c.max_lease_ns = detail::limit_ns(max_lease);
        return c;
    }
};

/// kvmem_layout_info. The fields declared here have types; the others are those of the C struct. The bases
/// are valid as long as the layout.
struct LayoutInfo : kvmem_layout_info {
    LayoutInfo() noexcept : kvmem_layout_info() {}
    LayoutInfo(const kvmem_layout_info &c)
        : kvmem_layout_info(c), tier(Tier{c.tier}), locality(Locality{c.locality}),
          memory_type(MemoryType{c.memory_type}), order(c.order),
          identity(c.identity ? static_cast<const char *>(c.identity) : "", c.identity_size),
          agent(c.agent ? c.agent : "") {
        for (std::uint32_t i = 0; i < c.num_parts; ++i) part_names.emplace_back(c.part_names[i]);
    }

    Tier tier{};
    Locality locality{};
    MemoryType memory_type{};
    std::string order{};
    std::string identity{};
    /// "" for none.
    std::string agent{};
    std::vector<std::string> part_names{};
};

/// A contiguous range: its address and its size.
using BlockRange = kvmem_block;

/// kvmem_block_access.
struct BlockAccess {
    BlockAccess(const kvmem_block_access &c)
        : block(c.block), accessor(Accessor{c.accessor}), reads(c.reads != 0), writes(c.writes != 0),
          user_data(c.user_data), remaining(detail::remaining(c.remaining_ns)), pid(c.pid), agent(c.agent) {}

    std::uint32_t block;
    Accessor accessor;
    bool reads;
    bool writes;
    /// That of a run.
    std::uint64_t user_data;
    /// The time until a lease ends; none if it has no end. 0 for others.
    std::optional<std::chrono::nanoseconds> remaining;
    /// That of a peer, or of the holder of a lease.
    std::uint32_t pid;
    /// That of a peer, or of a peer's lease.
    std::string agent;
};

/// kvmem_lease_options.
struct LeaseOptions {
    Flags<LeaseFlag> flags{};
    /// 0: the lease ends when it is destroyed, or of a remote layout after as long as its owner keeps leases.
    std::chrono::nanoseconds duration{0};
    /// Time in which the owner of a remote layout must reply; 0 for 5 s.
    std::chrono::nanoseconds timeout{0};

    kvmem_lease_options c() const noexcept {
        auto c = detail::defaults<kvmem_lease_options>();
        c.flags = flags.bits();
        c.duration_ns = detail::limit_ns(duration);
        c.timeout_ns = detail::limit_ns(timeout);
        return c;
    }
};

/// A lease of blocks: Layout::lease.
class Lease : public detail::Handle<kvmem_lease, kvmem_lease_destroy> {
public:
    using Handle::Handle;

    /// Has it end after a duration from now on; 0: when it is destroyed.
    Return<void> renew(std::chrono::nanoseconds duration) {
        return detail::give(detail::run(kvmem_lease_renew, get(), detail::limit_ns(duration)));
    }
    /// Returns the time until it ends: 0 if it is over, none if it ends when it is destroyed.
    Return<std::optional<std::chrono::nanoseconds>> remaining() const {
        using Remaining = std::optional<std::chrono::nanoseconds>;
        auto found = detail::get<std::uint64_t>(kvmem_lease_get_remaining, get());
        if (!found) return detail::give(Result<Remaining>(found.error()));
        return detail::give(Result<Remaining>(detail::remaining(*found)));
    }
};

// ---- Layouts ----

class Layout;

/// A layout that becomes a part of another one: kvmem_layout_part.
struct LayoutPart {
    std::string name{};
    const Layout *layout = nullptr;
};

class Layout : public detail::Handle<kvmem_layout, kvmem_layout_destroy> {
public:
    using Handle::Handle;

    /// Allocates memory of the tier of the options, whose size stays 0, and builds a layout on it. With an
    /// agent, peers can access the layout.
    static Return<Layout> build(const LayoutConfig &config, const SystemOptions &memory,
                                const Agent *agent = nullptr) {
        return allocate(config, memory, &kvmem_layout_options::system, agent);
    }
    static Return<Layout> build(const LayoutConfig &config, const DiskOptions &memory,
                                const Agent *agent = nullptr) {
        if (auto checked = memory.check(); !checked) return detail::give(Result<Layout>(checked.error()));
        return allocate(config, memory, &kvmem_layout_options::disk, agent);
    }
    /// The progress callback is not called for a layout.
    static Return<Layout> build(const LayoutConfig &config, const PinnedOptions &memory,
                                const Agent *agent = nullptr) {
        return allocate(config, memory, &kvmem_layout_options::pinned, agent);
    }
    static Return<Layout> build(const LayoutConfig &config, const DeviceOptions &memory,
                                const Agent *agent = nullptr) {
        return allocate(config, memory, &kvmem_layout_options::device, agent);
    }
    static Return<Layout> build(const LayoutConfig &config, const ElasticOptions &memory,
                                const Agent *agent = nullptr) {
        return allocate(config, memory, &kvmem_layout_options::elastic, agent);
    }

    /// Builds a layout on regions of the caller. The layout keeps their memory; the handles may be destroyed.
    static Return<Layout> build(const LayoutConfig &config, span<const Region> regions,
                                const Agent *agent = nullptr) {
        const auto handles = handles_of<kvmem_region *>(regions);
        auto options = prepare(agent, KVMEM_LAYOUT_REGIONS);
        options.regions = handles.data();
        options.count = handles.size();
        return finish(config, options);
    }
    static Return<Layout> build(const LayoutConfig &config, const Region &region,
                                const Agent *agent = nullptr) {
        return build(config, span<const Region>(&region, 1), agent);
    }
    /// Builds a layout on regions that are registered.
    static Return<Layout> build(const LayoutConfig &config, span<const Registration> registrations) {
        const auto handles = handles_of<kvmem_registration *>(registrations);
        auto options = prepare(nullptr, KVMEM_LAYOUT_REGISTRATIONS);
        options.registrations = handles.data();
        options.count = handles.size();
        return finish(config, options);
    }

    /// Combines layouts that share block ids: `Layout::combine({{"data", &data}, {"scales", &scales}})`.
    static Return<Layout> combine(const std::vector<LayoutPart> &parts) {
        std::vector<kvmem_layout_part> c;
        for (const LayoutPart &part : parts) {
            if (auto checked = detail::check_text(part.name, "the name of a part"); !checked) {
                return detail::give(Result<Layout>(checked.error()));
            }
            c.push_back({part.name.c_str(), detail::get_or_null(part.layout)});
        }
        return detail::give(detail::make<Layout>(kvmem_layout_combine,
                                                 static_cast<const kvmem_layout_part *>(c.data()), c.size()));
    }
    Return<Layout> part(std::string_view name) const {
        return detail::give(detail::with_text(name, "the name of the part", [&](const char *text) {
            return detail::make<Layout>(kvmem_layout_get_part, get(), text);
        }));
    }

    /// Creates the layout of a peer from what export_descriptor returned there.
    static Return<Layout> import_descriptor(const Agent &agent, Bytes descriptor) {
        return detail::give(detail::make<Layout>(kvmem_layout_import, agent.get(), descriptor.data(),
                                                 descriptor.size()));
    }
    /// Creates a layout over raw memory of a peer, with one descriptor per region.
    static Return<Layout> create_remote(const Agent &agent, std::string_view owner,
                                        const LayoutConfig &config, Elements<Descriptor> descriptors) {
        if (auto checked = config.check(); !checked) return detail::give(Result<Layout>(checked.error()));
        const auto shape = config.c();
        return detail::give(detail::with_text(owner, "the name of the owner", [&](const char *text) {
            return detail::with_descriptors(descriptors, [&](auto *c, auto count) {
                return detail::make<Layout>(kvmem_layout_create_remote, agent.get(), text, &shape, c, count);
            });
        }));
    }
    Return<Blob> export_descriptor() const {
        return detail::give(detail::make<Blob>(kvmem_layout_export, get()));
    }
    /// Serves transfers of the layout to peers, as long as it exists.
    Return<void> serve(const ServeOptions &options = {}) {
        const auto c = options.c();
        return detail::give(detail::run(kvmem_layout_serve, get(), &c));
    }
    Return<void> resize(std::uint64_t num_blocks) {
        return detail::give(detail::run(kvmem_layout_resize, get(), num_blocks));
    }
    Return<BlockRange> block(std::uint32_t block, std::uint64_t layer, std::uint64_t outer) const {
        return detail::give(detail::get<BlockRange>(kvmem_layout_get_block, get(), block, layer, outer));
    }
    Return<BlockRange> row(std::uint32_t block, std::uint64_t layer, std::uint64_t outer, std::uint64_t token,
                           std::uint64_t head) const {
        return detail::give(detail::get<BlockRange>(kvmem_layout_get_row, get(), block, layer, outer, token,
                                                    head));
    }
    /// Returns the bytes of one block in one layer and outer slot of a layout in host memory. Fails with
    /// UNSUPPORTED for GPU memory, for files, and for layouts of a peer.
    Return<span<std::byte>> host_bytes(std::uint32_t block, std::uint64_t layer, std::uint64_t outer) const {
        auto c = detail::get<kvmem_layout_info>(kvmem_layout_get_info, get());
        if (!c) return detail::give(Result<span<std::byte>>(c.error()));
        const bool host = c->tier == KVMEM_TIER_SYSTEM || c->tier == KVMEM_TIER_PINNED;
        if (!host || c->locality == KVMEM_LOCALITY_REMOTE) {
            return detail::give(Result<span<std::byte>>(
                Error(Status::unsupported, "the layout is not in host memory of this process; "
                                           "a transfer can copy its blocks there")));
        }
        auto range = detail::get<kvmem_block>(kvmem_layout_get_block, get(), block, layer, outer);
        if (!range) return detail::give(Result<span<std::byte>>(range.error()));
        auto *first = reinterpret_cast<std::byte *>(static_cast<std::uintptr_t>(range->address));
        const span<std::byte> bytes(first, static_cast<std::size_t>(range->size));
        return detail::give(Result<span<std::byte>>(bytes));
    }
    /// Returns one CRC32C per block.
    Return<std::vector<std::uint32_t>> checksum(Elements<std::uint32_t> blocks) const {
        return checksum(blocks, Timeout::forever());
    }
    /// The same with a timeout. Fails with TIMED_OUT if not all checksums are computed by then.
    Return<std::vector<std::uint32_t>> checksum(Elements<std::uint32_t> blocks, Timeout timeout) const {
        std::vector<std::uint32_t> checksums(blocks.size());
        auto done = detail::run(kvmem_layout_checksum, get(), blocks.data(), blocks.size(),
            timeout.ns(), checksums.data());
        if (!done) return detail::give(Result<std::vector<std::uint32_t>>(done.error()));
        return detail::give(Result<std::vector<std::uint32_t>>(std::move(checksums)));
    }
    /// Gives each block an epoch, in a new table of zeros.
    Return<void> create_epochs() {
        kvmem_region *none = nullptr;
        return detail::give(detail::run(kvmem_layout_create_epochs, get(), none));
    }
    /// The same in a region of the caller, which keeps its contents.
    Return<void> create_epochs(Region &table) {
        return detail::give(detail::run(kvmem_layout_create_epochs, get(), detail::get_or_null(&table)));
    }
    /// Adds 1 to the epochs of some blocks. Returns the new ones.
    Return<std::vector<std::uint64_t>> raise_epochs(Elements<std::uint32_t> blocks) const {
        return epochs_by(kvmem_layout_raise_epochs, blocks);
    }
    /// Returns the current epochs of some blocks.
    Return<std::vector<std::uint64_t>> epochs(Elements<std::uint32_t> blocks) const {
        return epochs_by(kvmem_layout_get_epochs, blocks);
    }
    /// Returns which of some blocks may still be read or written, and by whom; none if it is empty.
    Return<std::vector<BlockAccess>> accesses(Elements<std::uint32_t> blocks) const {
        auto found = detail::list<kvmem_block_access>(
            kvmem_layout_get_accesses, get(), blocks.data(), blocks.size());
        if (!found) return detail::give(Result<std::vector<BlockAccess>>(found.error()));
        return detail::give(
            Result<std::vector<BlockAccess>>(std::vector<BlockAccess>(found->begin(), found->end())));
    }
    /// Leases blocks of memory that is mapped here, or that its owner serves, so that the owner sees who uses
    /// them.
    Return<Lease> lease(Elements<std::uint32_t> blocks, const LeaseOptions &options = {}) const {
        const auto c = options.c();
        return detail::give(detail::make<Lease>(kvmem_lease_create, get(), blocks.data(), blocks.size(), &c));
    }
    Return<LayoutInfo> info() const {
        auto c = detail::get<kvmem_layout_info>(kvmem_layout_get_info, get());
        if (!c) return detail::give(Result<LayoutInfo>(c.error()));
        return detail::give(Result<LayoutInfo>(LayoutInfo(*c)));
    }
    Return<Region> region(std::size_t index) const {
        return detail::give(detail::make<Region>(kvmem_layout_get_region, get(), index));
    }

private:
    template <typename Function>
    Return<std::vector<std::uint64_t>> epochs_by(Function function, Elements<std::uint32_t> blocks) const {
        std::vector<std::uint64_t> epochs(blocks.size());
        auto done = detail::run(function, get(), blocks.data(), blocks.size(), epochs.data());
        if (!done) return detail::give(Result<std::vector<std::uint64_t>>(done.error()));
        return detail::give(Result<std::vector<std::uint64_t>>(std::move(epochs)));
    }

    static kvmem_layout_options prepare(const Agent *agent, std::uint32_t source) noexcept {
        auto options = detail::defaults<kvmem_layout_options>();
        options.agent = detail::get_or_null(agent);
        options.source = source;
        return options;
    }

    static Return<Layout> finish(const LayoutConfig &config, kvmem_layout_options &options) {
        if (auto checked = config.check(); !checked) return detail::give(Result<Layout>(checked.error()));
        const auto shape = config.c();
        options.config = &shape;
        return detail::give(
            detail::make<Layout>(kvmem_layout_build, static_cast<const kvmem_layout_options *>(&options)));
    }

    template <typename Memory, typename C>
    static Return<Layout> allocate(const LayoutConfig &config, const Memory &memory,
                                   const C *kvmem_layout_options::*tier, const Agent *agent) {
        const C c = memory.c();
        auto options = prepare(agent, KVMEM_LAYOUT_ALLOCATE);
        options.*tier = &c;
        return finish(config, options);
    }

    template <typename Pointer, typename Owner>
    static std::vector<Pointer> handles_of(span<const Owner> owners) {
        std::vector<Pointer> handles;
        handles.reserve(owners.size());
        for (const Owner &owner : owners) handles.push_back(owner.get());
        return handles;
    }
};

KVMEM_HPP_END

#endif
