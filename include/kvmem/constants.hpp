// SPDX-License-Identifier: Apache-2.0
// Generated from the headers by scripts/bindings.py; do not edit.
/// @file
/// The constants of C as types. Their comments are in the headers for C.
#ifndef KVMEM_CONSTANTS_HPP
#define KVMEM_CONSTANTS_HPP

#include "../kvmem.h"
#include "cuda.h"
#include "directory.h"
#include "mode.hpp"
#include "nixl_raw.h"
#include "statistics.h"
#include "store.h"

#include <cstdint>

KVMEM_HPP_BEGIN

/// Importance of a log message.
enum class LogLevel : std::uint32_t {
    off = KVMEM_LOG_OFF,
    error = KVMEM_LOG_ERROR,
    warn = KVMEM_LOG_WARN,
    info = KVMEM_LOG_INFO,
    debug = KVMEM_LOG_DEBUG,
    trace = KVMEM_LOG_TRACE,
};

/// Library or system that the native cause of an error is from.
enum class Domain : std::uint32_t {
    none = KVMEM_DOMAIN_NONE,
    system = KVMEM_DOMAIN_ERRNO,
    nixl = KVMEM_DOMAIN_NIXL,
    cuda = KVMEM_DOMAIN_CUDA,
};

/// Kind of memory of a region.
enum class Tier : std::uint32_t {
    system = KVMEM_TIER_SYSTEM,
    disk = KVMEM_TIER_DISK,
    pinned = KVMEM_TIER_PINNED,
    device = KVMEM_TIER_DEVICE,
    elastic = KVMEM_TIER_ELASTIC,
    object = KVMEM_TIER_OBJECT,
    block = KVMEM_TIER_BLOCK,
};

/// Flags of SystemOptions.
enum class SystemFlag : std::uint64_t {
    transparent_huge_pages = KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES,
    huge_pages_required = KVMEM_SYSTEM_HUGE_PAGES_REQUIRED,
    numa_bind = KVMEM_SYSTEM_NUMA_BIND,
    shareable = KVMEM_SYSTEM_SHAREABLE,
    no_huge_pages = KVMEM_SYSTEM_NO_HUGE_PAGES,
    write_sealed = KVMEM_SYSTEM_WRITE_SEALED,
};

/// Flags of PinnedOptions.
enum class PinnedFlag : std::uint64_t {
    no_huge_pages = KVMEM_PINNED_NO_HUGE_PAGES,
    numa_bind = KVMEM_PINNED_NUMA_BIND,
    shareable = KVMEM_PINNED_SHAREABLE,
    write_sealed = KVMEM_PINNED_WRITE_SEALED,
};

/// Flags of ElasticOptions.
enum class ElasticFlag : std::uint64_t {
    fabric = KVMEM_ELASTIC_FABRIC,
};

/// Flags of DiskOptions.
enum class DiskFlag : std::uint64_t {
    buffered = KVMEM_DISK_BUFFERED,
    direct_required = KVMEM_DISK_DIRECT_REQUIRED,
    open_existing = KVMEM_DISK_OPEN_EXISTING,
    open_or_create = KVMEM_DISK_OPEN_OR_CREATE,
    read_only = KVMEM_DISK_READ_ONLY,
    no_lock = KVMEM_DISK_NO_LOCK,
};

/// Flags of adopted memory.
enum class AdoptFlag : std::uint64_t {
    read_only = KVMEM_ADOPT_READ_ONLY,
    keep_seals = KVMEM_ADOPT_KEEP_SEALS,
};

/// Source of the memory of a region.
enum class Origin : std::uint32_t {
    allocated = KVMEM_ORIGIN_ALLOCATED,
    adopted = KVMEM_ORIGIN_ADOPTED,
    view = KVMEM_ORIGIN_VIEW,
    imported = KVMEM_ORIGIN_IMPORTED,
};

/// Properties of a region.
enum class RegionFlag : std::uint64_t {
    direct_io = KVMEM_REGION_DIRECT_IO,
    preallocated = KVMEM_REGION_PREALLOCATED,
    temporary = KVMEM_REGION_TEMPORARY,
    huge_page_fallback = KVMEM_REGION_HUGE_PAGE_FALLBACK,
    shareable = KVMEM_REGION_SHAREABLE,
    read_only = KVMEM_REGION_READ_ONLY,
};

/// Type of memory of NIXL.
enum class MemoryType : std::uint32_t {
    dram = KVMEM_MEMORY_DRAM,
    vram = KVMEM_MEMORY_VRAM,
    file = KVMEM_MEMORY_FILE,
    block = KVMEM_MEMORY_BLOCK,
    object = KVMEM_MEMORY_OBJECT,
};

/// Who accesses a block.
enum class Accessor : std::uint32_t {
    run = KVMEM_ACCESSOR_RUN,
    ended_run = KVMEM_ACCESSOR_ENDED_RUN,
    lost_run = KVMEM_ACCESSOR_LOST_RUN,
    peer = KVMEM_ACCESSOR_PEER,
    lease = KVMEM_ACCESSOR_LEASE,
};

/// Flags of LeaseOptions.
enum class LeaseFlag : std::uint64_t {
    writes = KVMEM_LEASE_WRITES,
};

/// Processes that can access a layout.
enum class Locality : std::uint32_t {
    local = KVMEM_LOCALITY_LOCAL,
    registered = KVMEM_LOCALITY_REGISTERED,
    remote = KVMEM_LOCALITY_REMOTE,
    mapped = KVMEM_LOCALITY_MAPPED,
};

/// Flags of SubmitOptions.
enum class SubmitFlag : std::uint64_t {
    verify = KVMEM_SUBMIT_VERIFY,
    checksum = KVMEM_SUBMIT_CHECKSUM,
};

/// Flags of TransferOptions.
enum class TransferFlag : std::uint64_t {
    zero_copy = KVMEM_TRANSFER_ZERO_COPY,
    no_host_bounce = KVMEM_TRANSFER_NO_HOST_BOUNCE,
    by_layer = KVMEM_TRANSFER_BY_LAYER,
    report_release = KVMEM_TRANSFER_REPORT_RELEASE,
};

/// What a completion reports.
enum class CompletionKind : std::uint32_t {
    run_ended = KVMEM_COMPLETION_RUN_ENDED,
    layers_moved = KVMEM_COMPLETION_LAYERS_MOVED,
    memory_released = KVMEM_COMPLETION_MEMORY_RELEASED,
    notifications = KVMEM_COMPLETION_NOTIFICATIONS,
    events = KVMEM_COMPLETION_EVENTS,
};

/// Whether kernels of the caller run during a transfer.
enum class Compute : std::uint32_t {
    may_run = KVMEM_COMPUTE_MAY_RUN,
    idle = KVMEM_COMPUTE_IDLE,
};

/// How a transfer moves bytes.
enum class Method : std::uint32_t {
    fastest = 0,
    memcpy = KVMEM_METHOD_MEMCPY,
    cuda_copy = KVMEM_METHOD_CUDA_COPY,
    cuda_batch = KVMEM_METHOD_CUDA_BATCH,
    cuda_2d = KVMEM_METHOD_CUDA_2D,
    cuda_kernel = KVMEM_METHOD_CUDA_KERNEL,
    cuda_staged = KVMEM_METHOD_CUDA_STAGED,
    uring = KVMEM_METHOD_URING,
    pread = KVMEM_METHOD_PREAD,
    nixl = KVMEM_METHOD_NIXL,
    nixl_staged = KVMEM_METHOD_NIXL_STAGED,
    nixl_served = KVMEM_METHOD_NIXL_SERVED,
};

/// What was decided about a method that was compared.
enum class Choice : std::uint32_t {
    used = KVMEM_CHOICE_USED,
    slower = KVMEM_CHOICE_SLOWER,
    not_used = KVMEM_CHOICE_NOT_USED,
    impossible = KVMEM_CHOICE_IMPOSSIBLE,
};

/// Flags of ServeOptions.
enum class ServeFlag : std::uint64_t {
    write = KVMEM_SERVE_WRITE,
    from_host = KVMEM_SERVE_FROM_HOST,
};

/// How a share carries memory.
enum class Transport : std::uint32_t {
    automatic = KVMEM_SHARE_AUTO,
    fd = KVMEM_SHARE_FD,
    ipc = KVMEM_SHARE_IPC,
    remote = KVMEM_SHARE_REMOTE,
    fabric = KVMEM_SHARE_FABRIC,
};

/// Flags of ShareOptions.
enum class ShareFlag : std::uint64_t {
    read_only = KVMEM_SHARE_READ_ONLY,
    write_sealed = KVMEM_SHARE_WRITE_SEALED,
};

/// Flags of OpenOptions.
enum class OpenFlag : std::uint64_t {
    read_only = KVMEM_OPEN_READ_ONLY,
    pin = KVMEM_OPEN_PIN,
    mapped_only = KVMEM_OPEN_MAPPED_ONLY,
    remote = KVMEM_OPEN_REMOTE,
    register_memory = KVMEM_OPEN_REGISTER,
    for_device = KVMEM_OPEN_FOR_DEVICE,
    read_write = KVMEM_OPEN_READ_WRITE,
    trust_owner = KVMEM_OPEN_TRUST_OWNER,
    for_all_devices = KVMEM_OPEN_FOR_ALL_DEVICES,
};

/// Kind of object that is shared.
enum class Shared : std::uint32_t {
    region = KVMEM_SHARED_REGION,
    layout = KVMEM_SHARED_LAYOUT,
};

/// Flags of PublishOptions.
enum class PublishFlag : std::uint64_t {
    read_only = KVMEM_PUBLISH_READ_ONLY,
};

/// Flags of FetchOptions.
enum class FetchFlag : std::uint64_t {
    read_only = KVMEM_FETCH_READ_ONLY,
    broker_user = KVMEM_FETCH_BROKER_USER,
    read_write = KVMEM_FETCH_READ_WRITE,
};

/// When the blocks of a store survive a loss of power.
enum class Durability : std::uint32_t {
    strict = KVMEM_DURABILITY_STRICT,
    relaxed = KVMEM_DURABILITY_RELAXED,
    none = KVMEM_DURABILITY_NONE,
};

/// Who evicts blocks of a store.
enum class Eviction : std::uint32_t {
    store = KVMEM_EVICTION_STORE,
    caller = KVMEM_EVICTION_CALLER,
};

/// Flags of StoreBlocks.
enum class StoreFlag : std::uint64_t {
    unrelated = KVMEM_STORE_UNRELATED,
};

/// Between which kinds of memory a run moves bytes.
enum class Direction : std::uint32_t {
    host_to_host = KVMEM_DIRECTION_HOST_TO_HOST,
    host_to_gpu = KVMEM_DIRECTION_HOST_TO_GPU,
    gpu_to_host = KVMEM_DIRECTION_GPU_TO_HOST,
    gpu_to_gpu = KVMEM_DIRECTION_GPU_TO_GPU,
    read = KVMEM_DIRECTION_READ,
    write = KVMEM_DIRECTION_WRITE,
    pull = KVMEM_DIRECTION_PULL,
    push = KVMEM_DIRECTION_PUSH,
};

/// Flags of AgentOptions.
enum class AgentFlag : std::uint64_t {
    no_progress_thread = KVMEM_AGENT_NO_PROGRESS_THREAD,
    listen_thread = KVMEM_AGENT_LISTEN_THREAD,
    telemetry = KVMEM_AGENT_TELEMETRY,
};

/// Flags of NixlOptions.
enum class NixlFlag : std::uint64_t {
    notify = KVMEM_NIXL_NOTIFY,
    skip_merge = KVMEM_NIXL_SKIP_MERGE,
    report_release = KVMEM_NIXL_REPORT_RELEASE,
};

/// What an event of a directory is about.
enum class DirectoryChange : std::uint32_t {
    published = KVMEM_DIRECTORY_PUBLISHED,
    restarted = KVMEM_DIRECTORY_RESTARTED,
    updated = KVMEM_DIRECTORY_UPDATED,
    withdrawn = KVMEM_DIRECTORY_WITHDRAWN,
    invalid = KVMEM_DIRECTORY_INVALID,
    superseded = KVMEM_DIRECTORY_SUPERSEDED,
    interrupted = KVMEM_DIRECTORY_INTERRUPTED,
    resumed = KVMEM_DIRECTORY_RESUMED,
    restored = KVMEM_DIRECTORY_RESTORED,
    full = KVMEM_DIRECTORY_FULL,
};

/// Direction of a request.
enum class Operation : std::uint32_t {
    read = KVMEM_REQUEST_READ,
    write = KVMEM_REQUEST_WRITE,
};

/// Lock that NIXL uses for an agent.
enum class SyncMode : std::uint32_t {
    standard = KVMEM_SYNC_DEFAULT,
    none = KVMEM_SYNC_NONE,
    strict = KVMEM_SYNC_STRICT,
    rw = KVMEM_SYNC_RW,
};

/// Capabilities of a GPU and its driver.
enum class DeviceCapability : std::uint64_t {
    vmm = KVMEM_CUDA_VMM,
    posix_fd = KVMEM_CUDA_POSIX_FD,
    fabric = KVMEM_CUDA_FABRIC,
    rdma_with_vmm = KVMEM_CUDA_RDMA_WITH_VMM,
    dma_buf = KVMEM_CUDA_DMA_BUF,
    memory_pools = KVMEM_CUDA_MEMORY_POOLS,
    host_numa_vmm = KVMEM_CUDA_HOST_NUMA_VMM,
    batch_copies = KVMEM_CUDA_BATCH_COPIES,
};

/// Source of copy rates.
enum class RatesSource : std::uint32_t {
    standard = KVMEM_RATES_DEFAULT,
    measured = KVMEM_RATES_MEASURED,
    loaded = KVMEM_RATES_LOADED,
};

/// Flags of IpcOptions.
enum class IpcFlag : std::uint64_t {
    for_device = KVMEM_IPC_FOR_DEVICE,
};

/// Where VMM memory is located.
enum class VmmLocation : std::uint32_t {
    device = KVMEM_VMM_DEVICE,
    host_numa = KVMEM_VMM_HOST_NUMA,
};

/// Flags of VmmOptions.
enum class VmmFlag : std::uint64_t {
    posix_fd = KVMEM_VMM_POSIX_FD,
    fabric = KVMEM_VMM_FABRIC,
    rdma = KVMEM_VMM_RDMA,
};

/// Granularity of VMM memory.
enum class Granularity : std::uint32_t {
    minimum = KVMEM_GRANULARITY_MINIMUM,
    recommended = KVMEM_GRANULARITY_RECOMMENDED,
};

/// Access of a GPU to a mapping.
enum class Access : std::uint32_t {
    none = KVMEM_ACCESS_NONE,
    read = KVMEM_ACCESS_READ,
    read_write = KVMEM_ACCESS_READ_WRITE,
};

KVMEM_HPP_END

#endif
