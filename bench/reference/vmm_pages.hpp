// SPDX-License-Identifier: Apache-2.0
// Device memory that grows by small pages behind addresses reserved once, as in kvcached and vAttention.
#pragma once

#include "reference/cuda.hpp"

#include <cstdint>
#include <vector>

namespace cuda {

enum class page_access {
    each, // a call for each page: they ask for pages one at a time
    once, // a call for all pages of a step
};

enum class page_supply {
    created, // with the step, and released when it shrinks (kvcached)
    pooled,  // made beforehand and kept: the step only maps them (vAttention)
};

enum class page_export {
    none,
    as_fd, // can be shared by file descriptor, and registered for RDMA: as kvmem's extents are
};

class paged_range {
  public:
    paged_range(int device, uint64_t size, uint64_t page_size, page_access access, page_supply supply,
                page_export exported = page_export::none, std::vector<int> users = {});
    ~paged_range();
    paged_range(const paged_range &) = delete;
    paged_range &operator=(const paged_range &) = delete;

    // Both by whole pages.
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
    std::vector<int> users_; // other GPUs that get access to each page
    address base_ = 0;
    std::vector<memory_handle> pages_; // 0: none
    std::vector<bool> mapped_;
};

} // namespace cuda
