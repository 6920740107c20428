// SPDX-License-Identifier: Apache-2.0
// Blocks in page-locked and GPU memory as objects of an S3-compatible server, with the stand-in for the
// driver: whole objects are written, however the memory is page-locked or mapped.
#include "caller_context.h"
#include "object_store.h"
#include "sides.h"

REQUIRES(object_store_lacks)

static const kv_move all = KV_MOVE(3, {0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6});

TEST(blocks_in_every_kind_of_memory_become_objects_and_come_back) {
    object_store_start();
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    OWN(kvmem_agent, agent, kvmem_agent_create, "storing", NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    object_store_create_backend(agent);
    const kvmem_layout_config config = side_config(&kv_kinds[0]);
    for (place place = 0; place < NUM_PLACES; place++) {
        if (place == PLACE_SPANNED || place == PLACE_ADJACENT) continue; /* NIXL registers one mapping */
        const uint64_t size = kv_block_stride(&config);
        OWN(kvmem_region, region, kvmem_region_create_object,
            REF(OPTIONS(kvmem_object_options, it.key_prefix = TEXT("%d/", place), it.object_size = size,
                        it.count = config.num_blocks)));
        OWNED(kvmem_layout) objects = regions_lay_out(&config, &region, 1, agent);
        OPENED(side, source, place, 0, &config, agent, 1);
        OPENED(side, destination, place, 0, &config, agent, 2);
        CHECK_EQ(kv_run(source.model.layout, objects, &all).num_requests, config.num_blocks);
        CHECK_HAS(python_send(&object_store, "list"), TEXT("%d/0000000006:%u", place, (unsigned)size));
        kv_run(objects, destination.model.layout, &all);
        side_check_moved(&destination, &source, &all);
    }
}
