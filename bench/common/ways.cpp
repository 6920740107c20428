// SPDX-License-Identifier: Apache-2.0
// Each way's calls, and what it keeps from turn to turn.
#include "common/ways.hpp"

#include <cstdio>
#include <exception>

namespace bench {
namespace {

using shared_stream = std::shared_ptr<cuda::own_stream>;

std::function<void()> wait_for(const shared_stream &stream)
{
    return [stream] { stream->wait(); };
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

} // namespace

move_way prepared(const move_of &moved)
{
    const auto transfer = std::make_shared<kv::transfer>(
        kv::make_transfer(moved.from.layout(), moved.to.layout(), moved.pairs));
    return {role::ours, "prepared", [transfer] { kv::submit(*transfer); }, [transfer] { kv::wait(*transfer); },
            [transfer] { return kv::path_of(*transfer); }};
}

move_way created_each_time(const move_of &moved)
{
    struct state {
        kv::transfer transfer;
        std::string path;
    };
    const auto kept = std::make_shared<state>();
    return {role::ours, "created each time",
            [kept, moved] {
                kept->transfer = kv::make_transfer(moved.from.layout(), moved.to.layout(), moved.pairs);
                kv::submit(kept->transfer);
            },
            [kept] {
                kv::wait(kept->transfer);
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
    return {{role::reference, "cuMemcpyBatchAsync", [=] { cuda::copy_batch(*list, hints, *stream); },
             wait_for(stream), {}}};
}

move_way driver_loop(const move_of &moved)
{
    const auto stream = std::make_shared<cuda::own_stream>();
    const auto list = std::make_shared<cuda::copy_list>(stretches(moved.from, moved.to, moved.pairs));
    return {role::reference, "cuMemcpyAsync, a loop", [=] { cuda::copy_each(*list, *stream); }, wait_for(stream), {}};
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
    return {{role::reference, name, submit, wait_for(stream), {}}};
}

move_way one_large_copy(const move_of &moved, uint64_t bytes)
{
    const auto stream = std::make_shared<cuda::own_stream>();
    const cuda::address to = moved.to.base();
    const cuda::address from = moved.from.base();
    return {role::ceiling, "one large copy", [=] { cuda::copy_whole(to, from, bytes, *stream); }, wait_for(stream),
            {}};
}

} // namespace bench
