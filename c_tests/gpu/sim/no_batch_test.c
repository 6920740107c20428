// SPDX-License-Identifier: Apache-2.0
// A driver without cuMemcpyBatchAsync: blocks are copied one by one, the explanation contains the reason, and
// requesting KVMEM_METHOD_CUDA_BATCH fails.
#include "gpu_flight.h"
#include "caller_context.h"

static const char reason[] = "the driver has no cuMemcpyBatchAsync";

TEST(the_capability_is_not_reported) {
    GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, 0);
    CHECK_EQ(info.capabilities & KVMEM_CUDA_BATCH_COPIES, 0);
    CHECK(driver_symbol("cuMemcpyBatchAsync") == NULL);
}

TEST(blocks_are_copied_one_by_one_and_the_reason_is_explained) {
    static const uint32_t methods[] = {0, KVMEM_METHOD_CUDA_COPY, KVMEM_METHOD_CUDA_STAGED};
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .source = &config);
    for (uint32_t i = 0; i < NUM(methods); i++) {
        flight_refill(&flight, 10 + i);
        flight_create(&flight, it.transfer.method = methods[i]);
        CHECK(flight_explain(&flight, methods[i] == 0 ? reason : "").method != KVMEM_METHOD_CUDA_BATCH);
        flight_run(&flight);
    }
}

TEST(requesting_the_batch_path_fails) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .source = &config);
    flight_refuse(&flight, KVMEM_STATUS_UNSUPPORTED, reason, it.transfer.method = KVMEM_METHOD_CUDA_BATCH);
}
