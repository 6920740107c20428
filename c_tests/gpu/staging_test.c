// SPDX-License-Identifier: Apache-2.0
// The one staging memory of each direction: transfers that are only created do not take it from those that
// run.
#include "sides.h"
#include "stance.h"

#include <pthread.h>

enum { ROUNDS = 20000, THREADS = 3 };

static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, 3};

typedef struct world {
    side host, device;
    kvmem_transfer_options options;
    kvmem_transfer *transfer;
    CUstream stream;
} world;

static void *create_and_destroy(void *argument) {
    const world *w = argument;
    kvmem_status status = KVMEM_STATUS_OK;
    for (int i = 0; i < ROUNDS && status == KVMEM_STATUS_OK; i++) {
        CLEANUP(test_end_kvmem_transfer) kvmem_transfer *transfer = NULL; /* a thread: not in the stance */
        status = kvmem_transfer_create(w->device.model.layout, w->host.model.layout, &w->options, &transfer, NULL);
    }
    return (void *)(intptr_t)status;
}

static void world_open(world *w) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    retain_device(0);
    CU_ON(0, cuStreamCreate(&w->stream, CU_STREAM_NON_BLOCKING));
    side_open(&w->device, PLACE_DEVICE, 0, &config, NULL, 1);
    side_open(&w->host, PLACE_PINNED, 0, &config, NULL, 2);
    w->options = kv_transfer_options(&move);
    w->options.path = KVMEM_PATH_CUDA_STAGED;
    w->options.staging_size = 64 * 1024;
    EXPECT_OK(kvmem_transfer_create(w->device.model.layout, w->host.model.layout, &w->options, &w->transfer, ERR));
}

static void world_close(world *w) {
    side_check_moved(&w->host, &w->device, &move);
    CALL(kvmem_transfer_destroy(w->transfer));
    side_close(&w->host);
    side_close(&w->device);
    CU_ON(0, cuStreamDestroy_v2(w->stream));
    release_device(0);
}

TEST(creating_a_transfer_makes_no_other_busy) {
    pthread_t threads[THREADS];
    bool is_created = true;
    OPENED(world, w);
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_create(&threads[i], NULL, create_and_destroy, &w), 0);
    }
    kvmem_status submitted = KVMEM_STATUS_OK;
    for (int i = 0; i < ROUNDS && submitted == KVMEM_STATUS_OK; i++) {
        submitted = kvmem_transfer_submit_on_stream(w.transfer, w.stream, ERR);
        THEN(submitted, kvmem_transfer_wait(w.transfer, PATIENCE, ERR));
    }
    for (size_t i = 0; i < THREADS; i++) {
        void *status = NULL;
        CHECK_EQ(pthread_join(threads[i], &status), 0);
        is_created &= (intptr_t)status == KVMEM_STATUS_OK;
    }
    CHECK(is_created);
    CHECK_EQ(submitted, KVMEM_STATUS_OK);
}
