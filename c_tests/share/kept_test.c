// SPDX-License-Identifier: Apache-2.0
// Device memory that a peer has open by IPC handle: after its owner destroys it, it is freed when the peer
// closes it. Needs a GPU.
#include "engine.h"
#include "kinds.h"
#include "offer.h"
#include "opened.h"

HOLDER_ROLE

/* Whether the driver knows an address as device memory. */
static bool is_device_memory(uint64_t address) {
    unsigned type = 0;
    const CUresult known =
        driver_get()->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    return known == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE;
}

typedef struct fixture {
    kvmem_region *region;
    uint64_t address;
    parcel parcel;
    peer importer;
} fixture;

/* A region of this process that a peer has opened. */
static void fixture_open(fixture *fixture, kvmem_region *region) {
    retain_device(0); /* without a context the driver would free all memory */
    fixture->region = region;
    fixture->address = region_info(region).address;
    fixture->parcel = parcel_of_region(region, NULL);
    fixture->importer = holder_start();
    CHECK_EQ(holder_open(&fixture->importer, &fixture->parcel, 0), KVMEM_STATUS_OK);
}

static void fixture_close(fixture *fixture) {
    peer_finish(&fixture->importer); /* if it was not killed */
    parcel_close(&fixture->parcel);
    release_device(0);
}

static kvmem_region *own_region(void) {
    kvmem_region *region = memory_create(MEMORY_DEVICE, MEMORY_SIZE, NULL);
    memory_fill(region, 1);
    return region;
}

/* Each of these checks whether importers still have the memory open. */
static void check_by_query(void) {
    static char host[4096];
    OWNED(kvmem_region) other = region_adopt(host, sizeof(host));
    GET(kvmem_region_holders, holders, kvmem_region_get_holders, other);
}

static void check_by_allocating(void) { CALL(kvmem_region_destroy(memory_create(MEMORY_DEVICE, 4096,
                                                                                NULL))); }

static void check_by_sharing(void) {
    OWNED(kvmem_region) other = memory_create(MEMORY_SYSTEM, 4096, NULL);
    OWN(kvmem_share, share, kvmem_share_create_region, other, NULL);
}

static void (*const checks[])(void) = {check_by_query, check_by_allocating, check_by_sharing};

TEST(memory_is_kept_until_the_importer_closes_it) {
    for (size_t i = 0; i < NUM(checks); i++) {
        OPENED(fixture, fixture, own_region());
        CALL(kvmem_region_destroy(fixture.region));
        checks[i]();
        CHECK(is_device_memory(fixture.address));
        CHECK_EQ(holder_check_owner(&fixture.importer), KVMEM_STATUS_PEER_LOST);
        holder_check(&fixture.importer, HOLDING_OPENED, 1);
        holder_close(&fixture.importer);
        checks[i]();
        while (is_device_memory(fixture.address)) sched_yield(); /* a query frees it on another thread */
    }
}

TEST(memory_is_kept_until_the_importer_ends) {
    for (size_t i = 0; i < NUM(checks); i++) {
        OPENED(fixture, fixture, own_region());
        CALL(kvmem_region_destroy(fixture.region));
        checks[i]();
        CHECK(is_device_memory(fixture.address));
        peer_kill(&fixture.importer);
        checks[i]();
        while (is_device_memory(fixture.address)) sched_yield(); /* a query frees it on another thread */
    }
}

TEST(memory_without_importers_is_freed_at_once) {
    OPENED(fixture, fixture, own_region());
    holder_close(&fixture.importer);
    CALL(kvmem_region_destroy(fixture.region));
    CHECK(!is_device_memory(fixture.address));
    CHECK_EQ(holder_open(&fixture.importer, &fixture.parcel, 0), KVMEM_STATUS_PEER_LOST);
}

TEST(memory_of_an_engine_is_released_after_the_last_importer) {
    ENGINE_MEMORY(allocation, 0, MEMORY_SIZE);
    const int before = releases_count();
    OPENED(fixture, fixture, region_adopt_on_gpu(allocation, MEMORY_SIZE, note_release));
    CALL(kvmem_region_destroy(fixture.region));
    check_by_query();
    CHECK_EQ(releases_count(), before);
    holder_close(&fixture.importer);
    check_by_query();
    await_releases(before + 1);
}

/* Two parts of one allocation, like two tensors of an engine. They have the same handle. */
TEST(parts_of_one_allocation_are_opened_separately) {
    ENGINE_MEMORY(allocation, 0, 2 * MEMORY_SIZE);
    kvmem_region *parts[2];
    parcel parcels[2];
    peer importer = holder_start();
    for (size_t i = 0; i < NUM(parts); i++) {
        parts[i] = region_adopt_on_gpu(allocation + i * MEMORY_SIZE, MEMORY_SIZE, NULL);
        memory_fill(parts[i], (uint32_t)i + 1);
        parcels[i] = parcel_of_region(parts[i], NULL);
        CHECK_EQ(holder_open(&importer, &parcels[i], 0), KVMEM_STATUS_OK);
        holder_check(&importer, HOLDING_OPENED, (uint32_t)i + 1);
    }
    holder_close(&importer);
    peer_finish(&importer);
    for (size_t i = 0; i < NUM(parts); i++) {
        CALL(kvmem_region_destroy(parts[i]));
        parcel_close(&parcels[i]);
    }
}
