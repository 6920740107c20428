// SPDX-License-Identifier: Apache-2.0
// The VMM functions: ranges of addresses, memory, mappings, access of GPUs, and destruction in any order.
#include "filled.h"
#include "patience.h"
#include "caller_context.h"

#include <fcntl.h>

CONTEXTS_END

static kvmem_vmm_options vmm_options(int device, uint64_t size) {
    return OPTIONS(kvmem_vmm_options, it.size = size, it.id = device);
}

/* Returns the granularity of sizes and offsets on device 0. */
static uint64_t granule(void) {
    const kvmem_vmm_options options = vmm_options(0, 0);
    GET(uint64_t, bytes, kvmem_vmm_get_granularity, &options, KVMEM_GRANULARITY_MINIMUM);
    return bytes;
}

static kvmem_vmm_range *reserve(uint64_t granules) {
    return MADE(kvmem_vmm_range, kvmem_vmm_range_create, granules * granule(), 0, NULL);
}

static kvmem_vmm_memory *create(const kvmem_vmm_options *options) {
    return MADE(kvmem_vmm_memory, kvmem_vmm_memory_create, options);
}

static kvmem_vmm_memory *create_granules(uint64_t granules) {
    const kvmem_vmm_options options = vmm_options(0, granules * granule());
    return create(&options);
}

static kvmem_vmm_mapping *map(kvmem_vmm_range *range, uint64_t offset, kvmem_vmm_memory *memory,
                              kvmem_vmm_span *span) {
    return MADE(kvmem_vmm_mapping, kvmem_vmm_mapping_create, range, offset, memory, span);
}

/* A range, memory, and a mapping of the memory in the range. Sizes and offsets of vmm_open are in
   granules. */
typedef struct vmm {
    kvmem_vmm_range *range;
    kvmem_vmm_memory *memory;
    kvmem_vmm_mapping *mapping;
    kvmem_vmm_span reserved, mapped;
} vmm;

static void vmm_open(vmm *vmm, uint64_t reserved, uint64_t offset, uint64_t created) {
    vmm->range = MADE(kvmem_vmm_range, kvmem_vmm_range_create, reserved * granule(), 0, &vmm->reserved);
    vmm->memory = create_granules(created);
    vmm->mapping = map(vmm->range, offset * granule(), vmm->memory, &vmm->mapped);
}

static void vmm_close(vmm *vmm) {
    CALL(kvmem_vmm_mapping_destroy(vmm->mapping));
    CALL(kvmem_vmm_memory_destroy(vmm->memory));
    CALL(kvmem_vmm_range_destroy(vmm->range));
}

static void allow(kvmem_vmm_mapping *mapping) {
    EXPECT_OK(kvmem_vmm_mapping_set_access(mapping, 0, KVMEM_ACCESS_READ_WRITE, ERR));
}

static void expect_access(const kvmem_vmm_mapping *mapping, uint32_t expected) {
    uint32_t access = ~expected;
    EXPECT_OK(kvmem_vmm_mapping_get_access(mapping, 0, &access, ERR));
    CHECK_EQ(access, expected);
}

TEST(mapped_memory_is_written_and_read) {
    const uint64_t unit = granule();
    OPENED(vmm, vmm, 4, 1, 2);
    const uint64_t start = vmm.reserved.address, address = vmm.mapped.address;
    CHECK(start != 0);
    CHECK_EQ(vmm.reserved.size, 4 * unit);
    CHECK_EQ(address, start + unit);
    CHECK_EQ(vmm.mapped.size, 2 * unit);
    allow(vmm.mapping);
    fill_device(0, address, 2 * unit, 0x5A);
    check_device(0, address, 2 * unit, 0x5A);
}

TEST(memory_outlives_its_mapping) {
    OPENED(vmm, vmm, 2, 0, 1);
    allow(vmm.mapping);
    fill_device(0, vmm.mapped.address, 4096, 0x33);
    CALL(kvmem_vmm_mapping_destroy(vmm.mapping));
    vmm.mapping = map(vmm.range, granule(), vmm.memory, &vmm.mapped);
    allow(vmm.mapping);
    check_device(0, vmm.mapped.address, 4096, 0x33);
}

TEST(memory_of_a_numa_node_is_mapped) {
    GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, 0);
    CHECK(info.capabilities & KVMEM_CUDA_HOST_NUMA_VMM);
    kvmem_vmm_options options = WITH(vmm_options(info.numa_node, 0), it.location = KVMEM_VMM_HOST_NUMA);
    EXPECT_OK(kvmem_vmm_get_granularity(&options, KVMEM_GRANULARITY_MINIMUM, &options.size, ERR));
    CLEANUP(vmm_close) vmm vmm = {.range = reserve(options.size / granule() + 1), .memory = create(&options)};
    vmm.mapping = map(vmm.range, 0, vmm.memory, &vmm.mapped);
    allow(vmm.mapping);
    fill_device(0, vmm.mapped.address, 4096, 0x66);
    check_device(0, vmm.mapped.address, 4096, 0x66);
}

TEST(access_is_that_of_the_last_call) {
    static const uint32_t accesses[] = {KVMEM_ACCESS_READ, KVMEM_ACCESS_READ_WRITE, KVMEM_ACCESS_NONE};
    OPENED(vmm, vmm, 1, 0, 1);
    expect_access(vmm.mapping, KVMEM_ACCESS_NONE);
    for (size_t i = 0; i < NUM(accesses); i++) {
        EXPECT_OK(kvmem_vmm_mapping_set_access(vmm.mapping, 0, accesses[i], ERR));
        expect_access(vmm.mapping, accesses[i]);
    }
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "access",
                   kvmem_vmm_mapping_set_access(vmm.mapping, 0, 2, ERR));
    expect_access(vmm.mapping, KVMEM_ACCESS_NONE);
}

static void await_free(uint64_t bytes) {
    const uint64_t end = patience_end();
    while (free_memory(0) < bytes) patience_wait(end, "memory to be freed");
}

/* A mapping keeps its range and memory alive. Everything is freed with the last of the three handles. */
TEST(any_order_of_destruction_is_safe) {
    static const char *const orders[] = {"rxm", "rmx", "xrm", "xmr", "mrx", "mxr"}; /* x: the mapping */
    RETAIN_DEVICE(0);
    const uint64_t before = free_memory(0);
    for (size_t i = 0; i < NUM(orders); i++) {
        vmm vmm;
        vmm_open(&vmm, 32, 0, 32);
        const uint64_t address = vmm.mapped.address;
        allow(vmm.mapping);
        for (const char *next = orders[i]; *next != '\0'; next++) {
            if (*next == 'r') {
                CALL(kvmem_vmm_range_destroy(vmm.range));
            } else if (*next == 'm') {
                CALL(kvmem_vmm_memory_destroy(vmm.memory));
            } else {
                fill_device(0, address, 4096, 0x11);
                check_device(0, address, 4096, 0x11);
                CALL(kvmem_vmm_mapping_destroy(vmm.mapping));
            }
        }
        await_free(before);
    }
}

TEST(overlapping_mappings_are_rejected) {
    const uint64_t unit = granule();
    OWNED(kvmem_vmm_range) range = reserve(5);
    OWNED(kvmem_vmm_memory) one = create_granules(1);
    OWNED(kvmem_vmm_memory) three = create_granules(3);
    kvmem_vmm_mapping *mapping = map(range, 2 * unit, one, NULL);
    const kvmem_status already_exists = KVMEM_STATUS_ALREADY_EXISTS;
    const char *const message = TEXT("mapped at offset %ju", 2 * (uintmax_t)unit);
    REFUSE(already_exists, message, kvmem_vmm_mapping_create, range, 2 * unit, one, NULL);
    for (uint64_t first = 0; first <= 2; first++)
        REFUSE(already_exists, message, kvmem_vmm_mapping_create, range, first * unit, three, NULL);
    kvmem_vmm_mapping *adjacent = map(range, 3 * unit, one, NULL);
    CALL(kvmem_vmm_mapping_destroy(adjacent));
    CALL(kvmem_vmm_mapping_destroy(mapping));
    mapping = map(range, 2 * unit, three, NULL); /* nothing is mapped */
    CALL(kvmem_vmm_mapping_destroy(mapping));
}

TEST(invalid_offsets_are_rejected) {
    const uint64_t unit = granule();
    OWNED(kvmem_vmm_range) range = reserve(3);
    OWNED(kvmem_vmm_memory) memory = create_granules(2);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "granularity", kvmem_vmm_mapping_create, range, unit / 2, memory, NULL);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "granularity", kvmem_vmm_mapping_create, range, 1, memory, NULL);
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "do not fit", kvmem_vmm_mapping_create, range, 2 * unit, memory, NULL);
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "do not fit", kvmem_vmm_mapping_create, range, 3 * unit, memory, NULL);
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "do not fit", kvmem_vmm_mapping_create, range, 0 - unit, memory, NULL);
}

static void refuse_range(uint64_t size, uint64_t alignment, const char *part) {
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, part, kvmem_vmm_range_create, size, alignment, NULL);
}

TEST(invalid_ranges_are_rejected) {
    refuse_range(0, 0, "0 bytes");
    refuse_range(granule() + 1, 0, "page size");
    refuse_range(granule(), 3 * granule(), "power of two");
}

TEST(a_range_has_the_requested_alignment) {
    const uint64_t alignment = 64 * MIB;
    kvmem_vmm_span span;
    OWN(kvmem_vmm_range, range, kvmem_vmm_range_create, granule(), alignment, &span);
    CHECK_EQ(span.address % alignment, 0);
    CHECK_EQ(span.size, granule());
}

static void refuse_memory(const kvmem_vmm_options *options, kvmem_status status, const char *part) {
    REFUSE(status, part, kvmem_vmm_memory_create, options);
}

TEST(invalid_sizes_are_rejected) {
    kvmem_vmm_options options = vmm_options(0, 0);
    refuse_memory(&options, KVMEM_STATUS_INVALID_ARGUMENT, "0 bytes");
    options.size = granule() + 1;
    refuse_memory(&options, KVMEM_STATUS_INVALID_ARGUMENT, "granularity");
    options.size = granule() / 2;
    refuse_memory(&options, KVMEM_STATUS_INVALID_ARGUMENT, "granularity");
}

/* Querying the free memory needs a context. None is created for it; the message contains the total memory
   instead. */
TEST(errors_contain_the_requested_and_the_free_bytes) {
    CU_GET(size_t, memory, cuDeviceTotalMem_v2(&memory, 0));
    const uint64_t requested = 2 * memory / granule() * granule();
    const kvmem_vmm_options options = vmm_options(0, requested);
    refuse_memory(&options, KVMEM_STATUS_OUT_OF_MEMORY,
                  TEXT("%ju bytes requested, the device has %ju", (uintmax_t)requested, (uintmax_t)memory));
    CHECK(!has_primary_context(0));
    RETAIN_DEVICE(0);
    refuse_memory(&options, KVMEM_STATUS_OUT_OF_MEMORY, TEXT("%ju bytes requested", (uintmax_t)requested));
    CHECK_HAS(test_last_message(), "free");
}

TEST(missing_devices_are_rejected) {
    OPENED(vmm, vmm, 1, 0, 1);
    EACH_MISSING_DEVICE(missing) {
        const char *const text = TEXT("%d", *missing);
        const kvmem_vmm_options options = vmm_options(*missing, granule());
        const kvmem_status expected = KVMEM_STATUS_OUT_OF_RANGE;
        uint64_t granularity = 0;
        uint32_t access = 0;
        EXPECT_MESSAGE(expected, text,
                       kvmem_vmm_get_granularity(&options, KVMEM_GRANULARITY_MINIMUM, &granularity, ERR));
        refuse_memory(&options, expected, text);
        EXPECT_MESSAGE(expected, text,
                       kvmem_vmm_mapping_set_access(vmm.mapping, *missing, KVMEM_ACCESS_READ, ERR));
        EXPECT_MESSAGE(expected, text, kvmem_vmm_mapping_get_access(vmm.mapping, *missing, &access, ERR));
    }
}

TEST(memory_can_be_exported_if_it_was_created_exportable) {
    kvmem_vmm_options options = vmm_options(0, granule());
    kvmem_vmm_memory *inside = create(&options);
    int32_t fd = -5;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "not created to be exported",
                   kvmem_vmm_memory_export_fd(inside, &fd, ERR));
    CHECK_EQ(fd, -5);
    CALL(kvmem_vmm_memory_destroy(inside));
    options.flags = KVMEM_VMM_POSIX_FD | KVMEM_VMM_RDMA;
    kvmem_vmm_memory *outside = create(&options);
    EXPECT_OK(kvmem_vmm_memory_export_fd(outside, &fd, ERR));
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CALL(kvmem_vmm_memory_destroy(outside));
    CHECK_EQ(close(fd), 0);
}

TEST(vmm_functions_create_no_context) {
    vmm vmm;
    vmm_open(&vmm, 1, 0, 1);
    allow(vmm.mapping);
    CHECK(!has_primary_context(0));
    vmm_close(&vmm);
    CHECK(!has_primary_context(0));
}
