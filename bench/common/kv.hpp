// SPDX-License-Identifier: Apache-2.0
// kvmem for the benches: handles that destroy themselves, and exceptions for statuses.
#pragma once

#include <kvmem.h>
#include <kvmem/cuda.h>
#include <kvmem/nixl.h>
#include <kvmem/nixl_raw.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace kv {

template <auto Destroy> struct destroyer {
    template <typename Handle> void operator()(Handle *handle) const { Destroy(handle); }
};

using agent = std::unique_ptr<kvmem_agent, destroyer<kvmem_agent_destroy>>;
using request = std::unique_ptr<kvmem_request, destroyer<kvmem_request_destroy>>;
using blob = std::unique_ptr<kvmem_blob, destroyer<kvmem_blob_destroy>>;
using layout = std::unique_ptr<kvmem_layout, destroyer<kvmem_layout_destroy>>;
using queue = std::unique_ptr<kvmem_queue, destroyer<kvmem_queue_destroy>>;
using region = std::unique_ptr<kvmem_region, destroyer<kvmem_region_destroy>>;
using share = std::unique_ptr<kvmem_share, destroyer<kvmem_share_destroy>>;
using transfer = std::unique_ptr<kvmem_transfer, destroyer<kvmem_transfer_destroy>>;

[[noreturn]] inline void fail(kvmem_status status, kvmem_error *error)
{
    std::string text = kvmem_status_name(status);
    text += std::string(": ") + kvmem_error_message(error, nullptr);
    kvmem_error_destroy(error);
    throw std::runtime_error(text);
}

// Calls a function whose last parameter is the error, and throws on failure.
template <typename Function, typename... Arguments> void call(Function function, Arguments... arguments)
{
    kvmem_error *error = nullptr;
    const kvmem_status status = function(arguments..., &error);
    if (status != KVMEM_STATUS_OK)
        fail(status, error);
}

// The same for a function whose last two parameters are an output handle and the error.
template <typename Handle, typename Function, typename... Arguments>
Handle make(Function function, Arguments... arguments)
{
    typename Handle::pointer handle = nullptr;
    call(function, arguments..., &handle);
    return Handle(handle);
}

using pairs = std::vector<kvmem_block_pair>;

struct completion_target {
    kvmem_queue *queue = nullptr;
    uint64_t user_data = 0;
};

// Creates an agent with UCX, from the NIXL library that the reference loads too. The progress thread looks for work
// every `progress_delay_us`, and when a message arrives.
inline agent make_agent(const std::string &name, bool progress_thread = true, uint64_t progress_delay_us = 1000)
{
    call(kvmem_nixl_load, nullptr);
    kvmem_agent_options options{};
    options.struct_size = sizeof options;
    options.flags = progress_thread ? 0 : KVMEM_AGENT_NO_PROGRESS_THREAD;
    options.progress_delay_ns = 1000 * progress_delay_us;
    agent made = make<agent>(kvmem_agent_create, name.c_str(), &options);
    call(kvmem_agent_create_backend, made.get(), "UCX", nullptr, size_t{0});
    return made;
}

// Returns options of a layout that kvmem allocates. The caller sets the options of a tier.
inline kvmem_layout_options allocated(const kvmem_layout_config &config)
{
    kvmem_layout_options options{};
    options.struct_size = sizeof options;
    options.config = &config;
    options.source = KVMEM_LAYOUT_ALLOCATE;
    return options;
}

// Creates a layout in a file without a name.
inline layout make_file(const kvmem_layout_config &config, uint64_t flags)
{
    kvmem_disk_options disk{};
    disk.struct_size = sizeof disk;
    disk.flags = flags;
    kvmem_layout_options options = allocated(config);
    options.disk = &disk;
    return make<layout>(kvmem_layout_build, &options);
}

// Creates a layout in host memory, registered if there is an agent. With 0 threads, pages are allocated when they are
// first touched.
inline layout make_layout(const kvmem_layout_config &config, kvmem_agent *owner = nullptr,
                          uint32_t prefault_threads = 2)
{
    kvmem_system_options memory{};
    memory.struct_size = sizeof memory;
    memory.prefault_threads = prefault_threads;
    kvmem_layout_options options = allocated(config);
    options.agent = owner;
    options.system = &memory;
    return make<layout>(kvmem_layout_build, &options);
}

// The options of a transfer that the benches set, besides its blocks.
struct preferences {
    uint32_t compute = KVMEM_COMPUTE_MAY_RUN;
    uint32_t path = 0; // any
    uint32_t max_ctas = 0;
    uint64_t staging_size = 0;
    uint64_t flags = 0;
    const uint32_t *checksums = nullptr; // one per pair, of its source; the destination is compared with them
};

// The options of a transfer and of its runs.
struct job {
    kvmem_transfer_options transfer{};
    kvmem_submit_options run{};
};

inline job job_of(const pairs &blocks, completion_target to, preferences preferred)
{
    job made;
    made.transfer.struct_size = sizeof made.transfer;
    made.transfer.queue = to.queue;
    made.transfer.compute = preferred.compute;
    made.transfer.method = preferred.path;
    made.transfer.max_ctas = preferred.max_ctas;
    made.transfer.staging_size = preferred.staging_size;
    made.transfer.flags = preferred.flags;
    made.run.struct_size = sizeof made.run;
    made.run.pairs = blocks.data();
    made.run.num_pairs = blocks.size();
    made.run.user_data = to.user_data;
    made.run.checksums = preferred.checksums;
    return made;
}

// Creates a transfer and prepares its run.
inline transfer prepared(const layout &source, const layout &destination, const job &wanted)
{
    transfer made = make<transfer>(kvmem_transfer_create, source.get(), destination.get(), &wanted.transfer);
    call(kvmem_transfer_prepare, made.get(), &wanted.run);
    return made;
}

inline transfer make_transfer(const layout &source, const layout &destination, const pairs &blocks,
                              completion_target to = {}, preferences preferred = {})
{
    return prepared(source, destination, job_of(blocks, to, preferred));
}

// The same by kvmem_transfer_start, which also submits it.
inline transfer start_transfer(const layout &source, const layout &destination, const pairs &blocks,
                               preferences preferred = {})
{
    const job wanted = job_of(blocks, {}, preferred);
    return make<transfer>(kvmem_transfer_start, source.get(), destination.get(), &wanted.transfer, &wanted.run);
}

// CRC32C of each block, in the order of the ids.
inline std::vector<uint32_t> checksums_of(const layout &of, const std::vector<uint32_t> &ids)
{
    std::vector<uint32_t> checksums(ids.size());
    call(kvmem_layout_checksum, of.get(), ids.data(), ids.size(), KVMEM_TIMEOUT_FOREVER, checksums.data());
    return checksums;
}

// Returns the method that the transfer takes, with its estimate.
inline kvmem_compared_method used_method(const transfer &made)
{
    kvmem_compared_method used{};
    size_t count = 0;
    call(kvmem_transfer_get_methods, made.get(), &used, size_t{1}, &count);
    return used;
}

// Returns the name of the transfer's path.
inline std::string path_of(const transfer &moved)
{
    kvmem_transfer_info info{};
    call(kvmem_transfer_get_info, moved.get(), &info);
    return kvmem_method_name(info.method);
}

inline void submit(const transfer &moved) { call(kvmem_transfer_submit, moved.get(), nullptr); }

// With a timeout, the thread of the agent would make the NIXL calls.
inline void wait(const transfer &moved) { call(kvmem_transfer_wait, moved.get(), KVMEM_TIMEOUT_FOREVER); }

inline void submit_and_wait(const transfer &moved)
{
    submit(moved);
    wait(moved);
}

} // namespace kv
