// SPDX-License-Identifier: Apache-2.0
/// Brokers: servers that publish shares by name.
#ifndef KVMEM_BROKER_HPP
#define KVMEM_BROKER_HPP

#include "share.hpp"

KVMEM_HPP_BEGIN

/// 256 secret bits, with which a client fetches a share.
using Token = kvmem_token;
using BrokerInfo = kvmem_broker_info;

/// kvmem_broker_options. The user ids are read during the call.
struct BrokerOptions {
    std::string path{};
    span<const std::uint32_t> users{};
    /// Zero: 10 seconds.
    std::chrono::nanoseconds client_timeout{0};
    std::uint64_t max_bytes_per_user = 0;
    std::uint32_t mode = 0;
    std::uint32_t max_clients = 0;
    std::uint32_t max_clients_per_user = 0;

    /// Valid as long as this object is not changed.
    kvmem_broker_options c() const noexcept {
        auto c = detail::defaults<kvmem_broker_options>();
        c.path = path.c_str();
        c.users = users.empty() ? nullptr : users.data();
        c.num_users = users.size();
        c.client_timeout_ns = detail::limit_ns(client_timeout);
        c.max_bytes_per_user = max_bytes_per_user;
        c.mode = mode;
        c.max_clients = max_clients;
        c.max_clients_per_user = max_clients_per_user;
        return c;
    }
};

/// kvmem_publish_options.
struct PublishOptions {
    Flags<PublishFlag> flags{};
    std::uint64_t max_uses = 0;
    /// Zero: as long as the name is published. Negative: the token has expired.
    std::chrono::nanoseconds lifetime{0};

    kvmem_publish_options c() const noexcept {
        auto c = detail::defaults<kvmem_publish_options>();
        c.flags = flags.bits();
        c.max_uses = max_uses;
        c.lifetime_ns = detail::limit_ns(lifetime);
        return c;
    }
};

/// kvmem_fetch_options.
struct FetchOptions {
    std::string path{};
    std::string name{};
    Token token{};
    Flags<FetchFlag> flags{};
    std::uint32_t broker_user = 0;

    /// Valid as long as this object is not changed.
    kvmem_fetch_options c() const noexcept {
        auto c = detail::defaults<kvmem_fetch_options>();
        c.flags = flags.bits();
        c.path = path.c_str();
        c.name = name.c_str();
        c.token = &token;
        c.broker_user = broker_user;
        return c;
    }
};

class Broker : public detail::Handle<kvmem_broker, kvmem_broker_destroy> {
public:
    using Handle::Handle;

    static Return<Broker> create(const BrokerOptions &options) {
        if (auto checked = detail::check_text(options.path, "path"); !checked) {
            return detail::give(Result<Broker>(checked.error()));
        }
        const auto c = options.c();
        return detail::give(detail::make<Broker>(kvmem_broker_create, &c));
    }

    /// Returns a token for the share.
    Return<Token> publish(std::string_view name, const Share &share, const PublishOptions &options = {}) {
        const auto c = options.c();
        return detail::give(detail::with_text(name, "the name", [&](const char *text) {
            return detail::get<Token>(kvmem_broker_publish, get(), text, share.get(), &c);
        }));
    }
    Return<Token> grant(std::string_view name, const PublishOptions &options = {}) {
        const auto c = options.c();
        return detail::give(detail::with_text(name, "the name", [&](const char *text) {
            return detail::get<Token>(kvmem_broker_grant, get(), text, &c);
        }));
    }
    Return<void> unpublish(std::string_view name) {
        return detail::give(detail::with_text(name, "the name", [&](const char *text) {
            return detail::run(kvmem_broker_unpublish, get(), text);
        }));
    }
    Return<BrokerInfo> info() const {
        return detail::give(detail::get<BrokerInfo>(kvmem_broker_get_info, get()));
    }
};

/// Fetches a share from a broker.
inline Return<Share> fetch_share(const FetchOptions &options, Timeout timeout = std::chrono::seconds(10)) {
    for (const std::string *text : {&options.path, &options.name}) {
        if (auto checked = detail::check_text(*text, "path or name"); !checked) {
            return detail::give(Result<Share>(checked.error()));
        }
    }
    const auto c = options.c();
    return detail::give(detail::make<Share>(kvmem_share_fetch, &c, timeout.ns()));
}

KVMEM_HPP_END

#endif
