// SPDX-License-Identifier: Apache-2.0
// The first steps of all processes.
#include "progress.hpp"
#include "roles.hpp"
#include "tier.hpp"

kvmem::Agent start_agent(const std::string &process, std::string &rows) {
    const Stopwatch stopwatch;
    auto agent = kvmem::Agent::create(process);
    agent.create_backend("UCX");
    rows += format_row({process, "start agent: UCX", 0, stopwatch.read()});
    return agent;
}

Cache build_cache(const Options &options, const Part &part, std::string &rows) {
    const auto needs = kvmem::layout_requirements(part.config);
    const Tier &tier = find_tier(options.tier);
    const auto device = static_cast<std::int32_t>(options.device);
    // Shared GPU memory is transferred without NIXL; host memory is written to disk by NIXL.
    const kvmem::Agent *const own = part.agent ? &part.agent : nullptr;
    const kvmem::Agent *const agent = tier.on_gpu && options.share ? nullptr : own;
    // The same text in both processes, which build at the same time and write to one terminal.
    const Progress progress("building the cache", needs.total_size);
    const Stopwatch stopwatch;
    auto layout = tier.build(part.config, {device, agent, part.shared});
    const char *step = agent ? "allocate, register" : "allocate";
    rows += format_row({part.process, step, needs.total_size, stopwatch.read()});
    if (!tier.on_gpu) return Cache(std::move(layout), kvmem::Layout());

    // The CPU and files cannot access GPU memory, so its blocks are copied through host memory.
    const Stopwatch beside;
    auto staging = build_on_pinned(part.config, {device, own, false});
    rows += format_row({part.process, "the same, pinned on host", needs.total_size, beside.read()});
    return Cache(std::move(layout), std::move(staging));
}
