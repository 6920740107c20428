// SPDX-License-Identifier: Apache-2.0
/// NIXL: agents, registrations, metadata, notifications.
#ifndef KVMEM_NIXL_HPP
#define KVMEM_NIXL_HPP

#include "descriptors.hpp"

KVMEM_HPP_BEGIN

// ---- The NIXL library ----

/// Loads NIXL from a file or directory; without one, from KVMEM_NIXL_LIBRARY of the environment, or from
/// where the loader finds it. Agent::create does it too.
inline Return<void> load_nixl() {
    return detail::give(detail::run(kvmem_nixl_load, static_cast<const char *>(nullptr)));
}
inline Return<void> load_nixl(std::string_view path) {
    return detail::give(detail::with_text(path, "path", [](const char *c) {
        return detail::run(kvmem_nixl_load, c);
    }));
}
/// Returns the path of the file that NIXL was loaded from.
inline Return<std::string> nixl_path() { return detail::give(detail::text(kvmem_nixl_get_path)); }

// ---- Registrations ----

/// kvmem_registration_info. The fields declared here have types.
struct RegistrationInfo : kvmem_registration_info {
    RegistrationInfo() noexcept : kvmem_registration_info() {}
    RegistrationInfo(const kvmem_registration_info &c) noexcept
        : kvmem_registration_info(c), memory_type(MemoryType{c.memory_type}), registered(c.registered != 0) {}

    MemoryType memory_type{};
    bool registered = false;
};

/// A region that is known to an agent: Agent::register_region.
class Registration : public detail::Handle<kvmem_registration, kvmem_registration_destroy> {
public:
    using Handle::Handle;

    Return<RegistrationInfo> info() const {
        auto c = detail::get<kvmem_registration_info>(kvmem_registration_get_info, get());
        if (!c) return detail::give(Result<RegistrationInfo>(c.error()));
        return detail::give(Result<RegistrationInfo>(*c));
    }
    /// Reports whether deregistering failed; the destructor does not.
    Return<void> deregister() { return detail::give(detail::run(kvmem_registration_deregister, get())); }
};

inline Return<std::string> Region::agent(std::size_t index) const {
    return detail::give(detail::text(kvmem_region_get_agent, get(), index));
}

// ---- Notifications ----

/// A message of another agent. Valid as long as its Notifications.
struct Notification {
    std::string_view agent{};
    span<const std::byte> bytes{};

    std::string_view text() const noexcept {
        return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
    }
};

namespace detail {
inline Notification notification_of(const kvmem_notification &c) {
    return {c.agent, {static_cast<const std::byte *>(c.data), c.size}};
}
}  // namespace detail

/// Messages that were taken from an agent.
using Notifications = detail::List<kvmem_notifications, kvmem_notifications_destroy, kvmem_notification,
                                   Notification, detail::notification_of>;

// ---- Agents ----

using AgentTelemetry = kvmem_agent_telemetry;

/// kvmem_agent_options. Delays are rounded up to microseconds; 0 is the default.
struct AgentOptions {
    Flags<AgentFlag> flags{};
    std::chrono::nanoseconds progress_delay{0};
    std::chrono::nanoseconds listen_delay{0};
    std::uint32_t listen_port = 0;
    SyncMode sync_mode = SyncMode::standard;
    /// Of calls without a timeout of their own. Zero: 10 minutes. nanoseconds::max(): no limit.
    std::chrono::nanoseconds call_timeout{0};

    kvmem_agent_options c() const noexcept {
        auto c = detail::defaults<kvmem_agent_options>();
        c.flags = flags.bits();
        c.progress_delay_ns = delay_ns(progress_delay);
        c.listen_delay_ns = delay_ns(listen_delay);
        c.listen_port = listen_port;
        c.sync_mode = static_cast<std::uint32_t>(sync_mode);
        c.call_timeout_ns = detail::limit_ns(call_timeout);
        return c;
    }

private:
    static std::uint64_t delay_ns(std::chrono::nanoseconds delay) noexcept {
        return delay.count() > 0 ? static_cast<std::uint64_t>(delay.count()) : 0;
    }
};

class Agent : public detail::Handle<kvmem_agent, kvmem_agent_destroy> {
public:
    using Handle::Handle;

    static Return<Agent> create(std::string_view name, const AgentOptions &options = {}) {
        const auto c = options.c();
        return detail::give(detail::with_text(name, "the name of the agent", [&](const char *text) {
            return detail::make<Agent>(kvmem_agent_create, text, &c);
        }));
    }

    /// Valid as long as this handle; empty if the handle is.
    std::string_view name() const noexcept {
        const char *const text = kvmem_agent_name(get());
        return text ? std::string_view(text) : std::string_view();
    }

    Return<void> create_backend(std::string_view plugin, const std::vector<Parameter> &parameters = {}) {
        std::vector<kvmem_parameter> c;
        for (const Parameter &one : parameters) {
            for (const std::string *text : {&one.key, &one.value}) {
                if (auto checked = detail::check_text(*text, "a parameter"); !checked) {
                    return detail::give(std::move(checked));
                }
            }
            c.push_back({one.key.c_str(), one.value.c_str()});
        }
        return detail::give(detail::with_text(plugin, "the name of the plugin", [&](const char *text) {
            return detail::run(kvmem_agent_create_backend, get(), text,
                               static_cast<const kvmem_parameter *>(c.data()), c.size());
        }));
    }

    /// Lists all plugins of NIXL; one that does not load has the reason.
    Return<Plugins> plugins() { return detail::give(detail::make<Plugins>(kvmem_agent_get_plugins, get())); }
    /// Lists the backends of this agent.
    Return<Plugins> backends() {
        return detail::give(detail::make<Plugins>(kvmem_agent_get_backends, get()));
    }

    Return<Registration> register_region(const Region &region) {
        return detail::give(detail::make<Registration>(kvmem_region_register, region.get(), get()));
    }
    Return<Segments> register_descriptors(Elements<Descriptor> descriptors, const NixlOptions &options = {}) {
        return detail::give(detail::with_descriptors(descriptors, options, [&](auto *c, auto count, auto *o) {
            return detail::make<Segments>(kvmem_segments_register, get(), c, count, o);
        }));
    }
    /// Asks a backend whether files, objects or memory exist.
    Return<Query> query(Elements<Descriptor> descriptors, const NixlOptions &options = {},
                        Timeout timeout = forever) {
        return detail::give(detail::with_descriptors(descriptors, options, [&](auto *c, auto count, auto *o) {
            return detail::make<Query>(kvmem_agent_query, get(), c, count, o, timeout.ns());
        }));
    }

    // ---- Metadata of peers ----

    Return<Blob> local_metadata() {
        return detail::give(detail::make<Blob>(kvmem_agent_get_local_metadata, get()));
    }
    /// Returns the name of the peer.
    Return<std::string> load_remote_metadata(Bytes metadata) {
        return detail::give(detail::text(kvmem_agent_load_remote_metadata, get(), metadata.data(),
                                         metadata.size()));
    }
    /// Whether the metadata of a peer is loaded.
    Return<bool> has_remote_metadata(std::string_view peer) {
        auto found = with_peer(peer, [&](const char *text) {
            return detail::run(kvmem_agent_check_remote_metadata, get(), text);
        });
        if (!found && found.status() != Status::not_found) return detail::give(Result<bool>(found.error()));
        return detail::give(Result<bool>(found.has_value()));
    }
    Return<void> invalidate_remote_metadata(std::string_view peer) {
        return detail::give(with_peer(peer, [&](const char *text) {
            return detail::run(kvmem_agent_invalidate_remote_metadata, get(), text, nullptr);
        }));
    }
    Return<void> fetch_remote_metadata(std::string_view peer, std::string_view address, std::uint32_t port,
                                       Timeout timeout = forever) {
        return detail::give(with_peer(peer, [&](const char *text) {
            return detail::with_text(address, "the address", [&](const char *at) {
                return detail::run(kvmem_agent_fetch_remote_metadata, get(), text, at, port, timeout.ns());
            });
        }));
    }
    /// Removes the metadata of all peers, and returns their number.
    Return<std::size_t> invalidate_all_remote_metadata() {
        return detail::give(detail::get<std::size_t>(kvmem_agent_invalidate_remote_metadata, get(), nullptr));
    }
    /// Asks a peer to remove the metadata of this agent.
    Return<void> invalidate_local_metadata(std::string_view address, std::uint32_t port) {
        return detail::give(detail::with_text(address, "the address", [&](const char *at) {
            return detail::run(kvmem_agent_invalidate_local_metadata, get(), at, port);
        }));
    }
    Return<Blob> partial_metadata(Elements<Descriptor> descriptors, const NixlOptions &options = {}) {
        return detail::give(detail::with_descriptors(descriptors, options, [&](auto *c, auto count, auto *o) {
            return detail::make<Blob>(kvmem_agent_get_partial_metadata, get(), c, count, o);
        }));
    }
    Return<void> send_partial_metadata(Elements<Descriptor> descriptors, std::string_view address,
                                       std::uint32_t port) {
        return detail::give(detail::with_text(address, "the address", [&](const char *at) {
            return detail::with_descriptors(descriptors, [&](auto *c, auto count) {
                return detail::run(kvmem_agent_send_partial_metadata, get(), c, count, at, port);
            });
        }));
    }
    /// Connects to a peer now, so that the first transfer need not.
    Return<void> connect(std::string_view peer, const NixlOptions &options = {}, Timeout timeout = forever) {
        return detail::give(with_peer(peer, [&](const char *text) {
            return detail::with_options(options, [&](const kvmem_nixl_options *c) {
                return detail::run(kvmem_agent_connect, get(), text, c, timeout.ns());
            });
        }));
    }
    Return<void> send_local_metadata(std::string_view address, std::uint32_t port) {
        return detail::give(detail::with_text(address, "the address", [&](const char *at) {
            return detail::run(kvmem_agent_send_local_metadata, get(), at, port);
        }));
    }

    /// What the agent has moved; it must have AgentFlag::telemetry.
    Return<AgentTelemetry> telemetry() {
        return detail::give(detail::get<AgentTelemetry>(kvmem_agent_get_telemetry, get()));
    }

    // ---- Notifications ----

    Return<void> notify(std::string_view peer, Bytes message) {
        return detail::give(with_peer(peer, [&](const char *text) {
            return detail::run(kvmem_agent_notify, get(), text, message.data(), message.size());
        }));
    }
    /// Has a queue report arrived messages; NULL ends the reports.
    Return<void> report_notifications(const Queue *queue, std::uint64_t user_data = 0) {
        return detail::give(detail::run(kvmem_agent_report_notifications, get(), detail::get_or_null(queue),
                                        user_data));
    }
    /// Waits until there is a message, and returns all that have arrived. Empty after the timeout. Fails once
    /// with Status::out_of_memory where messages were lost, because too many waited.
    Return<Notifications> take_notifications(Timeout timeout = forever) {
        auto taken = detail::make<Notifications>(kvmem_agent_take_notifications, get(), timeout.ns());
        if (taken.status() == Status::timed_out) taken = Notifications();
        return detail::give(std::move(taken));
    }

private:
    template <typename Then>
    static auto with_peer(std::string_view peer, Then then) -> decltype(then("")) {
        return detail::with_text(peer, "the name of the peer", then);
    }
};

KVMEM_HPP_END

#endif
