// SPDX-License-Identifier: Apache-2.0
#define KVMEM_RESULTS
#include "mixed.hpp"

#include <kvmem.hpp>

bool fails_with_a_result(kvmem_region *region) {
    kvmem::Region borrowed(region);
    const auto view = borrowed.create_view(0, 1 << 30);
    static_cast<void>(borrowed.release());
    return view.status() == kvmem::Status::out_of_range;
}
