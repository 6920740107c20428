// SPDX-License-Identifier: Apache-2.0
// Memory of a peer on one GPU, opened for another GPU of this process: kernels of that GPU read and write it.
// Skipped with one GPU; if the two GPUs cannot access each other, most cases are skipped.
#include "offer.h"
#include "kinds.h"
#include "opened.h"
#include "sides.h"

REQUIRES(lacks_two_gpus)

HOLDER_ROLE

#define OWNER 0 /* the GPU that the memory is located on */
#define USER 1  /* the GPU that uses it */

static const struct {
    memory_kind memory;
    blocks_placement placement;
} places[] = {
    {MEMORY_DEVICE, BLOCKS_TOGETHER},
    {MEMORY_DEVICE, BLOCKS_APART},
    {MEMORY_ADOPTED, BLOCKS_APART},
    {MEMORY_MAPPED, BLOCKS_APART},
    {MEMORY_ELASTIC, BLOCKS_TOGETHER},
};

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}};
static const kv_move all_layers = {scattered, NUM(scattered), 0, 0, 3};
static const kv_move one_layer = {scattered, NUM(scattered), 2, 1, 1};

typedef struct fixture {
    peer owner;
    parcel parcel;
    kv_side there; /* what the owner's blocks must be */
    side here;     /* on the other GPU */
} fixture;

static void fixture_open(fixture *fixture, size_t place) {
    const kvmem_layout_config config = blocks_config(&kv_kinds[1]);
    fixture->owner = holder_start();
    holder_build(&fixture->owner, places[place].memory, 1, places[place].placement, NULL, 1);
    fixture->parcel = holder_share(&fixture->owner, NULL);
    kv_model_open(&fixture->there, &config, 1);
    side_open(&fixture->here, PLACE_DEVICE, USER, &config, NULL, 2);
}

static void fixture_close(fixture *fixture) {
    side_close(&fixture->here);
    kv_side_close(&fixture->there);
    parcel_close(&fixture->parcel);
    peer_finish(&fixture->owner);
}

static bool has_peer_access(void) {
    CHECK(driver_devices() >= 2);
    const bool can = gpu_can_access(USER, OWNER), can_be = gpu_can_access(OWNER, USER);
    CHECK_EQ(can, can_be);
    return can;
}

static int retain_both(void) {
    if (!has_peer_access())
        SKIP("GPUs that can access each other: %d and %d of this machine cannot", OWNER, USER);
    retain_device(OWNER);
    retain_device(USER);
    return USER;
}

static void release_both(const int *user) {
    release_device(OWNER);
    release_device(*user);
}

/* Retains two GPUs that can access each other until the end of the scope. */
#define RETAIN_BOTH CLEANUP(release_both) const int retained_user = retain_both()

TEST(kernels_read_and_write_the_memory) {
    RETAIN_BOTH;
    for (size_t place = 0; place < NUM(places); place++) {
        OPENED(fixture, fixture, place);
        const kvmem_layout *own = fixture.here.model.layout;
        OWNED(kvmem_layout) opened = open_layout_for(&fixture.parcel, KVMEM_OPEN_MAPPED_ONLY, USER);
        kvmem_transfer_info info = kv_run_by(opened, own, &all_layers, KVMEM_METHOD_CUDA_KERNEL);
        CHECK_EQ(info.method, KVMEM_METHOD_CUDA_KERNEL);
        kv_expect_moved(&fixture.here.model, &fixture.there, &all_layers);
        side_check(&fixture.here);
        info = kv_run_by(own, opened, &one_layer, KVMEM_METHOD_CUDA_KERNEL);
        CHECK_EQ(info.method, KVMEM_METHOD_CUDA_KERNEL);
        kv_expect_moved(&fixture.there, &fixture.here.model, &one_layer);
        holder_check_model(&fixture.owner, &fixture.there);
    }
}

/* Host memory of this process: the GPU that the memory was opened for runs the transfer. */
TEST(blocks_move_to_the_host_and_back) {
    RETAIN_BOTH;
    OPENED(fixture, fixture, 0);
    OPENED(side, host, PLACE_PINNED, USER, &fixture.here.model.config, NULL, 3);
    OWNED(kvmem_layout) opened = open_layout_for(&fixture.parcel, KVMEM_OPEN_MAPPED_ONLY, USER);
    static const uint32_t methods[] = {KVMEM_METHOD_CUDA_KERNEL, KVMEM_METHOD_CUDA_STAGED,
                                       KVMEM_METHOD_CUDA_COPY};
    for (size_t i = 0; i < NUM(methods); i++) {
        kv_run_by(opened, host.model.layout, &all_layers, methods[i]);
        kv_expect_moved(&host.model, &fixture.there, &all_layers);
        side_check(&host);
        kv_run_by(host.model.layout, opened, &one_layer, methods[i]);
        kv_expect_moved(&fixture.there, &host.model, &one_layer);
        holder_check_model(&fixture.owner, &fixture.there);
        side_refill(&host, 4 + (uint32_t)i);
    }
}

TEST(without_peer_access_it_is_not_opened) {
    if (has_peer_access())
        SKIP("GPUs that cannot access each other: %d and %d of this machine can", OWNER, USER);
    for (size_t place = 0; place < NUM(places); place++) {
        OPENED(offer, offer, places[place].memory, NULL);
        refuse_parcel_for(&offer.parcel, 0, USER, KVMEM_STATUS_UNSUPPORTED, "cannot access");
    }
}

/* Checks the region through the GPU that it was opened for. */
static void check_through_user(const kvmem_region *region, uint32_t seed) {
    const kvmem_region_info info = region_info(region);
    CLEANUP(test_free) unsigned char *expected = test_allocate(info.size);
    CLEANUP(test_free) unsigned char *bytes = test_allocate(info.size);
    kv_fill(expected, info.size, seed);
    read_device(USER, bytes, info.address, info.size);
    CHECK_BYTES(bytes, expected, info.size);
}

/* Each GPU has its own mapping, counted separately. A driver with one mapping per process reports it. */
TEST(each_gpu_has_its_own_mapping) {
    RETAIN_BOTH;
    OPENED(offer, offer, MEMORY_DEVICE, NULL);
    kvmem_region *own = open_parcel(&offer.parcel, 0);
    kvmem_region *named = open_parcel_for(&offer.parcel, 0, OWNER);
    CHECK_EQ(region_info(own).address, region_info(named).address);
    CHECK_EQ(holder_holders(&offer.owner, HOLDING_OWN).importers, 1);
    kvmem_region *other = NULL;
    const kvmem_status status = try_parcel_for(&offer.parcel, 0, USER, &other);
    if (status == KVMEM_STATUS_UNSUPPORTED) {
        CHECK_HAS(test_last_message(), "maps it once");
        CALL(kvmem_region_destroy(own));
        CALL(kvmem_region_destroy(named));
        own = named = NULL;
        other = open_parcel_for(&offer.parcel, 0, USER);
    } else {
        CHECK_EQ(status, KVMEM_STATUS_OK);
        CHECK_EQ(holder_holders(&offer.owner, HOLDING_OWN).importers, 2);
    }
    kvmem_region *again = open_parcel_for(&offer.parcel, 0, USER);
    CHECK_EQ(region_info(other).address, region_info(again).address);
    CHECK_EQ(region_info(other).device, OWNER); /* where the memory is located */
    CALL(kvmem_region_destroy(own));
    CALL(kvmem_region_destroy(named));
    CHECK_EQ(holder_holders(&offer.owner, HOLDING_OWN).importers, 1);
    check_through_user(other, 1);
    holder_fill(&offer.owner, HOLDING_OWN, 2);
    check_through_user(again, 2);
    CALL(kvmem_region_destroy(other));
    CALL(kvmem_region_destroy(again));
    CHECK_EQ(holder_holders(&offer.owner, HOLDING_OWN).importers, 0);
    peer_finish(&offer.owner);
}

/* Kernels of a GPU that the memory was not opened for cannot access it. The error says how to open it for
   that GPU. */
TEST(memory_opened_for_another_gpu_is_copied_by_the_driver) {
    RETAIN_BOTH;
    OPENED(fixture, fixture, 0);
    const kvmem_layout *own = fixture.here.model.layout;
    OWNED(kvmem_layout) opened = open_layout(&fixture.parcel, KVMEM_OPEN_MAPPED_ONLY, NULL);
    kv_job options = WITH(kv_job_of(&all_layers), it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "was opened for device 0", kv_prepare, opened, own, &options);
    kv_run(opened, own, &all_layers);
    kv_expect_moved(&fixture.here.model, &fixture.there, &all_layers);
    side_check(&fixture.here);
}

/* Memory without this choice is opened as without the option. */
TEST(other_memory_ignores_the_device) {
    static const memory_kind kinds[] = {MEMORY_SYSTEM, MEMORY_DISK, MEMORY_PINNED};
    for (size_t i = 0; i < NUM(kinds); i++) {
        OPENED(offer, offer, kinds[i], NULL);
        OWNED(kvmem_region) region = open_parcel_for(&offer.parcel, 0, USER);
        memory_check(region, 1);
    }
}

TEST(a_gpu_that_does_not_exist_fails) {
    OPENED(offer, offer, MEMORY_DEVICE, NULL);
    refuse_parcel_for(&offer.parcel, 0, driver_devices(), KVMEM_STATUS_OUT_OF_RANGE, "there is no device");
    refuse_parcel_for(&offer.parcel, 0, -1, KVMEM_STATUS_OUT_OF_RANGE, "there is no device");
    CHECK_EQ(holder_holders(&offer.owner, HOLDING_OWN).importers, 0);
}
