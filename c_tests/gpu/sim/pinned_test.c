// SPDX-License-Identifier: Apache-2.0
// The number of page locks of pinned memory: one per chunk, and each is released.
#include "control.h"
#include "caller_context.h"

TEST(a_chunk_is_one_page_lock) {
    static const struct {
        uint64_t size;
        uint64_t chunk;
        uint64_t locks;
    } shapes[] = {
        {4 * MIB, MIB, 4}, {4 * MIB + 1, MIB, 5}, {4 * MIB - 1, 4 * MIB, 1}, {4096, MIB, 1}, {8 * MIB, 0, 1},
    };
    for (size_t i = 0; i < NUM(shapes); i++) {
        CLEANUP(await_live) const sim_counts before = sim_live_now();
        kvmem_pinned_options options = OPTIONS(kvmem_pinned_options, it.size = shapes[i].size,
                                               it.chunk_size = shapes[i].chunk);
        SIM(sim_reset());
        GET(kvmem_region *, region, kvmem_region_create_pinned, &options);
        CHECK_EQ(SIM(sim_calls("cuMemHostRegister_v2")), shapes[i].locks);
        CALL(kvmem_region_destroy(region));
        CHECK_EQ(SIM(sim_calls("cuMemHostUnregister")), shapes[i].locks);
    }
}
