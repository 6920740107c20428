// SPDX-License-Identifier: Apache-2.0
/// Virtual memory management of the CUDA driver, step by step: memory, ranges of addresses, mappings.
#ifndef KVMEM_VMM_HPP
#define KVMEM_VMM_HPP

#include "cuda.h"
#include "common.hpp"

KVMEM_HPP_BEGIN

// ---- Memory ----

/// kvmem_vmm_options.
struct VmmOptions {
    Flags<VmmFlag> flags{};
    std::uint64_t size = 0;
    VmmLocation location = VmmLocation::device;
    std::int32_t id = 0;

    kvmem_vmm_options c() const noexcept {
        auto c = detail::defaults<kvmem_vmm_options>();
        c.flags = flags.bits();
        c.size = size;
        c.location = static_cast<std::uint32_t>(location);
        c.id = id;
        return c;
    }
};

inline Return<std::uint64_t> vmm_granularity(const VmmOptions &options, Granularity which) {
    const auto c = options.c();
    return detail::give(detail::get<std::uint64_t>(kvmem_vmm_get_granularity, &c,
                                                   static_cast<std::uint32_t>(which)));
}

using FabricHandle = kvmem_fabric_handle;

/// The device of imported memory: any.
inline constexpr std::int32_t any_device = KVMEM_VMM_ANY_DEVICE;

class VmmMemory : public detail::Handle<kvmem_vmm_memory, kvmem_vmm_memory_destroy> {
public:
    using Handle::Handle;

    static Return<VmmMemory> create(const VmmOptions &options) {
        const auto c = options.c();
        return detail::give(detail::make<VmmMemory>(kvmem_vmm_memory_create, &c));
    }
    static Return<VmmMemory> import_fd(int fd, std::uint64_t size, std::int32_t device = any_device) {
        return detail::give(detail::make<VmmMemory>(kvmem_vmm_memory_import_fd, fd, size, device));
    }
    static Return<VmmMemory> import_fabric(const FabricHandle &handle, std::uint64_t size,
                                           std::int32_t device = any_device) {
        return detail::give(detail::make<VmmMemory>(kvmem_vmm_memory_import_fabric, &handle, size, device));
    }
    /// Retains memory that is mapped at an address in this process.
    static Return<VmmMemory> retain(std::uint64_t address) {
        return detail::give(detail::make<VmmMemory>(kvmem_vmm_memory_retain, address));
    }

    /// The caller closes the file descriptor.
    Return<int> export_fd() const {
        return detail::give(detail::get<std::int32_t>(kvmem_vmm_memory_export_fd, get()));
    }
    Return<FabricHandle> export_fabric() const {
        return detail::give(detail::get<FabricHandle>(kvmem_vmm_memory_export_fabric, get()));
    }
};

// ---- Ranges of addresses ----

/// Device addresses: the first one, and their number in bytes.
using AddressSpan = kvmem_vmm_span;

class VmmRange : public detail::Handle<kvmem_vmm_range, kvmem_vmm_range_destroy> {
public:
    using Handle::Handle;

    static Return<VmmRange> create(std::uint64_t size, std::uint64_t alignment = 0) {
        AddressSpan span{};
        auto made = detail::make<VmmRange>(kvmem_vmm_range_create, size, alignment, &span);
        if (made) made->span_ = span;
        return detail::give(std::move(made));
    }
    /// Of a range that `create` has made.
    AddressSpan span() const noexcept { return span_; }

private:
    AddressSpan span_{};
};

// ---- Mappings ----

class VmmMapping : public detail::Handle<kvmem_vmm_mapping, kvmem_vmm_mapping_destroy> {
public:
    using Handle::Handle;

    static Return<VmmMapping> create(const VmmRange &range, std::uint64_t offset, const VmmMemory &memory) {
        AddressSpan span{};
        auto made = detail::make<VmmMapping>(kvmem_vmm_mapping_create, range.get(), offset, memory.get(),
                                             &span);
        if (made) made->span_ = span;
        return detail::give(std::move(made));
    }
    /// Of a mapping that `create` has made.
    AddressSpan span() const noexcept { return span_; }
    Return<void> set_access(std::int32_t device, Access access) {
        return detail::give(
            detail::run(kvmem_vmm_mapping_set_access, get(), device, static_cast<std::uint32_t>(access)));
    }
    Return<Access> access(std::int32_t device) const {
        auto access = detail::get<std::uint32_t>(kvmem_vmm_mapping_get_access, get(), device);
        if (!access) return detail::give(Result<Access>(access.error()));
        return detail::give(Result<Access>(Access{*access}));
    }

private:
    AddressSpan span_{};
};

KVMEM_HPP_END

#endif
