// SPDX-License-Identifier: Apache-2.0
// The calls of each method, and its state between turns.
#include "common/methods.hpp"

#include <cstdio>
#include <exception>

namespace bench {
namespace {

using shared_stream = std::shared_ptr<cuda::own_stream>;

// A method of the driver. It always uses a stream.
move_method on_stream(bench::role role, const std::string &name, const shared_stream &stream,
                   const std::function<void()> &submit)
{
    return {role, name, submit, submit, stream->get(), [stream] { stream->wait(); }, {}};
}

// Writes a pair of pointers for each piece, and returns their number.
uint32_t fill_arrays(const moved_blocks &moved, cuda::pointer_kernel &kernel)
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

move_method submitted_again(const std::string &name, const moved_blocks &moved, kv::preferences preferred)
{
    const auto transfer = std::make_shared<kv::transfer>(
        kv::make_transfer(moved.from.layout(), moved.to.layout(), moved.pairs, {}, preferred));
    const auto stream = std::make_shared<cuda::own_stream>();
    return {role::ours,
            name,
            [transfer] { kv::submit(*transfer); },
            [transfer, stream] {
                kv::call(kvmem_transfer_submit_on_stream, transfer->get(), nullptr,
                         reinterpret_cast<CUstream_st *>(stream->get()));
            },
            stream->get(),
            [transfer] { kv::wait(*transfer); },
            [transfer] { return kv::path_of(*transfer); }};
}

} // namespace

std::vector<move_method> prepared_as(const std::string &name, const moved_blocks &moved, kv::preferences preferred)
{
    try {
        return {submitted_again(name, moved, preferred)};
    } catch (const std::exception &failure) {
        std::printf("    %s: %s\n", name.c_str(), failure.what());
        return {};
    }
}

std::vector<move_method> prepared(const moved_blocks &moved, const options &chosen)
{
    std::vector<move_method> methods = {submitted_again("prepared", moved, {})};
    append(methods, prepared_as("prepared, GPU idle", moved, {KVMEM_COMPUTE_IDLE}));
    if (chosen.engines)
        append(methods, engines(moved, chosen, KVMEM_COMPUTE_IDLE));
    return methods;
}

std::vector<move_method> engines(const moved_blocks &moved, const options &chosen, uint32_t compute)
{
    std::vector<move_method> methods;
    const uint64_t staging = uint64_t{chosen.staging_mib} << 20;
    for (uint32_t path : {KVMEM_METHOD_CUDA_COPY, KVMEM_METHOD_CUDA_BATCH, KVMEM_METHOD_CUDA_2D,
                          KVMEM_METHOD_CUDA_KERNEL, KVMEM_METHOD_CUDA_STAGED})
        append(methods,
               prepared_as(std::string("by ") + kvmem_method_name(path), moved, {compute, path, 0, staging}));
    for (unsigned ctas : chosen.ctas)
        append(methods, prepared_as("by CUDA kernel, " + std::to_string(ctas) + " CTAs", moved,
                                 {compute, KVMEM_METHOD_CUDA_KERNEL, ctas, 0}));
    return methods;
}

move_method created_each_time(const moved_blocks &moved)
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
                // Only in the turn that is not counted: callers do not ask for the path of each transfer.
                if (kept->path.empty())
                    kept->path = kv::path_of(kept->transfer);
                kept->transfer.reset();
            },
            [kept] { return kept->path; }};
}

std::vector<move_method> driver_batch(const moved_blocks &moved, bool beside_compute)
{
    if (!cuda::has_batch())
        return {};
    const auto stream = std::make_shared<cuda::own_stream>();
    const auto list = std::make_shared<cuda::copy_list>(contiguous_spans(moved.from, moved.to, moved.pairs));
    // The source does not change meanwhile, so the driver may read it in any order.
    const cuda::batch_hints hints = {moved.from.where() == place::host, beside_compute};
    return {on_stream(role::reference, "cuMemcpyBatchAsync", stream,
                      [=] { cuda::copy_batch(*list, hints, *stream); })};
}

move_method driver_loop(const moved_blocks &moved)
{
    const auto stream = std::make_shared<cuda::own_stream>();
    const auto list = std::make_shared<cuda::copy_list>(contiguous_spans(moved.from, moved.to, moved.pairs));
    return on_stream(role::reference, "cuMemcpyAsync, a loop", stream,
                     [=] { cuda::copy_each(*list, *stream); });
}

shared_kernel make_pointer_kernel(int device, uint64_t max_chunks)
{
    try {
        return std::make_shared<cuda::pointer_kernel>(device, static_cast<uint32_t>(max_chunks));
    } catch (const std::exception &failure) {
        std::printf("KVBM's method is left out: %s\n", failure.what());
        return nullptr;
    }
}

std::vector<move_method> pointer_kernel(const moved_blocks &moved, const shared_kernel &kernel, unsigned ctas)
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

move_method one_large_copy(const moved_blocks &moved, uint64_t bytes)
{
    const auto stream = std::make_shared<cuda::own_stream>();
    const cuda::address to = moved.to.base();
    const cuda::address from = moved.from.base();
    return on_stream(role::ceiling, "one large copy", stream,
                     [=] { cuda::copy_whole(to, from, bytes, *stream); });
}

} // namespace bench
