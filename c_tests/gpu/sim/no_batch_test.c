// SPDX-License-Identifier: Apache-2.0
// A driver from before cuMemcpyBatchAsync: blocks go one by one, the explanation says why no batch was taken,
// and asked for by name a batch is refused.
#include "gpu_flight.h"
#include "stance.h"

static const char reason[] = "the driver has no cuMemcpyBatchAsync";

TEST(the_device_says_so) {
    GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, 0);
    CHECK_EQ(info.capabilities & KVMEM_CUDA_BATCH_COPIES, 0);
    CHECK(driver_symbol("cuMemcpyBatchAsync") == NULL);
}

TEST(blocks_go_one_by_one_and_it_is_said_why) {
    static const uint32_t paths[] = {0, KVMEM_PATH_CUDA_COPY, KVMEM_PATH_CUDA_STAGED};
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .source = &config);
    for (uint32_t i = 0; i < NUM(paths); i++) {
        flight_refill(&flight, 10 + i);
        flight_create(&flight, it.path = paths[i]);
        CHECK(flight_explain(&flight, paths[i] == 0 ? reason : "").path != KVMEM_PATH_CUDA_BATCH);
        flight_run(&flight);
    }
}

TEST(a_batch_by_name_is_refused) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .source = &config);
    flight_refuse(&flight, KVMEM_STATUS_UNSUPPORTED, reason, it.path = KVMEM_PATH_CUDA_BATCH);
}
