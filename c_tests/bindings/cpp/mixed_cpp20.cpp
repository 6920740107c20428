// SPDX-License-Identifier: Apache-2.0
#include "mixed.hpp"

#include <kvmem.hpp>

unsigned long size_in_cpp20(kvmem_region *region) {
    kvmem::Region borrowed(region);
    const std::span<std::byte> bytes = borrowed.host_bytes();
    static_cast<void>(borrowed.release());
    return bytes.size();
}
