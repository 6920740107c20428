// SPDX-License-Identifier: Apache-2.0
// Thousands of cycles of allocations, layouts and copies leak no memory, files or threads.
//
// The optional argument is the number of cycles; default: 1,000.
#include "cycles.h"
#include "sides.h"
#include "caller_context.h"

static void one_cycle(place place, uint32_t seed) {
    static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
    const kvmem_layout_config config = kv_config(&kv_kinds[seed % KV_NUM_KINDS]);
    OPENED(side, host, PLACE_PINNED, 0, &config, NULL, seed);
    OPENED(side, there, place, 0, &config, NULL, seed + 1);
    side_move(&host, &there, &move);
}

TEST_CALL(cycles_of_device_memory, cycles_run(one_cycle, PLACE_DEVICE))
TEST_CALL(cycles_of_adopted_memory, cycles_run(one_cycle, PLACE_ADOPTED))
TEST_CALL(cycles_of_elastic_memory, cycles_run(one_cycle, PLACE_ELASTIC))

int main(int argc, char **argv) {
    argc = cycles_take_count(argc, argv);
    return test_main(argc, argv, test_registered()); /* without a current context only, to save time */
}
