// SPDX-License-Identifier: Apache-2.0
// The one staging memory of each direction: transfers that are only created do not take it from those that
// run.
#include "gpu_flight.h"
#include "stance.h"

#include <pthread.h>

enum { ROUNDS = 20000, THREADS = 3 };

static kvmem_transfer_options staged(const flight *flight) {
    return WITH(flight_options(flight), it.path = KVMEM_PATH_CUDA_STAGED, it.staging_size = 64 * 1024);
}

static void *create_and_destroy(void *argument) {
    const flight *flight = argument;
    const kvmem_transfer_options options = staged(flight);
    kvmem_status status = KVMEM_STATUS_OK;
    for (int i = 0; i < ROUNDS && status == KVMEM_STATUS_OK; i++) {
        CLEANUP(test_end_kvmem_transfer) kvmem_transfer *transfer = NULL; /* a thread: not in the stance */
        status = kvmem_transfer_create(flight->source.model.layout, flight->destination.model.layout,
                                       &options, &transfer, NULL);
    }
    return (void *)(intptr_t)status;
}

TEST(creating_a_transfer_makes_no_other_busy) {
    pthread_t threads[THREADS];
    bool is_created = true;
    OPENED(stream, stream, 0);
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_PINNED);
    flight_create_with(&flight, staged(&flight));
    for (size_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, create_and_destroy, &flight), 0);
    kvmem_status submitted = KVMEM_STATUS_OK;
    for (int i = 0; i < ROUNDS && submitted == KVMEM_STATUS_OK; i++) {
        submitted = kvmem_transfer_submit_on_stream(flight.transfer, stream.handle, ERR);
        THEN(submitted, kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    }
    for (size_t i = 0; i < THREADS; i++) {
        void *status = NULL;
        CHECK_EQ(pthread_join(threads[i], &status), 0);
        is_created &= (intptr_t)status == KVMEM_STATUS_OK;
    }
    CHECK(is_created);
    CHECK_EQ(submitted, KVMEM_STATUS_OK);
    flight_check_moved(&flight);
}
