// SPDX-License-Identifier: Apache-2.0
// Creates memory, and copies it by the CPU, by file I/O or by the driver.
#include "memory.h"

#include "driver.h"
#include "engine.h"

#define PAGE 4096
#define ADOPTED_OFFSET 8192 /* in its allocation */

const char *const memory_names[NUM_MEMORY_KINDS] = {
    [MEMORY_SYSTEM] = "system",
    [MEMORY_TRANSPARENT] = "transparent huge pages",
    [MEMORY_RESERVED] = "reserved huge pages",
    [MEMORY_PART] = "part of a file",
    [MEMORY_DISK] = "disk",
    [MEMORY_BUFFERED] = "buffered disk",
    [MEMORY_NAMED] = "named disk",
    [MEMORY_PINNED] = "pinned",
    [MEMORY_DEVICE] = "device",
    [MEMORY_ADOPTED] = "adopted device",
    [MEMORY_MAPPED] = "mapped device",
    [MEMORY_ELASTIC] = "elastic",
    [MEMORY_FABRIC] = "fabric",
};

uint32_t memory_tier(memory_kind kind) {
    switch (kind) {
    case MEMORY_DISK:
    case MEMORY_BUFFERED:
    case MEMORY_NAMED: return KVMEM_TIER_DISK;
    case MEMORY_PINNED: return KVMEM_TIER_PINNED;
    case MEMORY_DEVICE:
    case MEMORY_ADOPTED:
    case MEMORY_MAPPED: return KVMEM_TIER_DEVICE;
    case MEMORY_ELASTIC:
    case MEMORY_FABRIC: return KVMEM_TIER_ELASTIC;
    default: return KVMEM_TIER_SYSTEM;
    }
}

bool memory_has_fd_mapping(memory_kind kind) {
    return memory_tier(kind) == KVMEM_TIER_SYSTEM || memory_tier(kind) == KVMEM_TIER_PINNED;
}

bool memory_has_driver_fds(memory_kind kind) { return kind == MEMORY_ELASTIC || kind == MEMORY_MAPPED; }

bool memory_is_mapped_apart(memory_kind kind) {
    return kind == MEMORY_ELASTIC || kind == MEMORY_MAPPED || kind == MEMORY_FABRIC;
}

bool memory_is_shared_by_handle(memory_kind kind) {
    return kind == MEMORY_DEVICE || kind == MEMORY_ADOPTED || kind == MEMORY_FABRIC;
}

uint32_t memory_transport(memory_kind kind) {
    return kind == MEMORY_FABRIC ? KVMEM_SHARE_FABRIC : KVMEM_SHARE_AUTO;
}

uint32_t memory_transport_found(memory_kind kind) {
    switch (kind) {
    case MEMORY_DEVICE:
    case MEMORY_ADOPTED: return KVMEM_SHARE_IPC;
    case MEMORY_FABRIC: return KVMEM_SHARE_FABRIC;
    default: return KVMEM_SHARE_FD;
    }
}

memory_kind memory_end_of_kinds(void) {
    static memory_kind end;
    if (end == 0) {
        GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, 0);
        end = info.capabilities & KVMEM_CUDA_FABRIC ? NUM_MEMORY_KINDS : MEMORY_FABRIC;
    }
    if (end == MEMORY_FABRIC) SKIP_PART("fabric handles: this driver creates none");
    return end;
}

static kvmem_region *create_system(memory_kind kind, uint64_t size) {
    kvmem_system_options options = OPTIONS(kvmem_system_options, it.flags = KVMEM_SYSTEM_SHAREABLE);
    options.flags |= kind == MEMORY_TRANSPARENT ? KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES : 0;
    options.huge_page_size = kind == MEMORY_RESERVED ? 2 * MIB : 0;
    options.size = size;
    return MADE(kvmem_region, kvmem_region_create_system, &options);
}

/* From the middle of a file that kvmem maps. The engine closes its file descriptor. */
static kvmem_region *adopt_part(uint64_t size) {
    kvmem_adopt_memfd_options options = {.struct_size = sizeof(options)};
    options.fd = memfd_create("engine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(options.fd >= 0);
    CHECK_EQ(ftruncate(options.fd, (off_t)(size + 2 * ADOPTED_OFFSET)), 0);
    CHECK_EQ(fchmod(options.fd, 0600), 0); /* importers must not open it again for writing */
    options.offset = ADOPTED_OFFSET;
    options.size = size;
    GET(kvmem_region *, region, kvmem_region_adopt_memfd, &options);
    close(options.fd);
    return region;
}

static kvmem_region *create_disk(memory_kind kind, uint64_t size, const char *path) {
    return MADE(kvmem_region, kvmem_region_create_disk,
                REF(OPTIONS(kvmem_disk_options, it.flags = kind == MEMORY_BUFFERED ? KVMEM_DISK_BUFFERED : 0,
                            it.path = kind == MEMORY_NAMED ? path : NULL, it.size = size)));
}

static kvmem_region *create_pinned(uint64_t size) {
    kvmem_pinned_options options = OPTIONS(kvmem_pinned_options, it.flags = KVMEM_PINNED_SHAREABLE,
                                           it.chunk_size = MIB, it.size = size);
    return MADE(kvmem_region, kvmem_region_create_pinned, &options);
}

static uint64_t map_granules(uint64_t size) {
    span span;
    span_open_exportable(&span, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, SPAN_MAX, 1);
    while (span.mapped * span.granule < size) span_grow(&span, 0);
    return span.address;
}

static kvmem_region *create_elastic(uint64_t size, uint64_t flags) {
    kvmem_elastic_options options = OPTIONS(kvmem_elastic_options, it.flags = flags, it.size = size,
                                            it.extent_size = MEMORY_EXTENT);
    GET(kvmem_region *, region, kvmem_region_create_elastic, &options);
    EXPECT_OK(kvmem_region_commit(region, 0, size, ERR));
    return region;
}

kvmem_region *memory_create(memory_kind kind, uint64_t size, const char *path) {
    switch (kind) {
    case MEMORY_SYSTEM:
    case MEMORY_TRANSPARENT:
    case MEMORY_RESERVED: return create_system(kind, size);
    case MEMORY_PART: return adopt_part(size);
    case MEMORY_DISK:
    case MEMORY_BUFFERED:
    case MEMORY_NAMED: return create_disk(kind, size, path);
    case MEMORY_PINNED: return create_pinned(size);
    case MEMORY_DEVICE: return region_create_on_gpu(size);
    case MEMORY_ADOPTED:
        return region_adopt_on_gpu(engine_allocate(0, size + 2 * ADOPTED_OFFSET) + ADOPTED_OFFSET, size,
                                   NULL);
    case MEMORY_MAPPED:
        return region_adopt_on_gpu(map_granules(size + 2 * ADOPTED_OFFSET) + ADOPTED_OFFSET, size, NULL);
    case MEMORY_FABRIC: return create_elastic(size, KVMEM_ELASTIC_FABRIC);
    default: return create_elastic(size, 0);
    }
}

static bool is_on_gpu(const kvmem_region_info *info) {
    return info->tier == KVMEM_TIER_DEVICE || info->tier == KVMEM_TIER_ELASTIC;
}

/* Reads or writes the file of a region past its own pages, through aligned buffers. */
static void file_io(const kvmem_region_info *info, uint64_t offset, void *bytes, uint64_t size, bool writes) {
    CHECK_EQ(offset % PAGE + size % PAGE, 0);
    CLEANUP(test_free) void *pages = aligned_alloc(PAGE, size);
    CHECK(pages != NULL);
    const off_t at = (off_t)(info->address + offset);
    if (writes) {
        memcpy(pages, bytes, size);
        CHECK_EQ(pwrite(info->fd, pages, size, at), size);
    } else {
        CHECK_EQ(pread(info->fd, pages, size, at), size);
        memcpy(bytes, pages, size);
    }
}

void memory_write(const kvmem_region *region, uint64_t offset, const void *bytes, uint64_t size) {
    const kvmem_region_info info = region_info(region);
    if (is_on_gpu(&info)) {
        enter_device(info.device);
        CU(cuMemcpyHtoD_v2(info.address + offset, bytes, size));
        CU(cuCtxSynchronize()); /* a copy may return once its source was read */
        leave_device(info.device);
    } else if (info.tier == KVMEM_TIER_DISK) {
        file_io(&info, offset, (void *)(uintptr_t)bytes, size, true);
    } else {
        memcpy((void *)(uintptr_t)(info.address + offset), bytes, size);
    }
}

void memory_read(const kvmem_region *region, uint64_t offset, void *bytes, uint64_t size) {
    const kvmem_region_info info = region_info(region);
    if (is_on_gpu(&info)) read_device(info.device, bytes, info.address + offset, size);
    else if (info.tier == KVMEM_TIER_DISK) file_io(&info, offset, bytes, size, false);
    else memcpy(bytes, (const void *)(uintptr_t)(info.address + offset), size);
}

void memory_fill(const kvmem_region *region, uint32_t seed) {
    const uint64_t size = region_info(region).size;
    unsigned char *bytes = test_allocate(size);
    kv_fill(bytes, size, seed);
    memory_write(region, 0, bytes, size);
    free(bytes);
}

void memory_check_part(const kvmem_region *part, uint64_t offset, uint32_t seed) {
    const uint64_t size = region_info(part).size;
    unsigned char *expected = test_allocate(offset + size);
    unsigned char *bytes = test_allocate(size);
    kv_fill(expected, offset + size, seed);
    memory_read(part, 0, bytes, size);
    CHECK_BYTES(bytes, expected + offset, size);
    free(bytes);
    free(expected);
}

void memory_check(const kvmem_region *region, uint32_t seed) { memory_check_part(region, 0, seed); }
