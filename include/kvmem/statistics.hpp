// SPDX-License-Identifier: Apache-2.0
/// Statistics: what this process has moved, how long it took, and what exists; a trace of the last runs.
#ifndef KVMEM_STATISTICS_HPP
#define KVMEM_STATISTICS_HPP

#include "common.hpp"
#include "statistics.h"

KVMEM_HPP_BEGIN

/// kvmem_statistics.
using Statistics = kvmem_statistics;
/// kvmem_method_statistics.
using MethodStatistics = kvmem_method_statistics;

namespace detail {

// The struct of a function that reads its size.
template <typename C, typename Function, typename... Arguments>
Result<C> sized(Function function, Arguments... arguments) {
    auto c = defaults<C>();
    if (auto read = run(function, arguments..., &c); !read) return read.error();
    return c;
}

}  // namespace detail

/// Returns what exists in this process, and what has happened in it.
inline Return<Statistics> statistics() {
    return detail::give(detail::sized<Statistics>(kvmem_statistics_get));
}
/// Returns what has happened by one method.
inline Return<MethodStatistics> statistics(Method method) {
    const auto value = static_cast<std::uint32_t>(method);
    return detail::give(detail::sized<MethodStatistics>(kvmem_statistics_get_method, value));
}
/// Returns what has happened by requests on raw descriptors.
inline Return<MethodStatistics> request_statistics() {
    return detail::give(detail::sized<MethodStatistics>(kvmem_statistics_get_method, std::uint32_t{0}));
}
/// Returns all of it as text for Prometheus.
inline Return<std::string> statistics_text() { return detail::give(detail::text(kvmem_statistics_text)); }
/// Returns the last runs with their phases as JSON in the trace format of Chrome.
inline Return<std::string> export_trace() { return detail::give(detail::text(kvmem_trace_export)); }
/// Lets `kvmem-doctor top` of the same user read this process, until it ends.
inline Return<void> serve_statistics() { return detail::give(detail::run(kvmem_statistics_serve)); }

KVMEM_HPP_END

#endif
