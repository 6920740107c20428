// SPDX-License-Identifier: Apache-2.0
// Device memory that grows by small pages in an address range that is reserved once, as in kvcached and vAttention.
#pragma once

#include "reference/cuda.hpp"

#include <cstdint>
#include <vector>

namespace cuda {

enum class page_access {
    each, // a call per page, as kvcached and vAttention do
    once, // a call for all pages of a step
};

enum class page_supply {
    created, // created when memory grows, and released when it shrinks (kvcached)
    pooled,  // created once: growing only maps them (vAttention)
};

enum class page_export {
    none,
    as_fd, // exportable as a file descriptor and registrable for RDMA, as kvmem's extents are
};

class paged_range {
  public:
    paged_range(int device, uint64_t size, uint64_t page_size, page_access access, page_supply supply,
                page_export exported = page_export::none, std::vector<int> users = {});
    ~paged_range();
    paged_range(const paged_range &) = delete;
    paged_range &operator=(const paged_range &) = delete;

    // Offset and size are multiples of the page size.
    void grow(uint64_t offset, uint64_t size);
    void shrink(uint64_t offset, uint64_t size);

    address base() const { return base_; }

  private:
    memory_handle create() const;
    void allow(address from, uint64_t size) const;

    int device_;
    uint64_t size_;
    uint64_t page_size_;
    page_access access_;
    page_supply supply_;
    page_export exported_;
    std::vector<int> users_; // other GPUs with access to each page
    address base_ = 0;
    std::vector<memory_handle> pages_; // 0: none
    std::vector<bool> mapped_;
};

} // namespace cuda
