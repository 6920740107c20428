// SPDX-License-Identifier: Apache-2.0
// A C++ program that uses kvmem as any engine does: version, a region, its memory.
#include <kvmem.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

using region_ptr = std::unique_ptr<kvmem_region, decltype(&kvmem_region_destroy)>;

void check(kvmem_status status, kvmem_error *raised) {
    const std::unique_ptr<kvmem_error, decltype(&kvmem_error_destroy)> error(raised, kvmem_error_destroy);
    if (status != KVMEM_STATUS_OK) {
        throw std::runtime_error(kvmem_error_message(error.get(), nullptr));
    }
}

region_ptr create_region(std::uint64_t size) {
    kvmem_system_options options{};
    options.struct_size = sizeof options;
    options.size = size;
    kvmem_region *region = nullptr;
    kvmem_error *error = nullptr;
    const kvmem_status status = kvmem_region_create_system(&options, &region, &error);
    check(status, error);
    return region_ptr(region, kvmem_region_destroy);
}

kvmem_region_info info_of(const region_ptr &region) {
    kvmem_region_info info{};
    kvmem_error *error = nullptr;
    const kvmem_status status = kvmem_region_get_info(region.get(), &info, &error);
    check(status, error);
    return info;
}

} // namespace

int main() {
    constexpr std::uint64_t size = 1 << 20;
    try {
        const region_ptr region = create_region(size);
        const kvmem_region_info info = info_of(region);
        if (info.size < size || info.tier != KVMEM_TIER_SYSTEM) {
            throw std::runtime_error("not the region that was asked for");
        }
        auto *bytes = reinterpret_cast<unsigned char *>(static_cast<std::uintptr_t>(info.address));
        std::fill_n(bytes, size, static_cast<unsigned char>(0x5a));
        std::cout << "C++, kvmem " << kvmem_version_string() << ": " << info.size << " bytes written\n";
    } catch (const std::exception &failure) {
        std::cerr << failure.what() << '\n';
        return 1;
    }
}
