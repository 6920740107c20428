// SPDX-License-Identifier: Apache-2.0
/// The CUDA driver: devices, copy rates, IPC handles.
#ifndef KVMEM_CUDA_HPP
#define KVMEM_CUDA_HPP

#include "cuda.h"
#include "region.hpp"

#include <array>
#include <cstring>

KVMEM_HPP_BEGIN

using Uuid = std::array<std::uint8_t, 16>;

// ---- Driver and devices ----

using CudaInfo = kvmem_cuda_info;

/// kvmem_cuda_device_info. The fields declared here have types.
struct DeviceInfo : kvmem_cuda_device_info {
    DeviceInfo() noexcept : kvmem_cuda_device_info() {}
    DeviceInfo(const kvmem_cuda_device_info &c)
        : kvmem_cuda_device_info(c), name(c.name),
          capabilities(Flags<DeviceCapability>::from_bits(c.capabilities)) {
        std::memcpy(uuid.data(), c.uuid, uuid.size());
    }

    std::string name{};
    Uuid uuid{};
    Flags<DeviceCapability> capabilities{};
};

/// Finds and initialises the driver.
inline Return<CudaInfo> cuda_info() { return detail::give(detail::get<CudaInfo>(kvmem_cuda_get_info)); }

inline Return<DeviceInfo> device_info(std::int32_t device) {
    auto c = detail::get<kvmem_cuda_device_info>(kvmem_cuda_get_device_info, device);
    if (!c) return detail::give(Result<DeviceInfo>(c.error()));
    return detail::give(Result<DeviceInfo>(DeviceInfo(*c)));
}
/// Returns the ordinal of a GPU in this process.
inline Return<std::int32_t> find_device(const Uuid &uuid) {
    return detail::give(detail::get<std::int32_t>(kvmem_cuda_find_device, uuid.data()));
}

// ---- Copy rates ----

/// kvmem_rates_info, and all rates as text for people.
struct RatesInfo : kvmem_rates_info {
    RatesInfo() noexcept : kvmem_rates_info() {}
    RatesInfo(const kvmem_rates_info &c, std::string words)
        : kvmem_rates_info(c), source(RatesSource{c.source}), text(std::move(words)) {
        std::memcpy(uuid.data(), c.uuid, uuid.size());
        std::memcpy(peer_uuid.data(), c.peer_uuid, peer_uuid.size());
    }

    Uuid uuid{};
    Uuid peer_uuid{};
    RatesSource source{};
    std::string text{};
};

/// Of one GPU.
inline Return<Blob> copy_rates(std::int32_t device) {
    return detail::give(detail::make<Blob>(kvmem_cuda_get_copy_rates, device, device));
}
/// Between two GPUs, of which the first does the work.
inline Return<Blob> copy_rates(std::int32_t device, std::int32_t peer) {
    return detail::give(detail::make<Blob>(kvmem_cuda_get_copy_rates, device, peer));
}
/// No bytes discard the rates, so that they are measured again.
inline Return<void> set_copy_rates(std::int32_t device, Bytes rates) {
    return detail::give(detail::run(kvmem_cuda_set_copy_rates, device, device, rates.data(), rates.size()));
}
inline Return<void> set_copy_rates(std::int32_t device, std::int32_t peer, Bytes rates) {
    return detail::give(detail::run(kvmem_cuda_set_copy_rates, device, peer, rates.data(), rates.size()));
}
inline Return<void> use_default_rates(std::int32_t device) {
    return detail::give(detail::run(kvmem_cuda_use_default_rates, device));
}
/// Describes bytes of copy_rates.
inline Return<RatesInfo> describe_rates(Bytes rates) {
    kvmem_rates_info c = {};
    auto text = detail::text(kvmem_cuda_describe_rates, rates.data(), rates.size(), &c);
    if (!text) return detail::give(Result<RatesInfo>(text.error()));
    return detail::give(Result<RatesInfo>(RatesInfo(c, *std::move(text))));
}

// ---- IPC handles ----

using IpcHandle = kvmem_ipc_handle;

/// kvmem_ipc_options.
struct IpcOptions {
    Flags<IpcFlag> flags{};
    /// The driver's handle: `handle` of an IpcHandle.
    std::array<std::uint8_t, 64> handle{};
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::uint64_t base_size = 0;
    std::uint64_t buffer_id = 0;
    std::int32_t device = 0;
    std::int32_t for_device = 0;

    /// Everything of an exported handle: memory of `size` bytes from the exported address on.
    static IpcOptions from(const IpcHandle &exported, std::uint64_t size, std::int32_t device) noexcept {
        IpcOptions options;
        std::memcpy(options.handle.data(), exported.handle, options.handle.size());
        options.offset = exported.offset;
        options.size = size;
        options.base_size = exported.base_size;
        options.buffer_id = exported.buffer_id;
        options.device = device;
        return options;
    }

    kvmem_ipc_options c() const noexcept {
        auto c = detail::defaults<kvmem_ipc_options>();
        c.flags = flags.bits();
        std::memcpy(c.handle, handle.data(), handle.size());
        c.offset = offset;
        c.size = size;
        c.base_size = base_size;
        c.buffer_id = buffer_id;
        c.device = device;
        c.for_device = for_device;
        return c;
    }
};

inline Return<IpcHandle> export_ipc(std::uint64_t address) {
    return detail::give(detail::get<IpcHandle>(kvmem_ipc_export, address));
}
inline Return<Region> open_ipc(const IpcOptions &options) {
    const auto c = options.c();
    return detail::give(detail::make<Region>(kvmem_region_open_ipc, &c));
}

KVMEM_HPP_END

#endif
