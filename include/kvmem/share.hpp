// SPDX-License-Identifier: Apache-2.0
/// Shares: regions and layouts on their way to another process.
#ifndef KVMEM_SHARE_HPP
#define KVMEM_SHARE_HPP

#include "layout.hpp"

KVMEM_HPP_BEGIN

/// kvmem_share_options.
struct ShareOptions {
    Flags<ShareFlag> flags{};
    Transport transport = Transport::automatic;

    kvmem_share_options c() const noexcept {
        auto c = detail::defaults<kvmem_share_options>();
        c.flags = flags.bits();
        c.transport = static_cast<std::uint32_t>(transport);
        return c;
    }
};

/// kvmem_open_options.
struct OpenOptions {
    Flags<OpenFlag> flags{};
    const Agent *agent = nullptr;
    std::int32_t device = 0;

    kvmem_open_options c() const noexcept {
        auto c = detail::defaults<kvmem_open_options>();
        c.flags = flags.bits();
        c.agent = detail::get_or_null(agent);
        c.device = device;
        return c;
    }
};

/// kvmem_share_info. The fields declared here have types; tier has none if the share carries no memory.
struct ShareInfo : kvmem_share_info {
    ShareInfo() noexcept : kvmem_share_info() {}
    ShareInfo(const kvmem_share_info &c) noexcept
        : kvmem_share_info(c), object(Shared{c.object}), read_only(c.read_only != 0),
          transport(Transport{c.transport}) {
        if (c.tier != 0) tier = Tier{c.tier};
    }

    Shared object{};
    std::optional<Tier> tier{};
    bool read_only = false;
    Transport transport{};
};

class Share : public detail::Handle<kvmem_share, kvmem_share_destroy> {
public:
    using Handle::Handle;

    static Return<Share> create(const Region &region, const ShareOptions &options = {}) {
        const auto c = options.c();
        return detail::give(detail::make<Share>(kvmem_share_create_region, region.get(), &c));
    }
    static Return<Share> create(const Layout &layout, const ShareOptions &options = {}) {
        const auto c = options.c();
        return detail::give(detail::make<Share>(kvmem_share_create_layout, layout.get(), &c));
    }
    /// Creates a share from bytes() and the file descriptors of a share, which came over a channel of the
    /// caller.
    static Return<Share> create_received(Bytes bytes, span<const std::int32_t> fds) {
        return detail::give(detail::make<Share>(kvmem_share_create_received, bytes.data(), bytes.size(),
                                                fds.data(), fds.size()));
    }

    /// Sends the share over a Unix socket of the caller.
    Return<void> send(int socket, Timeout timeout = forever) const {
        return detail::give(detail::run(kvmem_share_send, get(), socket, timeout.ns()));
    }
    static Return<Share> receive(int socket, Timeout timeout = forever) {
        return detail::give(detail::make<Share>(kvmem_share_receive, socket, timeout.ns()));
    }

    /// The bytes for a channel of the caller, valid as long as the share.
    span<const std::byte> bytes() const noexcept {
        const auto c = info_in_c();
        return {static_cast<const std::byte *>(c.data), static_cast<std::size_t>(c.size)};
    }
    /// The file descriptors, which the share owns. Send them in this order.
    span<const std::int32_t> fds() const noexcept {
        const auto c = info_in_c();
        return {c.fds, static_cast<std::size_t>(c.num_fds)};
    }

    Return<Region> open_region(const OpenOptions &options = {}) const {
        const auto c = options.c();
        return detail::give(detail::make<Region>(kvmem_share_open_region, get(), &c));
    }
    Return<Layout> open_layout(const OpenOptions &options = {}) const {
        const auto c = options.c();
        return detail::give(detail::make<Layout>(kvmem_share_open_layout, get(), &c));
    }

    Return<ShareInfo> info() const {
        auto c = detail::get<kvmem_share_info>(kvmem_share_get_info, get());
        if (!c) return detail::give(Result<ShareInfo>(c.error()));
        return detail::give(Result<ShareInfo>(*c));
    }

private:
    /// Zero without a share.
    kvmem_share_info info_in_c() const noexcept {
        kvmem_share_info c{};
        kvmem_share_get_info(get(), &c, nullptr);
        return c;
    }
};

KVMEM_HPP_END

#endif
