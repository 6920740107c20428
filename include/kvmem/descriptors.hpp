// SPDX-License-Identifier: Apache-2.0
/// NIXL's raw descriptors, plugins and queries, which agents work with.
#ifndef KVMEM_DESCRIPTORS_HPP
#define KVMEM_DESCRIPTORS_HPP

#include "nixl_raw.h"
#include "queue.hpp"
#include "region.hpp"

KVMEM_HPP_BEGIN

/// A parameter of a backend, or a property: kvmem_parameter.
struct Parameter {
    std::string key{};
    std::string value{};
};

namespace detail {

inline std::vector<Parameter> parameters_of(const kvmem_parameter *parameters, std::size_t count) {
    std::vector<Parameter> result;
    for (std::size_t i = 0; i < count; ++i) result.push_back({parameters[i].key, parameters[i].value});
    return result;
}

}  // namespace detail

// ---- Options of calls on raw descriptors ----

/// kvmem_nixl_options. A call fails for a field that it does not use.
struct NixlOptions {
    Flags<NixlFlag> flags{};
    /// Plugins of the backends to use; none for all.
    std::vector<std::string> backends{};
    std::string custom_parameter{};
    const Queue *queue = nullptr;
    std::uint64_t user_data = 0;
    /// After this duration a run of a request ends as timed_out; 0 for no limit.
    std::chrono::nanoseconds run_timeout{0};
    /// An empty string is a message, as with NixlFlag::notify.
    std::optional<std::string> notification{};
};

namespace detail {

struct NixlOptionsInC {
    kvmem_nixl_options c;
    std::vector<const char *> backends{};

    explicit NixlOptionsInC(const NixlOptions &options) : c(defaults<kvmem_nixl_options>()) {
        for (const std::string &backend : options.backends) backends.push_back(backend.c_str());
        c.flags = options.flags.bits();
        c.backends = backends.empty() ? nullptr : backends.data();
        c.backend_count = backends.size();
        if (options.notification) {
            c.flags |= KVMEM_NIXL_NOTIFY;
            c.notification = options.notification->empty() ? nullptr : options.notification->data();
            c.notification_size = options.notification->size();
        }
        if (!options.custom_parameter.empty()) {
            c.custom_parameter = options.custom_parameter.data();
            c.custom_parameter_size = options.custom_parameter.size();
        }
        c.queue = get_or_null(options.queue);
        c.user_data = options.user_data;
        c.run_timeout_ns = limit_ns(options.run_timeout);
    }
    NixlOptionsInC(const NixlOptionsInC &) = delete;
    NixlOptionsInC &operator=(const NixlOptionsInC &) = delete;
};

// Returns `then(options in C)`, unless the name of a backend cannot be passed to C.
template <typename Then>
auto with_options(const NixlOptions &options, Then then) -> decltype(then(nullptr)) {
    for (const std::string &backend : options.backends) {
        if (auto checked = check_text(backend, "the name of a backend"); !checked) return checked.error();
    }
    const NixlOptionsInC in_c(options);
    return then(&in_c.c);
}

}  // namespace detail

// ---- Plugins ----

/// A plugin of NIXL, or a backend of an agent: kvmem_plugin.
struct Plugin {
    std::string name{};
    /// Why the plugin does not load; not set if it loads.
    std::optional<std::string> failure{};
    std::vector<Parameter> parameters{};
    /// Bit 1 << MemoryType for each type that it accepts.
    std::uint32_t memory_types = 0;

    bool accepts(MemoryType type) const noexcept {
        return (memory_types >> static_cast<std::uint32_t>(type) & 1) != 0;
    }
};

namespace detail {
inline Plugin plugin_of(const kvmem_plugin &c) {
    Plugin plugin;
    plugin.name = c.name;
    if (c.failure) plugin.failure = c.failure;
    plugin.parameters = parameters_of(c.parameters, c.parameter_count);
    plugin.memory_types = c.memory_types;
    return plugin;
}
}  // namespace detail

using Plugins = detail::List<kvmem_plugins, kvmem_plugins_destroy, kvmem_plugin, Plugin, detail::plugin_of>;

// ---- Queries ----

/// kvmem_query_result.
struct QueryResult {
    bool exists = false;
    std::vector<Parameter> parameters{};
};

namespace detail {
inline QueryResult query_result_of(const kvmem_query_result &c) {
    return {c.exists != 0, parameters_of(c.parameters, c.parameter_count)};
}
}  // namespace detail

using Query = detail::List<kvmem_query, kvmem_query_destroy, kvmem_query_result, QueryResult,
                           detail::query_result_of>;

// ---- Descriptors ----

/// kvmem_nixl_descriptor.
struct Descriptor {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t device_id = 0;
    MemoryType memory_type = MemoryType::dram;
    /// What the backend needs, such as the path of a file.
    std::string metadata{};
    /// For memory views of peers: the agent that owns the memory.
    std::optional<std::string> agent{};
    /// Region of the memory, which objects that are created from the descriptor keep alive.
    const Region *region = nullptr;

    /// Valid as long as this object is not changed.
    kvmem_nixl_descriptor c() const noexcept {
        kvmem_nixl_descriptor c = {};
        c.address = address;
        c.size = size;
        c.device_id = device_id;
        c.memory_type = static_cast<std::uint32_t>(memory_type);
        c.metadata = metadata.empty() ? nullptr : metadata.data();
        c.metadata_size = metadata.size();
        c.agent = detail::c_text(agent);
        c.region = detail::get_or_null(region);
        return c;
    }
};

/// Returns the memory of a region as descriptors, which refer to it.
inline Return<std::vector<Descriptor>> descriptors_of(const Region &region) {
    using Found = Result<std::vector<Descriptor>>;
    const auto into = [&](kvmem_nixl_descriptor *c, std::size_t capacity) {
        return detail::get<std::size_t>(kvmem_region_get_descriptors, region.get(), c, capacity);
    };
    std::vector<kvmem_nixl_descriptor> c;
    auto count = into(nullptr, 0);
    while (count && *count > c.size()) {
        c.resize(*count);
        count = into(c.data(), c.size());
        // Elastic memory has got more of them.
        if (!count && count.status() == Status::out_of_range) count = into(nullptr, 0);
    }
    if (!count) return detail::give(Found(count.error()));
    std::vector<Descriptor> all(*count);
    for (std::size_t i = 0; i < *count; ++i) {
        all[i].address = c[i].address;
        all[i].size = c[i].size;
        all[i].device_id = c[i].device_id;
        all[i].memory_type = MemoryType{c[i].memory_type};
        if (c[i].metadata)
            all[i].metadata.assign(static_cast<const char *>(c[i].metadata), c[i].metadata_size);
        all[i].region = &region;
    }
    return detail::give(Found(std::move(all)));
}

namespace detail {

// Returns `then(descriptors in C, their number)`, unless the name of an agent cannot be passed to C.
template <typename Then>
auto with_descriptors(Elements<Descriptor> descriptors, Then then)
    -> decltype(then(std::declval<const kvmem_nixl_descriptor *>(), std::size_t{})) {
    std::vector<kvmem_nixl_descriptor> c;
    for (const Descriptor &one : descriptors) {
        auto checked = check_optional(one.agent, "the name of an agent");
        if (!checked) return checked.error();
        c.push_back(one.c());
    }
    return then(c.data(), c.size());
}

// Returns `then(descriptors in C, their number, options in C)`.
template <typename Then>
auto with_descriptors(Elements<Descriptor> descriptors, const NixlOptions &options, Then then)
    -> decltype(then(std::declval<const kvmem_nixl_descriptor *>(), std::size_t{},
                     std::declval<const kvmem_nixl_options *>())) {
    return with_options(options, [&](const kvmem_nixl_options *o) {
        return with_descriptors(descriptors, [&](const kvmem_nixl_descriptor *c, std::size_t count) {
            return then(c, count, o);
        });
    });
}

}  // namespace detail

/// Descriptors that an agent has registered: Agent::register_descriptors.
class Segments : public detail::Handle<kvmem_segments, kvmem_segments_destroy> {
public:
    using Handle::Handle;

    /// Reports whether deregistering failed; the destructor does not.
    Return<void> deregister() { return detail::give(detail::run(kvmem_segments_deregister, get())); }
};

KVMEM_HPP_END

#endif
