// SPDX-License-Identifier: Apache-2.0
// Each direction has one staging memory. Creating a transfer must not make it unavailable to transfers that
// run.
#include "gpu_flight.h"
#include "caller_context.h"

enum { ROUNDS = 20000, THREADS = 3 };

static kv_job staged(const flight *flight) {
    return WITH(flight_options(flight), it.transfer.method = KVMEM_METHOD_CUDA_STAGED,
                it.transfer.staging_size = 64 * 1024);
}

static void *create_and_destroy(void *argument) {
    const flight *flight = argument;
    const kv_job options = staged(flight);
    for (int i = 0; i < ROUNDS; i++) {
        CLEANUP(test_end_kvmem_transfer) kvmem_transfer *transfer = NULL; /* not OWNED: no caller context */
        CHECK_EQ(kv_prepare(flight->source.model.layout, flight->destination.model.layout,
                                       &options, &transfer, NULL),
                 KVMEM_STATUS_OK);
    }
    return NULL;
}

TEST(creating_transfers_does_not_make_others_busy) {
    threads creators;
    OPENED(stream, stream, 0);
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_PINNED);
    flight_create_with(&flight, staged(&flight));
    kvmem_statistics statistics = OPTIONS(kvmem_statistics);
    EXPECT_OK(kvmem_statistics_get(&statistics, ERR));
    CHECK(statistics.staging_bytes >= 64 * 1024);
    threads_start(&creators, THREADS, create_and_destroy, &flight, 0);
    kvmem_status submitted = KVMEM_STATUS_OK;
    for (int i = 0; i < ROUNDS && submitted == KVMEM_STATUS_OK; i++) {
        submitted = kvmem_transfer_submit_on_stream(flight.transfer, NULL, stream.handle, ERR);
        THEN(submitted, kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    }
    threads_join(&creators);
    CHECK_EQ(submitted, KVMEM_STATUS_OK);
    flight_check_moved(&flight);
}
