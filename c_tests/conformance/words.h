/* SPDX-License-Identifier: Apache-2.0 */
/* Generated from the headers by scripts/bindings.py; do not edit.
 * For the runners in C and C++: the words of the tables, from the constants of the headers. */
#ifndef WORDS_H
#define WORDS_H

#include <kvmem.h>
#include <kvmem/cuda.h>
#include <kvmem/directory.h>
#include <kvmem/nixl_raw.h>
#include <kvmem/statistics.h>
#include <kvmem/store.h>
#include <stddef.h>
#include <stdint.h>

/* A word and the constant that it stands for. Lists end with {NULL, 0}. */
struct word {
    const char *text;
    uint64_t value;
};

static const struct word log_levels[] = {
    {"off", KVMEM_LOG_OFF},
    {"error", KVMEM_LOG_ERROR},
    {"warn", KVMEM_LOG_WARN},
    {"info", KVMEM_LOG_INFO},
    {"debug", KVMEM_LOG_DEBUG},
    {"trace", KVMEM_LOG_TRACE},
    {NULL, 0},
};

static const struct word domains[] = {
    {"none", KVMEM_DOMAIN_NONE},
    {"errno", KVMEM_DOMAIN_ERRNO},
    {"nixl", KVMEM_DOMAIN_NIXL},
    {"cuda", KVMEM_DOMAIN_CUDA},
    {NULL, 0},
};

static const struct word tiers[] = {
    {"system", KVMEM_TIER_SYSTEM},
    {"disk", KVMEM_TIER_DISK},
    {"pinned", KVMEM_TIER_PINNED},
    {"device", KVMEM_TIER_DEVICE},
    {"elastic", KVMEM_TIER_ELASTIC},
    {"object", KVMEM_TIER_OBJECT},
    {"block", KVMEM_TIER_BLOCK},
    {NULL, 0},
};

static const struct word system_flags[] = {
    {"transparent_huge_pages", KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES},
    {"huge_pages_required", KVMEM_SYSTEM_HUGE_PAGES_REQUIRED},
    {"numa_bind", KVMEM_SYSTEM_NUMA_BIND},
    {"shareable", KVMEM_SYSTEM_SHAREABLE},
    {"no_huge_pages", KVMEM_SYSTEM_NO_HUGE_PAGES},
    {"write_sealed", KVMEM_SYSTEM_WRITE_SEALED},
    {NULL, 0},
};

static const struct word pinned_flags[] = {
    {"no_huge_pages", KVMEM_PINNED_NO_HUGE_PAGES},
    {"numa_bind", KVMEM_PINNED_NUMA_BIND},
    {"shareable", KVMEM_PINNED_SHAREABLE},
    {"write_sealed", KVMEM_PINNED_WRITE_SEALED},
    {NULL, 0},
};

static const struct word elastic_flags[] = {
    {"fabric", KVMEM_ELASTIC_FABRIC},
    {NULL, 0},
};

static const struct word disk_flags[] = {
    {"buffered", KVMEM_DISK_BUFFERED},
    {"direct_required", KVMEM_DISK_DIRECT_REQUIRED},
    {"open_existing", KVMEM_DISK_OPEN_EXISTING},
    {"open_or_create", KVMEM_DISK_OPEN_OR_CREATE},
    {"read_only", KVMEM_DISK_READ_ONLY},
    {"no_lock", KVMEM_DISK_NO_LOCK},
    {NULL, 0},
};

static const struct word adopt_flags[] = {
    {"read_only", KVMEM_ADOPT_READ_ONLY},
    {"keep_seals", KVMEM_ADOPT_KEEP_SEALS},
    {NULL, 0},
};

static const struct word origins[] = {
    {"allocated", KVMEM_ORIGIN_ALLOCATED},
    {"adopted", KVMEM_ORIGIN_ADOPTED},
    {"view", KVMEM_ORIGIN_VIEW},
    {"imported", KVMEM_ORIGIN_IMPORTED},
    {NULL, 0},
};

static const struct word region_flags[] = {
    {"direct_io", KVMEM_REGION_DIRECT_IO},
    {"preallocated", KVMEM_REGION_PREALLOCATED},
    {"temporary", KVMEM_REGION_TEMPORARY},
    {"huge_page_fallback", KVMEM_REGION_HUGE_PAGE_FALLBACK},
    {"shareable", KVMEM_REGION_SHAREABLE},
    {"read_only", KVMEM_REGION_READ_ONLY},
    {NULL, 0},
};

static const struct word memory_types[] = {
    {"dram", KVMEM_MEMORY_DRAM},
    {"vram", KVMEM_MEMORY_VRAM},
    {"file", KVMEM_MEMORY_FILE},
    {"block", KVMEM_MEMORY_BLOCK},
    {"object", KVMEM_MEMORY_OBJECT},
    {NULL, 0},
};

static const struct word accessors[] = {
    {"run", KVMEM_ACCESSOR_RUN},
    {"ended_run", KVMEM_ACCESSOR_ENDED_RUN},
    {"lost_run", KVMEM_ACCESSOR_LOST_RUN},
    {"peer", KVMEM_ACCESSOR_PEER},
    {"lease", KVMEM_ACCESSOR_LEASE},
    {NULL, 0},
};

static const struct word lease_flags[] = {
    {"writes", KVMEM_LEASE_WRITES},
    {NULL, 0},
};

static const struct word localities[] = {
    {"local", KVMEM_LOCALITY_LOCAL},
    {"registered", KVMEM_LOCALITY_REGISTERED},
    {"remote", KVMEM_LOCALITY_REMOTE},
    {"mapped", KVMEM_LOCALITY_MAPPED},
    {NULL, 0},
};

static const struct word submit_flags[] = {
    {"verify", KVMEM_SUBMIT_VERIFY},
    {"checksum", KVMEM_SUBMIT_CHECKSUM},
    {NULL, 0},
};

static const struct word transfer_flags[] = {
    {"zero_copy", KVMEM_TRANSFER_ZERO_COPY},
    {"no_host_bounce", KVMEM_TRANSFER_NO_HOST_BOUNCE},
    {"by_layer", KVMEM_TRANSFER_BY_LAYER},
    {"report_release", KVMEM_TRANSFER_REPORT_RELEASE},
    {NULL, 0},
};

static const struct word completion_kinds[] = {
    {"run_ended", KVMEM_COMPLETION_RUN_ENDED},
    {"layers_moved", KVMEM_COMPLETION_LAYERS_MOVED},
    {"memory_released", KVMEM_COMPLETION_MEMORY_RELEASED},
    {"notifications", KVMEM_COMPLETION_NOTIFICATIONS},
    {"events", KVMEM_COMPLETION_EVENTS},
    {NULL, 0},
};

static const struct word computes[] = {
    {"may_run", KVMEM_COMPUTE_MAY_RUN},
    {"idle", KVMEM_COMPUTE_IDLE},
    {NULL, 0},
};

static const struct word methods[] = {
    {"memcpy", KVMEM_METHOD_MEMCPY},
    {"cuda_copy", KVMEM_METHOD_CUDA_COPY},
    {"cuda_batch", KVMEM_METHOD_CUDA_BATCH},
    {"cuda_2d", KVMEM_METHOD_CUDA_2D},
    {"cuda_kernel", KVMEM_METHOD_CUDA_KERNEL},
    {"cuda_staged", KVMEM_METHOD_CUDA_STAGED},
    {"uring", KVMEM_METHOD_URING},
    {"pread", KVMEM_METHOD_PREAD},
    {"nixl", KVMEM_METHOD_NIXL},
    {"nixl_staged", KVMEM_METHOD_NIXL_STAGED},
    {"nixl_served", KVMEM_METHOD_NIXL_SERVED},
    {NULL, 0},
};

static const struct word choices[] = {
    {"used", KVMEM_CHOICE_USED},
    {"slower", KVMEM_CHOICE_SLOWER},
    {"not_used", KVMEM_CHOICE_NOT_USED},
    {"impossible", KVMEM_CHOICE_IMPOSSIBLE},
    {NULL, 0},
};

static const struct word serve_flags[] = {
    {"write", KVMEM_SERVE_WRITE},
    {"from_host", KVMEM_SERVE_FROM_HOST},
    {NULL, 0},
};

static const struct word transports[] = {
    {"auto", KVMEM_SHARE_AUTO},
    {"fd", KVMEM_SHARE_FD},
    {"ipc", KVMEM_SHARE_IPC},
    {"remote", KVMEM_SHARE_REMOTE},
    {"fabric", KVMEM_SHARE_FABRIC},
    {NULL, 0},
};

static const struct word share_flags[] = {
    {"read_only", KVMEM_SHARE_READ_ONLY},
    {"write_sealed", KVMEM_SHARE_WRITE_SEALED},
    {NULL, 0},
};

static const struct word open_flags[] = {
    {"read_only", KVMEM_OPEN_READ_ONLY},
    {"pin", KVMEM_OPEN_PIN},
    {"mapped_only", KVMEM_OPEN_MAPPED_ONLY},
    {"remote", KVMEM_OPEN_REMOTE},
    {"register", KVMEM_OPEN_REGISTER},
    {"for_device", KVMEM_OPEN_FOR_DEVICE},
    {"read_write", KVMEM_OPEN_READ_WRITE},
    {"trust_owner", KVMEM_OPEN_TRUST_OWNER},
    {"for_all_devices", KVMEM_OPEN_FOR_ALL_DEVICES},
    {NULL, 0},
};

static const struct word shared_objects[] = {
    {"region", KVMEM_SHARED_REGION},
    {"layout", KVMEM_SHARED_LAYOUT},
    {NULL, 0},
};

static const struct word publish_flags[] = {
    {"read_only", KVMEM_PUBLISH_READ_ONLY},
    {NULL, 0},
};

static const struct word fetch_flags[] = {
    {"read_only", KVMEM_FETCH_READ_ONLY},
    {"broker_user", KVMEM_FETCH_BROKER_USER},
    {"read_write", KVMEM_FETCH_READ_WRITE},
    {NULL, 0},
};

static const struct word durabilities[] = {
    {"strict", KVMEM_DURABILITY_STRICT},
    {"relaxed", KVMEM_DURABILITY_RELAXED},
    {"none", KVMEM_DURABILITY_NONE},
    {NULL, 0},
};

static const struct word evictions[] = {
    {"store", KVMEM_EVICTION_STORE},
    {"caller", KVMEM_EVICTION_CALLER},
    {NULL, 0},
};

static const struct word store_flags[] = {
    {"unrelated", KVMEM_STORE_UNRELATED},
    {NULL, 0},
};

static const struct word directions[] = {
    {"host_to_host", KVMEM_DIRECTION_HOST_TO_HOST},
    {"host_to_gpu", KVMEM_DIRECTION_HOST_TO_GPU},
    {"gpu_to_host", KVMEM_DIRECTION_GPU_TO_HOST},
    {"gpu_to_gpu", KVMEM_DIRECTION_GPU_TO_GPU},
    {"read", KVMEM_DIRECTION_READ},
    {"write", KVMEM_DIRECTION_WRITE},
    {"pull", KVMEM_DIRECTION_PULL},
    {"push", KVMEM_DIRECTION_PUSH},
    {NULL, 0},
};

static const struct word agent_flags[] = {
    {"no_progress_thread", KVMEM_AGENT_NO_PROGRESS_THREAD},
    {"listen_thread", KVMEM_AGENT_LISTEN_THREAD},
    {"telemetry", KVMEM_AGENT_TELEMETRY},
    {NULL, 0},
};

static const struct word nixl_flags[] = {
    {"notify", KVMEM_NIXL_NOTIFY},
    {"skip_merge", KVMEM_NIXL_SKIP_MERGE},
    {"report_release", KVMEM_NIXL_REPORT_RELEASE},
    {NULL, 0},
};

static const struct word directory_changes[] = {
    {"published", KVMEM_DIRECTORY_PUBLISHED},
    {"restarted", KVMEM_DIRECTORY_RESTARTED},
    {"updated", KVMEM_DIRECTORY_UPDATED},
    {"withdrawn", KVMEM_DIRECTORY_WITHDRAWN},
    {"invalid", KVMEM_DIRECTORY_INVALID},
    {"superseded", KVMEM_DIRECTORY_SUPERSEDED},
    {"interrupted", KVMEM_DIRECTORY_INTERRUPTED},
    {"resumed", KVMEM_DIRECTORY_RESUMED},
    {"restored", KVMEM_DIRECTORY_RESTORED},
    {"full", KVMEM_DIRECTORY_FULL},
    {NULL, 0},
};

static const struct word operations[] = {
    {"read", KVMEM_REQUEST_READ},
    {"write", KVMEM_REQUEST_WRITE},
    {NULL, 0},
};

static const struct word sync_modes[] = {
    {"default", KVMEM_SYNC_DEFAULT},
    {"none", KVMEM_SYNC_NONE},
    {"strict", KVMEM_SYNC_STRICT},
    {"rw", KVMEM_SYNC_RW},
    {NULL, 0},
};

static const struct word cuda_capabilities[] = {
    {"vmm", KVMEM_CUDA_VMM},
    {"posix_fd", KVMEM_CUDA_POSIX_FD},
    {"fabric", KVMEM_CUDA_FABRIC},
    {"rdma_with_vmm", KVMEM_CUDA_RDMA_WITH_VMM},
    {"dma_buf", KVMEM_CUDA_DMA_BUF},
    {"memory_pools", KVMEM_CUDA_MEMORY_POOLS},
    {"host_numa_vmm", KVMEM_CUDA_HOST_NUMA_VMM},
    {"batch_copies", KVMEM_CUDA_BATCH_COPIES},
    {NULL, 0},
};

static const struct word rates_sources[] = {
    {"default", KVMEM_RATES_DEFAULT},
    {"measured", KVMEM_RATES_MEASURED},
    {"loaded", KVMEM_RATES_LOADED},
    {NULL, 0},
};

static const struct word ipc_flags[] = {
    {"for_device", KVMEM_IPC_FOR_DEVICE},
    {NULL, 0},
};

static const struct word vmm_locations[] = {
    {"device", KVMEM_VMM_DEVICE},
    {"host_numa", KVMEM_VMM_HOST_NUMA},
    {NULL, 0},
};

static const struct word vmm_flags[] = {
    {"posix_fd", KVMEM_VMM_POSIX_FD},
    {"fabric", KVMEM_VMM_FABRIC},
    {"rdma", KVMEM_VMM_RDMA},
    {NULL, 0},
};

static const struct word granularities[] = {
    {"minimum", KVMEM_GRANULARITY_MINIMUM},
    {"recommended", KVMEM_GRANULARITY_RECOMMENDED},
    {NULL, 0},
};

static const struct word accesses[] = {
    {"none", KVMEM_ACCESS_NONE},
    {"read", KVMEM_ACCESS_READ},
    {"read_write", KVMEM_ACCESS_READ_WRITE},
    {NULL, 0},
};

#endif
