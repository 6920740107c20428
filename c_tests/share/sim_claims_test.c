// SPDX-License-Identifier: Apache-2.0
// Memory that a sender claims without having it is not allocated here: sparse memory that is to be
// page-locked, and huge numbers of extents and parts. Needs the stand-in driver, which locks no page in these
// cases.
#include "control.h"
#include "foreign.h"
#include "forged.h"
#include "offer.h"
#include "kinds.h"
#include "opened.h"

HOLDER_ROLE

/* More memory than any machine that runs this test. */
#define TEBIBYTE (UINT64_C(1) << 40)

/* Page-locking would allocate it, until the kernel kills the process. */
TEST(sparse_memory_is_not_page_locked) {
    static const uint64_t flags[] = {0, KVMEM_OPEN_READ_ONLY};
    OPENED(offer, offer, MEMORY_PINNED, NULL);
    CLEANUP(parcel_close) struct parcel sparse = parcel_copy(&offer.parcel);
    forge_integer(&sparse, "size", TEBIBYTE); /* of the region: the first field of that name */
    foreign_put(&sparse, 1, foreign_memory(TEBIBYTE));
    for (size_t i = 0; i < NUM(flags); i++) {
        /* Fails instead of locking pages, if the call is made. */
        SIM(sim_fail("cuMemHostRegister_v2", SIM_EVERY_CALL, CUDA_ERROR_NOT_PERMITTED));
        refuse_parcel(&sparse, flags[i] | KVMEM_OPEN_PIN, KVMEM_STATUS_OUT_OF_MEMORY, "are available");
        SIM(sim_reset());
        CHECK_EQ(try_parcel(&sparse, flags[i]), KVMEM_STATUS_OK); /* mapping alone allocates none */
    }
    CHECK_EQ(try_parcel(&offer.parcel, KVMEM_OPEN_PIN), KVMEM_STATUS_OK);
}

#define EXTENT (2 * MIB)
#define MANY_EXTENTS (UINT64_C(1) << 20)
#define MANY_LAYERS 4096

/* A layout with each layer in a separate part of the region, with large distances. */
static kvmem_layout *lay_out_parts(const kvmem_layout_config *config, const kvmem_region *whole,
                                   uint64_t size, uint64_t stride) {
    CLEANUP(test_free) kvmem_region **parts = test_allocate(config->num_layers * sizeof(*parts));
    for (uint64_t i = 0; i < config->num_layers; i++)
        EXPECT_OK(kvmem_region_create_view(whole, i * stride, size, &parts[i], ERR));
    kvmem_layout *layout = regions_lay_out(config, parts, config->num_layers, NULL);
    for (uint64_t i = 0; i < config->num_layers; i++) CALL(kvmem_region_destroy(parts[i]));
    return layout;
}

/* A flag per extent and part would take 4 GiB here, and 1 TiB for the most that a share may claim, 2^24
   extents in 2^16 parts. */
TEST(a_transfer_allocates_only_for_the_extents_it_touches) {
    kvmem_layout_config config = {.struct_size = sizeof(config), .order = KVMEM_ORDER_LAYER_SEPARATE};
    config.num_blocks = 2;
    config.num_layers = MANY_LAYERS;
    config.outer_dim = 2;
    config.page_size = 4;
    config.inner_dim = 128;
    config.dtype_width = 2;
    GET(kvmem_layout_requirements, needed, kvmem_layout_get_requirements, &config);
    const uint64_t size = needed.region_size;
    OWNED(kvmem_region) elastic = region_create_elastic(MANY_EXTENTS * EXTENT, EXTENT, EXTENT);
    OWNED(kvmem_region) system = memory_create(MEMORY_SYSTEM, size * MANY_LAYERS, NULL);
    OWNED(kvmem_layout) from = lay_out_parts(&config, elastic, size, EXTENT);
    OWNED(kvmem_layout) to = lay_out_parts(&config, system, size, size);
    const kv_move move = KV_MOVE(1, {0, 1});
    const kv_job options = kv_job_of(&move);
    OWNED(kvmem_transfer) transfer = NULL;
    /* warm-up: creates per-process state */
    EXPECT_OK(kv_prepare(from, to, &options, &transfer, ERR));
    CALL(kvmem_transfer_destroy(transfer));
    const struct rlimit before = limit_addresses(512 * MIB);
    EXPECT_OK(kv_prepare(from, to, &options, &transfer, ERR));
    RUN(transfer);
    CHECK_EQ(setrlimit(RLIMIT_AS, &before), 0);
}
