// SPDX-License-Identifier: Apache-2.0
/// NIXL's requests on raw descriptors, and memory views.
#ifndef KVMEM_REQUEST_HPP
#define KVMEM_REQUEST_HPP

#include "nixl.hpp"

KVMEM_HPP_BEGIN

// ---- Memory views ----

/// Memory that kernels on a GPU can access through NIXL's device API.
class MemoryView : public detail::Handle<kvmem_memory_view, kvmem_memory_view_destroy> {
public:
    using Handle::Handle;

    static Return<MemoryView> create(const Agent &agent, Elements<Descriptor> descriptors,
                                     const NixlOptions &options = {}) {
        return detail::give(detail::with_descriptors(descriptors, options, [&](auto *c, auto count, auto *o) {
            void *handle = nullptr;
            auto made = detail::make<MemoryView>(kvmem_memory_view_create, agent.get(), c, count, o, &handle);
            if (made) made->handle_ = handle;
            return made;
        }));
    }
    /// For NIXL's device API; valid as long as the view.
    void *handle() const noexcept { return handle_; }

private:
    void *handle_ = nullptr;
};

// ---- Prepared lists ----

/// Descriptors that NIXL has resolved for one side of requests.
class Prepared : public detail::Handle<kvmem_prepared, kvmem_prepared_destroy> {
public:
    using Handle::Handle;

    /// For the local side.
    static Return<Prepared> create_local(const Agent &agent, Elements<Descriptor> descriptors,
                                         const NixlOptions &options = {}) {
        return detail::give(create(agent, nullptr, descriptors, options));
    }
    /// For the remote side: memory of a peer, or files and objects of the agent itself.
    static Return<Prepared> create_remote(const Agent &agent, std::string_view owner,
                                          Elements<Descriptor> descriptors, const NixlOptions &options = {}) {
        return detail::give(detail::with_text(owner, "the name of the owner", [&](const char *text) {
            return create(agent, text, descriptors, options);
        }));
    }

private:
    static Result<Prepared> create(const Agent &agent, const char *owner, Elements<Descriptor> descriptors,
                                   const NixlOptions &options) {
        return detail::with_descriptors(descriptors, options, [&](auto *c, auto count, auto *o) {
            return detail::make<Prepared>(kvmem_prepared_create, agent.get(), owner, c, count, o);
        });
    }
};

// ---- Requests ----

/// kvmem_request_cost.
struct RequestCost {
    std::chrono::nanoseconds duration{0};
    std::chrono::nanoseconds margin{0};
    std::uint32_t method = 0;
};

using RequestTelemetry = kvmem_request_telemetry;

/// One NIXL transfer between raw descriptors. Destroying it does not wait: a run in flight uses its memory.
class Request : public detail::Handle<kvmem_request, kvmem_request_destroy> {
public:
    using Handle::Handle;

    /// A request on descriptors that correspond by index.
    static Return<Request> create(const Agent &agent, Operation operation, Elements<Descriptor> local,
                                  std::string_view owner, Elements<Descriptor> remote,
                                  const NixlOptions &options = {}) {
        if (local.size() != remote.size())
            return detail::give(not_corresponding("descriptors", local.size(), remote.size(), "index"));
        return detail::give(detail::with_text(owner, "the name of the owner", [&](const char *text) {
            return detail::with_descriptors(local, options, [&](auto *here, auto count, auto *o) {
                return detail::with_descriptors(remote, [&](auto *there, auto) {
                    return detail::make<Request>(kvmem_request_create, agent.get(),
                                                 static_cast<std::uint32_t>(operation), here, text, there,
                                                 count, o);
                });
            });
        }));
    }
    /// A request on descriptors of prepared lists, which correspond by position in both arrays of indices.
    static Return<Request> make(Operation operation, const Prepared &local,
                                span<const std::uint32_t> local_indices, const Prepared &remote,
                                span<const std::uint32_t> remote_indices,
                                const NixlOptions &options = {}) {
        if (local_indices.size() != remote_indices.size())
            return detail::give(not_corresponding("indices", local_indices.size(), remote_indices.size(),
                                                  "position"));
        return detail::give(detail::with_options(options, [&](const kvmem_nixl_options *c) {
            return detail::make<Request>(kvmem_request_make, static_cast<std::uint32_t>(operation),
                                         local.get(), local_indices.data(), remote.get(),
                                         remote_indices.data(), local_indices.size(), c);
        }));
    }

    /// Starts a run, with the notification of the options.
    Return<void> post() { return post(Bytes()); }
    /// Starts a run with another notification.
    Return<void> post(Bytes notification) {
        return detail::give(detail::run(kvmem_request_post, get(), notification.data(), notification.size()));
    }
    /// Returns true if the last run has succeeded, and false while it is in flight. Fails as the run failed.
    [[nodiscard]] Return<bool> poll() const {
        const auto state = detail::call(kvmem_request_poll, get());
        if (!state) return detail::give(Result<bool>(state.error()));
        return detail::give(Result<bool>(*state != Status::in_progress));
    }
    Return<void> wait() const { return detail::give(detail::run(kvmem_request_wait, get(), forever.ns())); }
    /// Returns false if the run is still in flight.
    [[nodiscard]] Return<bool> wait_for(Timeout timeout) const {
        return detail::give(detail::in_time(detail::call(kvmem_request_wait, get(), timeout.ns()),
                                            [this] { return detail::call(kvmem_request_poll, get()); }));
    }

    /// Returns the plugin of the backend that NIXL chose.
    Return<std::string> backend() const {
        return detail::give(detail::text(kvmem_request_get_backend, get()));
    }
    Return<RequestCost> estimate() const {
        auto c = detail::get<kvmem_request_cost>(kvmem_request_estimate, get());
        if (!c) return detail::give(Result<RequestCost>(c.error()));
        RequestCost cost;
        cost.duration = std::chrono::nanoseconds(static_cast<std::int64_t>(c->duration_ns));
        cost.margin = std::chrono::nanoseconds(static_cast<std::int64_t>(c->margin_ns));
        cost.method = c->method;
        return detail::give(Result<RequestCost>(cost));
    }
    Return<RequestTelemetry> telemetry() const {
        return detail::give(detail::get<RequestTelemetry>(kvmem_request_get_telemetry, get()));
    }

private:
    static Result<Request> not_corresponding(const std::string &things, std::size_t local, std::size_t remote,
                                             const std::string &by) {
        return Error(Status::invalid_argument,
                     "there are " + std::to_string(local) + " local " + things + " and " +
                         std::to_string(remote) + " remote ones; they correspond by " + by);
    }
};

KVMEM_HPP_END

#endif
