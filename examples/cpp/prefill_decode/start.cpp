// SPDX-License-Identifier: Apache-2.0
// What both processes begin with.
#include "progress.hpp"
#include "roles.hpp"
#include "tier.hpp"

kv::Agent start_agent(const char *name, Row &row) {
    const Stopwatch stopwatch;
    kv::call(kvmem_nixl_load, nullptr);
    const auto options = kv::defaults(kvmem_agent_options_init);
    auto agent = kv::make<kv::Agent>(kvmem_agent_create, name, &options);
    kv::call(kvmem_agent_create_backend, agent.get(), "UCX", nullptr, std::size_t{0});
    row = {name, "start agent: UCX", 0, stopwatch.read()};
    return agent;
}

Cache build_cache(const Options &options, std::uint32_t kind, kvmem_agent *agent, std::string &rows) {
    const auto config = geometry(options, kind, options.blocks);
    const auto needs = kv::get<kvmem_layout_requirements>(kvmem_layout_get_requirements, &config);
    const auto device = static_cast<std::int32_t>(options.device);
    const std::string process = kvmem_agent_name(agent);
    // The same words in both processes, which build at the same time and share a terminal.
    const Progress progress("building the cache", needs.total_size);
    const Stopwatch stopwatch;
    auto layout = find_tier(options.tier).build(config, agent, device);
    rows = format_row({process, "allocate, register", needs.total_size, stopwatch.read()});
    const auto info = kv::get<kvmem_layout_info>(kvmem_layout_get_info, layout.get());
    if (info.memory_type != KVMEM_MEMORY_VRAM) return Cache(std::move(layout), nullptr);

    // GPU memory is reached by no load, no store and no file: its blocks take the way through host memory.
    const Stopwatch beside;
    auto staging = build_on_pinned(config, agent, device);
    rows += format_row({process, "the same, pinned on host", needs.total_size, beside.read()});
    return Cache(std::move(layout), std::move(staging));
}
