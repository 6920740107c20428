// SPDX-License-Identifier: Apache-2.0
/// Directories: agents are published and found by name.
#ifndef KVMEM_DIRECTORY_HPP
#define KVMEM_DIRECTORY_HPP

#include "broker.hpp"

#include <limits>

KVMEM_HPP_BEGIN

/// Returns the name of a change, such as "published".
inline const char *name(DirectoryChange change) noexcept {
    switch (change) {
    case DirectoryChange::published: return "published";
    case DirectoryChange::restarted: return "restarted";
    case DirectoryChange::updated: return "updated";
    case DirectoryChange::withdrawn: return "withdrawn";
    case DirectoryChange::invalid: return "invalid";
    case DirectoryChange::superseded: return "superseded";
    case DirectoryChange::interrupted: return "interrupted";
    case DirectoryChange::resumed: return "resumed";
    case DirectoryChange::restored: return "restored";
    case DirectoryChange::full: return "full";
    }
    return "unknown";
}

/// An event. Valid as long as its DirectoryEvents.
struct DirectoryEvent {
    DirectoryChange change{};
    /// Empty for `interrupted`, `resumed` and `full`.
    std::string_view agent{};
    std::uint64_t incarnation = 0;
    std::uint64_t version = 0;
    Status status = Status::ok;
    std::string_view message{};
};

namespace detail {
inline DirectoryEvent event_of(const kvmem_directory_event &c) {
    return {DirectoryChange{c.kind}, c.agent, c.incarnation, c.version, Status{c.status}, c.message};
}
}  // namespace detail

/// Events that were taken from a directory.
using DirectoryEvents =
    detail::List<kvmem_directory_events, kvmem_directory_events_destroy, kvmem_directory_event,
                 DirectoryEvent, detail::event_of>;

/// A layout in an entry. Valid as long as its DirectoryEntry.
struct PublishedLayout {
    std::string_view name{};
    span<const std::byte> descriptor{};
};

/// kvmem_directory_entry_info. Valid as long as its DirectoryEntry.
struct DirectoryEntryInfo {
    std::string_view agent{};
    std::uint64_t incarnation = 0;
    std::uint64_t version = 0;
    span<const std::byte> metadata{};
    std::size_t layout_count = 0;
};

/// The entry of an agent when it was looked up.
class DirectoryEntry : public detail::Handle<kvmem_directory_entry, kvmem_directory_entry_destroy> {
public:
    using Handle::Handle;

    Return<DirectoryEntryInfo> info() const {
        auto c = detail::get<kvmem_directory_entry_info>(kvmem_directory_entry_get_info, get());
        if (!c) return detail::give(Result<DirectoryEntryInfo>(c.error()));
        const DirectoryEntryInfo info = {c->agent, c->incarnation, c->version,
                                         {static_cast<const std::byte *>(c->metadata), c->metadata_size},
                                         c->layout_count};
        return detail::give(Result<DirectoryEntryInfo>(info));
    }
    /// Fails with out_of_range if there is no such layout.
    Return<PublishedLayout> layout(std::size_t index) const {
        auto c = detail::get<kvmem_directory_entry_info>(kvmem_directory_entry_get_info, get());
        if (!c) return detail::give(Result<PublishedLayout>(c.error()));
        if (index >= c->layout_count) {
            const auto message = "the entry has " + std::to_string(c->layout_count) + " layouts";
            return detail::give(Result<PublishedLayout>(Error(Status::out_of_range, message)));
        }
        const kvmem_published_layout &layout = c->layouts[index];
        const PublishedLayout one = {layout.name,
                                     {static_cast<const std::byte *>(layout.descriptor), layout.size}};
        return detail::give(Result<PublishedLayout>(one));
    }
    /// Loads the metadata, so that an agent can access the memory of the agent that published it.
    Return<void> load(const Agent &agent) const {
        return detail::give(detail::run(kvmem_directory_entry_load, get(), agent.get()));
    }
    /// Maps the layout if it is on this machine and its publisher has a broker, and otherwise uses NIXL.
    Return<Layout> open_layout(std::string_view name, const OpenOptions &options = {},
                               Timeout timeout = forever) const {
        const auto c = options.c();
        return detail::give(detail::with_text(name, "the name of the layout", [&](const char *text) {
            return detail::make<Layout>(kvmem_directory_entry_open_layout, get(), text, &c, timeout.ns());
        }));
    }
};

/// A layout to publish, and its name.
struct NamedLayout {
    std::string name{};
    const Layout *layout = nullptr;
    /// Offers the memory to processes of this machine; NULL for none.
    const Broker *broker = nullptr;
    /// Access and transport of the offer; none for reading only.
    std::optional<ShareOptions> share{};
};

/// kvmem_directory_options. Set either `folder` or `endpoints`. Empty text is the default.
struct DirectoryOptions {
    std::string folder{};
    std::vector<std::string> endpoints{};
    std::string prefix{};
    std::string ca_file{};
    std::string certificate_file{};
    std::string key_file{};
    std::string user{};
    std::string password{};
    std::chrono::seconds lease{0};

    /// Without endpoints, which Directory::create adds. Valid as long as this object is not changed.
    kvmem_directory_options c() const noexcept {
        auto c = detail::defaults<kvmem_directory_options>();
        c.folder = text(folder);
        c.prefix = text(prefix);
        c.ca_file = text(ca_file);
        c.certificate_file = text(certificate_file);
        c.key_file = text(key_file);
        c.user = text(user);
        c.password = text(password);
        // A value that does not fit is rejected, not truncated.
        constexpr auto most = std::numeric_limits<std::uint32_t>::max();
        const bool fits = lease.count() >= 0 && lease.count() <= most;
        c.lease_seconds = fits ? static_cast<std::uint32_t>(lease.count()) : most;
        return c;
    }

private:
    static const char *text(const std::string &value) noexcept {
        return value.empty() ? nullptr : value.c_str();
    }
};

class Directory : public detail::Handle<kvmem_directory, kvmem_directory_destroy> {
public:
    using Handle::Handle;

    static Return<Directory> create(const DirectoryOptions &options) {
        std::vector<const char *> endpoints;
        for (const std::string &one : options.endpoints) {
            if (auto checked = detail::check_text(one, "an endpoint"); !checked) {
                return detail::give(Result<Directory>(checked.error()));
            }
            endpoints.push_back(one.c_str());
        }
        for (const std::string *one : {&options.folder, &options.prefix, &options.ca_file,
                                       &options.certificate_file, &options.key_file, &options.user,
                                       &options.password}) {
            if (auto checked = detail::check_text(*one, "text of the options"); !checked) {
                return detail::give(Result<Directory>(checked.error()));
            }
        }
        auto c = options.c();
        c.endpoints = endpoints.empty() ? nullptr : endpoints.data();
        c.endpoint_count = endpoints.size();
        return detail::give(detail::make<Directory>(kvmem_directory_create, &c));
    }

    Return<void> publish(const Agent &agent, const std::vector<NamedLayout> &layouts = {},
                         Timeout timeout = forever) const {
        std::vector<kvmem_share_options> shares(layouts.size());
        std::vector<kvmem_named_layout> c;
        for (const NamedLayout &one : layouts) {
            if (auto checked = detail::check_text(one.name, "the name of a layout"); !checked) {
                return detail::give(std::move(checked));
            }
            if (one.share) shares[c.size()] = one.share->c();
            c.push_back({one.name.c_str(), detail::get_or_null(one.layout), detail::get_or_null(one.broker),
                         one.share ? &shares[c.size()] : nullptr});
        }
        const kvmem_named_layout *const first = c.data();
        return detail::give(
            detail::run(kvmem_directory_publish, get(), agent.get(), first, c.size(), timeout.ns()));
    }
    Return<void> withdraw(std::string_view agent, Timeout timeout = forever) const {
        return detail::give(with_agent(agent, [&](const char *text) {
            return detail::run(kvmem_directory_withdraw, get(), text, timeout.ns());
        }));
    }
    Return<DirectoryEntry> look_up(std::string_view agent, Timeout timeout = forever) const {
        return detail::give(with_agent(agent, [&](const char *text) {
            return detail::make<DirectoryEntry>(kvmem_directory_look_up, get(), text, timeout.ns());
        }));
    }
    /// Waits until the agent is published. look_up fails with not_found at once if it is not.
    Return<DirectoryEntry> wait_for(std::string_view agent, Timeout timeout = forever) const {
        return detail::give(with_agent(agent, [&](const char *text) {
            return detail::make<DirectoryEntry>(kvmem_directory_connect, get(), nullptr, text, timeout.ns());
        }));
    }
    /// Waits until a peer is published, and loads its metadata.
    Return<DirectoryEntry> connect(const Agent &agent, std::string_view peer,
                                   Timeout timeout = forever) const {
        return detail::give(with_agent(peer, [&](const char *text) {
            // C waits without loading metadata for NULL.
            return detail::make<DirectoryEntry>(kvmem_directory_connect, get(), detail::get_or_null(&agent),
                                                text, timeout.ns());
        }));
    }
    /// Fails with stale or not_found if the entry is not the current one.
    Return<void> check(const DirectoryEntry &entry, Timeout timeout = forever) const {
        return detail::give(detail::run(kvmem_directory_check, get(), entry.get(), timeout.ns()));
    }

    Return<void> watch(std::string_view agent, Timeout timeout = forever) const {
        return detail::give(with_agent(agent, [&](const char *text) {
            return detail::run(kvmem_directory_watch, get(), text, timeout.ns());
        }));
    }
    Return<void> watch_all(Timeout timeout = forever) const {
        return detail::give(
            detail::run(kvmem_directory_watch, get(), static_cast<const char *>(nullptr), timeout.ns()));
    }
    Return<void> unwatch(std::string_view agent, Timeout timeout = forever) const {
        return detail::give(with_agent(agent, [&](const char *text) {
            return detail::run(kvmem_directory_unwatch, get(), text, timeout.ns());
        }));
    }
    Return<void> unwatch_all(Timeout timeout = forever) const {
        return detail::give(
            detail::run(kvmem_directory_unwatch, get(), static_cast<const char *>(nullptr), timeout.ns()));
    }
    /// Waits until there is an event, and returns all. Empty after the timeout.
    Return<DirectoryEvents> take_events(Timeout timeout = forever) const {
        auto taken = detail::make<DirectoryEvents>(kvmem_directory_take_events, get(), timeout.ns());
        if (taken.status() == Status::timed_out) taken = DirectoryEvents();
        return detail::give(std::move(taken));
    }
    /// Has a queue report events; NULL ends the reports.
    Return<void> report_events(const Queue *queue, std::uint64_t user_data = 0) const {
        return detail::give(
            detail::run(kvmem_directory_report_events, get(), detail::get_or_null(queue), user_data));
    }

private:
    template <typename Then>
    static auto with_agent(std::string_view agent, Then then) -> decltype(then("")) {
        return detail::with_text(agent, "the name of the agent", then);
    }
};

KVMEM_HPP_END

#endif
