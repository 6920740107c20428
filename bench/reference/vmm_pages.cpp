// SPDX-License-Identifier: Apache-2.0
// Growing by a page calls cuMemCreate, cuMemMap and cuMemSetAccess; shrinking cuMemUnmap and cuMemRelease.
#include "reference/vmm_pages.hpp"

namespace cuda {
namespace {

constexpr int on_device = 1;
constexpr int type_pinned = 1;
constexpr int handle_posix_fd = 1;
constexpr int read_and_write = 3;

} // namespace

paged_range::paged_range(int device, uint64_t size, uint64_t page_size, page_access access,
                         page_supply supply, page_export exported, std::vector<int> users)
    : device_(device), size_(size), page_size_(page_size), access_(access), supply_(supply),
      exported_(exported), users_(std::move(users)),
      pages_(size / page_size), mapped_(size / page_size)
{
    check(load().address_reserve(&base_, size_, page_size_, 0, 0), "cuMemAddressReserve");
    if (supply_ == page_supply::pooled)
        for (memory_handle &page : pages_)
            page = create();
}

paged_range::~paged_range()
{
    for (size_t index = 0; index < pages_.size(); ++index) {
        if (mapped_[index])
            load().memory_unmap(base_ + index * page_size_, page_size_);
        if (pages_[index] != 0)
            load().memory_release(pages_[index]);
    }
    load().address_free(base_, size_);
}

memory_handle paged_range::create() const
{
    memory_properties properties{};
    properties.type = type_pinned;
    properties.where = {on_device, device_};
    if (exported_ == page_export::as_fd) {
        properties.handle_types = handle_posix_fd;
        properties.gpu_direct_rdma = 1;
    }
    memory_handle page = 0;
    check(load().memory_create(&page, page_size_, &properties, 0), "cuMemCreate");
    return page;
}

void paged_range::allow(address from, uint64_t size) const
{
    std::vector<memory_access> accesses = {{{on_device, device_}, read_and_write}};
    for (const int user : users_)
        accesses.push_back({{on_device, user}, read_and_write});
    check(load().memory_set_access(from, size, accesses.data(), accesses.size()), "cuMemSetAccess");
}

void paged_range::grow(uint64_t offset, uint64_t size)
{
    for (uint64_t index = offset / page_size_; index < (offset + size) / page_size_; ++index) {
        if (supply_ == page_supply::created)
            pages_[index] = create();
        const address place = base_ + index * page_size_;
        check(load().memory_map(place, page_size_, 0, pages_[index], 0), "cuMemMap");
        mapped_[index] = true;
        if (access_ == page_access::each)
            allow(place, page_size_);
    }
    if (access_ == page_access::once)
        allow(base_ + offset, size);
}

void paged_range::shrink(uint64_t offset, uint64_t size)
{
    for (uint64_t index = offset / page_size_; index < (offset + size) / page_size_; ++index) {
        check(load().memory_unmap(base_ + index * page_size_, page_size_), "cuMemUnmap");
        mapped_[index] = false;
        if (supply_ == page_supply::pooled)
            continue;
        check(load().memory_release(pages_[index]), "cuMemRelease");
        pages_[index] = 0;
    }
}

} // namespace cuda
