// SPDX-License-Identifier: Apache-2.0
// Each way's calls, and what it keeps from turn to turn.
#include "common/ways.hpp"

#include <cstdio>
#include <exception>

namespace bench {
namespace {

using shared_stream = std::shared_ptr<cuda::own_stream>;

// A way of the driver's, which is on a stream always.
move_way on_stream(bench::role role, const std::string &name, const shared_stream &stream,
                   const std::function<void()> &submit)
{
    return {role, name, submit, submit, stream->get(), [stream] { stream->wait(); }, {}};
}

// As many pointers as there are pieces, by the formula of the layouts.
uint32_t fill_arrays(const move_of &moved, cuda::pointer_kernel &kernel)
{
    uint32_t count = 0;
    const uint64_t layers = moved.from.view().num_layers();
    const uint64_t outers = moved.from.view().outer_dim();
    for (const kvmem_block_pair &pair : moved.pairs)
        for (uint64_t layer = 0; layer < layers; ++layer)
            for (uint64_t outer = 0; outer < outers; ++outer) {
                kernel.to()[count] = moved.to.address(pair.destination, layer, outer);
                kernel.from()[count] = moved.from.address(pair.source, layer, outer);
                ++count;
            }
    return count;
}

move_way submitted_again(const std::string &name, const move_of &moved, kv::wish wished)
{
    const auto transfer = std::make_shared<kv::transfer>(
        kv::make_transfer(moved.from.layout(), moved.to.layout(), moved.pairs, {}, wished));
    const auto stream = std::make_shared<cuda::own_stream>();
    return {role::ours,
            name,
            [transfer] { kv::submit(*transfer); },
            [transfer, stream] {
                kv::call(kvmem_transfer_submit_on_stream, transfer->get(),
                         reinterpret_cast<CUstream_st *>(stream->get()));
            },
            stream->get(),
            [transfer] { kv::wait(*transfer); },
            [transfer] { return kv::path_of(*transfer); }};
}

} // namespace

std::vector<move_way> prepared_as(const std::string &name, const move_of &moved, kv::wish wished)
{
    try {
        return {submitted_again(name, moved, wished)};
    } catch (const std::exception &failure) {
        std::printf("    %s: %s\n", name.c_str(), failure.what());
        return {};
    }
}

std::vector<move_way> prepared(const move_of &moved, const options &chosen)
{
    std::vector<move_way> ways = {submitted_again("prepared", moved, {})};
    append(ways, prepared_as("prepared, GPU idle", moved, {KVMEM_COMPUTE_IDLE}));
    if (chosen.engines)
        append(ways, engines(moved, chosen, KVMEM_COMPUTE_IDLE));
    return ways;
}

std::vector<move_way> engines(const move_of &moved, const options &chosen, uint32_t compute)
{
    std::vector<move_way> ways;
    const uint64_t staging = uint64_t{chosen.staging_mib} << 20;
    for (uint32_t path : {KVMEM_PATH_CUDA_COPY, KVMEM_PATH_CUDA_BATCH, KVMEM_PATH_CUDA_2D,
                          KVMEM_PATH_CUDA_KERNEL, KVMEM_PATH_CUDA_STAGED})
        append(ways,
               prepared_as(std::string("by ") + kvmem_path_name(path), moved, {compute, path, 0, staging}));
    for (unsigned ctas : chosen.ctas)
        append(ways, prepared_as("by CUDA kernel, " + std::to_string(ctas) + " CTAs", moved,
                                 {compute, KVMEM_PATH_CUDA_KERNEL, ctas, 0}));
    return ways;
}

move_way created_each_time(const move_of &moved)
{
    struct state {
        kv::transfer transfer;
        std::string path;
    };
    const auto kept = std::make_shared<state>();
    return {role::ours,
            "created each time",
            [kept, moved] {
                kept->transfer = kv::make_transfer(moved.from.layout(), moved.to.layout(), moved.pairs);
                kv::submit(kept->transfer);
            },
            {},
            nullptr,
            [kept] {
                kv::wait(kept->transfer);
                // Only in the turn that is not counted: it is no part of the move, and no caller asks for it each time.
                if (kept->path.empty())
                    kept->path = kv::path_of(kept->transfer);
                kept->transfer.reset();
            },
            [kept] { return kept->path; }};
}

std::vector<move_way> driver_batch(const move_of &moved, bool beside_compute)
{
    if (!cuda::has_batch())
        return {};
    const auto stream = std::make_shared<cuda::own_stream>();
    const auto list = std::make_shared<cuda::copy_list>(stretches(moved.from, moved.to, moved.pairs));
    // Nobody writes the source meanwhile, so that the driver may read it in any order.
    const cuda::batch_hints hints = {moved.from.where() == place::host, beside_compute};
    return {on_stream(role::reference, "cuMemcpyBatchAsync", stream,
                      [=] { cuda::copy_batch(*list, hints, *stream); })};
}

move_way driver_loop(const move_of &moved)
{
    const auto stream = std::make_shared<cuda::own_stream>();
    const auto list = std::make_shared<cuda::copy_list>(stretches(moved.from, moved.to, moved.pairs));
    return on_stream(role::reference, "cuMemcpyAsync, a loop", stream,
                     [=] { cuda::copy_each(*list, *stream); });
}

shared_kernel make_pointer_kernel(int device, uint64_t most_chunks)
{
    try {
        return std::make_shared<cuda::pointer_kernel>(device, static_cast<uint32_t>(most_chunks));
    } catch (const std::exception &failure) {
        std::printf("KVBM's way is left out: %s\n", failure.what());
        return nullptr;
    }
}

std::vector<move_way> pointer_kernel(const move_of &moved, const shared_kernel &kernel, unsigned ctas)
{
    if (kernel == nullptr)
        return {};
    const std::string name =
        "pointers uploaded, one kernel" + (ctas == 0 ? "" : ", " + std::to_string(ctas) + " CTAs");
    const auto stream = std::make_shared<cuda::own_stream>();
    const auto submit = [=] {
        kernel->reuse_arrays();
        const uint32_t count = fill_arrays(moved, *kernel);
        kernel->copy(count, moved.from.view().piece_size(), ctas, stream->get());
    };
    return {on_stream(role::reference, name, stream, submit)};
}

move_way one_large_copy(const move_of &moved, uint64_t bytes)
{
    const auto stream = std::make_shared<cuda::own_stream>();
    const cuda::address to = moved.to.base();
    const cuda::address from = moved.from.base();
    return on_stream(role::ceiling, "one large copy", stream,
                     [=] { cuda::copy_whole(to, from, bytes, *stream); });
}

} // namespace bench
