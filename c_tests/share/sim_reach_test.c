// SPDX-License-Identifier: Apache-2.0
// The GPUs that imported VMM memory is open for, and the driver calls for it: first its own GPU, and another
// one when a transfer first runs there or the caller requests it, each once. Needs the stand-in driver.
#include "control.h"
#include "driver.h"
#include "offer.h"
#include "kinds.h"
#include "opened.h"
#include "sides.h"

HOLDER_ROLE

#define OWNER 0 /* the GPU that the memory is located on */
#define OTHER 1

static const memory_kind kinds[] = {MEMORY_ELASTIC, MEMORY_MAPPED, MEMORY_FABRIC};

static unsigned long long access_of(uint64_t address, int device) {
    const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    unsigned long long flags = 0;
    CU(cuMemGetAccess(&flags, &location, address));
    return flags;
}

static void expect_access(const kvmem_region *region, unsigned long long of_owner,
                          unsigned long long of_other) {
    const kvmem_region_info info = region_info(region);
    CHECK_EQ(access_of(info.address, OWNER), of_owner);
    CHECK_EQ(access_of(info.address, OTHER), of_other);
    CHECK_EQ(access_of(info.address + info.size - 1, OWNER), of_owner);
    CHECK_EQ(access_of(info.address + info.size - 1, OTHER), of_other);
}

#define NONE CU_MEM_ACCESS_FLAGS_PROT_NONE
#define READ CU_MEM_ACCESS_FLAGS_PROT_READ
#define BOTH CU_MEM_ACCESS_FLAGS_PROT_READWRITE

static kvmem_region *open_for_all(const parcel *parcel, uint64_t flags) {
    return open_parcel(parcel, flags | KVMEM_OPEN_FOR_ALL_DEVICES);
}

TEST(memory_is_opened_for_its_own_gpu_in_one_call) {
    for (size_t i = 0; i < NUM(kinds); i++) {
        OPENED(offer, offer, kinds[i], NULL);
        SIM(sim_reset());
        OWNED(kvmem_region) region = open_parcel(&offer.parcel, 0);
        CHECK_EQ(SIM(sim_calls("cuMemSetAccess")), 1);
        expect_access(region, BOTH, NONE);
    }
}

TEST(access_for_another_gpu_is_requested) {
    for (size_t i = 0; i < NUM(kinds); i++) {
        OPENED(offer, offer, kinds[i], NULL);
        SIM(sim_reset());
        OWNED(kvmem_region) region = open_parcel_for(&offer.parcel, 0, OTHER);
        CHECK_EQ(SIM(sim_calls("cuMemSetAccess")), 1);
        expect_access(region, BOTH, BOTH);
        CALL(kvmem_region_destroy(region));
        region = open_for_all(&offer.parcel, KVMEM_OPEN_READ_ONLY);
        CHECK_EQ(SIM(sim_calls("cuMemSetAccess")), 2);
        expect_access(region, READ, READ);
    }
}

/* The region that is already open gets the missing access, with its own rights. */
TEST(opening_again_adds_access) {
    for (size_t i = 0; i < NUM(kinds); i++) {
        OPENED(offer, offer, kinds[i], NULL);
        OWNED(kvmem_region) region = open_parcel(&offer.parcel, KVMEM_OPEN_READ_ONLY);
        expect_access(region, READ, NONE);
        SIM(sim_reset());
        OWNED(kvmem_region) again = open_parcel_for(&offer.parcel, KVMEM_OPEN_READ_ONLY, OTHER);
        CHECK_EQ(region_info(again).address, region_info(region).address);
        CHECK_EQ(SIM(sim_calls("cuMemSetAccess")), 1);
        expect_access(region, READ, READ);
        OWNED(kvmem_region) all = open_for_all(&offer.parcel, KVMEM_OPEN_READ_ONLY);
        CHECK_EQ(SIM(sim_calls("cuMemSetAccess")), 1);
    }
}

TEST(a_transfer_adds_access_for_its_gpu_once) {
    static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}};
    static const kv_move move = {scattered, NUM(scattered), 0, 0, 3};
    const kvmem_layout_config config = blocks_config(&kv_kinds[1]);
    CLEANUP(peer_finish) peer owner = holder_start();
    holder_build(&owner, MEMORY_ELASTIC, 1, BLOCKS_TOGETHER, NULL, 1);
    CLEANUP(parcel_close) parcel parcel = holder_share(&owner, NULL);
    CLEANUP(kv_side_close) kv_side there;
    kv_model_open(&there, &config, 1);
    OPENED(side, here, PLACE_DEVICE, OTHER, &config, NULL, 2);
    OWNED(kvmem_layout) opened = open_layout(&parcel, KVMEM_OPEN_MAPPED_ONLY, NULL);
    OWN(kvmem_region, region, kvmem_layout_get_region, opened, 0);
    expect_access(region, BOTH, NONE);
    kvmem_transfer_info info = kv_run_by(opened, here.model.layout, &move, KVMEM_METHOD_CUDA_KERNEL);
    CHECK_EQ(info.method, KVMEM_METHOD_CUDA_KERNEL);
    expect_access(region, BOTH, BOTH);
    kv_expect_moved(&here.model, &there, &move);
    side_check(&here);
    SIM(sim_reset());
    kv_run_by(opened, here.model.layout, &move, KVMEM_METHOD_CUDA_KERNEL);
    CHECK_EQ(SIM(sim_calls("cuMemSetAccess")), 0);
}

/* Elastic memory of this process, also extents that it commits later. */
TEST(own_memory_gets_access_for_the_gpu_that_needs_it) {
    static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}};
    static const kv_move move = {scattered, NUM(scattered), 0, 0, 3};
    const kvmem_layout_config config = blocks_config(&kv_kinds[0]);
    OPENED(side, here, PLACE_ELASTIC, OWNER, &config, NULL, 1);
    OPENED(side, there, PLACE_ELASTIC, OTHER, &config, NULL, 2);
    kvmem_region *regions[2];
    EXPECT_OK(kvmem_layout_get_region(here.model.layout, 0, &regions[OWNER], ERR));
    EXPECT_OK(kvmem_layout_get_region(there.model.layout, 0, &regions[OTHER], ERR));
    CHECK_EQ(access_of(region_info(regions[OWNER]).address, OTHER), NONE);
    CHECK_EQ(access_of(region_info(regions[OTHER]).address, OWNER), NONE);
    kv_run_by(here.model.layout, there.model.layout, &move, KVMEM_METHOD_CUDA_KERNEL);
    kv_expect_moved(&there.model, &here.model, &move);
    side_check(&there);
    /* Either of the two copies accesses the other's memory. */
    const int opened = access_of(region_info(regions[OWNER]).address, OTHER) == BOTH ? OWNER : OTHER;
    side *grown = opened == OWNER ? &here : &there;
    CHECK_EQ(access_of(region_info(regions[opened]).address, 1 - opened), BOTH);
    SIM(sim_reset());
    kv_run_by(here.model.layout, there.model.layout, &move, KVMEM_METHOD_CUDA_KERNEL);
    CHECK_EQ(SIM(sim_calls("cuMemSetAccess")), 0);
    EXPECT_OK(kvmem_layout_resize(grown->model.layout, 0, ERR));
    EXPECT_OK(kvmem_layout_resize(grown->model.layout, config.num_blocks, ERR));
    CHECK_EQ(access_of(region_info(regions[opened]).address, 1 - opened), BOTH);
    CALL(kvmem_region_destroy(regions[OWNER]));
    CALL(kvmem_region_destroy(regions[OTHER]));
}

TEST(one_gpu_and_all_exclude_each_other) {
    OPENED(offer, offer, MEMORY_ELASTIC, NULL);
    refuse_parcel_for(&offer.parcel, KVMEM_OPEN_FOR_ALL_DEVICES, OTHER, KVMEM_STATUS_INVALID_ARGUMENT,
                      "exclude each other");
}
