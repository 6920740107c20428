// SPDX-License-Identifier: Apache-2.0
// The CPU reads and writes GPU memory in the mirror. One copy of the driver moves all of it.
#include "common/side.hpp"

#include "common/parallel.hpp"
#include "reference/cuda.hpp"

#include <algorithm>
#include <thread>

namespace bench {
namespace {

unsigned threads() { return std::clamp(std::thread::hardware_concurrency(), 1u, 16u); }

void fill_device(cuda::address base, uint64_t size)
{
    cuda::check(cuda::load().fill(base, 0, size), "cuMemsetD8");
    cuda::check(cuda::load().context_synchronize(), "cuCtxSynchronize");
}

kvmem_region_info region_of(const kv::layout &layout)
{
    const auto memory = kv::make<kv::region>(kvmem_layout_get_region, layout.get(), size_t{0});
    kvmem_region_info info{};
    kv::call(kvmem_region_get_info, memory.get(), &info);
    return info;
}

} // namespace

side::side(const arena &memory, const arena &mirror, const kvmem_layout_config &config)
    : mirror_(mirror), where_(memory.where()), base_(memory.base()), layout_(memory.build(config, used_)),
      shift_(where_ == place::device ? mirror.base() - base_ : 0), view_(layout_, shift_, threads())
{}

side::side(kv::layout layout, const arena &mirror) : side(region_of(layout), std::move(layout), mirror) {}

side::side(const kvmem_region_info &memory, kv::layout &&layout, const arena &mirror)
    : mirror_(mirror), where_(place::device), base_(memory.address), used_(memory.size),
      layout_(std::move(layout)), shift_(mirror.base() - base_), view_(layout_, shift_, threads())
{}

cuda::address side::address(uint64_t block, uint64_t layer, uint64_t outer) const
{
    return reinterpret_cast<cuda::address>(view_.piece(block, layer, outer)) - shift_;
}

void side::fill() const
{
    view_.fill();
    if (where() == place::device)
        cuda::check(cuda::load().copy(base_, mirror_.base(), used_), "cuMemcpy");
}

void side::wipe(const kv::pairs &moved) const
{
    if (where() == place::host) {
        view_.wipe(moved);
        return;
    }
    fill_device(base_, used_);
}

void side::wipe_first(uint64_t bytes) const
{
    if (where() == place::device) {
        fill_device(base_, bytes);
        return;
    }
    constexpr uint64_t page = 4096;
    auto *first = reinterpret_cast<unsigned char *>(base_);
    in_parts(bytes / page, threads(),
             [first](uint64_t from, uint64_t to) { wipe_memory(first + from * page, (to - from) * page); });
}

void side::verify(const kv::pairs &moved) const
{
    if (where() == place::device)
        cuda::check(cuda::load().copy(mirror_.base(), base_, used_), "cuMemcpy");
    view_.verify(moved);
}

cuda::copy_list contiguous_spans(const side &from, const side &to, const kv::pairs &pairs)
{
    cuda::copy_list list;
    const uint64_t size = from.view().piece_size();
    for (const kvmem_block_pair &pair : pairs)
        for (uint64_t layer = 0; layer < from.view().num_layers(); ++layer)
            for (uint64_t outer = 0; outer < from.view().outer_dim(); ++outer)
                list.append(to.address(pair.destination, layer, outer),
                            from.address(pair.source, layer, outer), size);
    return list;
}

} // namespace bench
