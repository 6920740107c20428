// SPDX-License-Identifier: Apache-2.0
// A driver from before cuMemcpyBatchAsync: blocks go one by one, the explanation says why no batch was taken,
// and asked for by name a batch is refused.
#include "control.h"
#include "patience.h"
#include "sides.h"
#include "stance.h"

static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
static const char reason[] = "the driver has no cuMemcpyBatchAsync";

static void open_sides(side *source, side *destination) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    side_open(source, PLACE_PINNED, 0, &config, NULL, 1);
    side_open(destination, PLACE_DEVICE, 0, &config, NULL, 2);
}

TEST(the_device_says_so) {
    GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, 0);
    CHECK_EQ(info.capabilities & KVMEM_CUDA_BATCH_COPIES, 0);
    CHECK(driver_symbol("cuMemcpyBatchAsync") == NULL);
}

TEST(blocks_go_one_by_one_and_it_is_said_why) {
    CLEANUP(side_close) side source;
    CLEANUP(side_close) side destination;
    open_sides(&source, &destination);
    kvmem_transfer_options options = kv_transfer_options(&move);
    const uint32_t paths[] = {0, KVMEM_PATH_CUDA_COPY, KVMEM_PATH_CUDA_STAGED};
    for (size_t i = 0; i < NUM(paths); i++) {
        side_refill(&source, 10 + (uint32_t)i);
        options.path = paths[i];
        GET(kvmem_transfer *, transfer, kvmem_transfer_create, source.model.layout, destination.model.layout,
            &options);
        kvmem_transfer_explanation explanation;
        GET(kvmem_blob *, text, kvmem_transfer_explain, transfer, &explanation);
        CHECK(explanation.path != KVMEM_PATH_CUDA_BATCH);
        if (paths[i] == 0) {
            CHECK_HAS(kvmem_blob_data(text), reason);
        }
        CALL(kvmem_blob_destroy(text));
        RUN(transfer);
        CALL(kvmem_transfer_destroy(transfer));
        side_check_moved(&destination, &source, &move);
    }
}

TEST(a_batch_by_name_is_refused) {
    CLEANUP(side_close) side source;
    CLEANUP(side_close) side destination;
    open_sides(&source, &destination);
    kvmem_transfer_options options = WITH(kv_transfer_options(&move), it.path = KVMEM_PATH_CUDA_BATCH);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, reason, kvmem_transfer_create, source.model.layout,
           destination.model.layout, &options);
}
