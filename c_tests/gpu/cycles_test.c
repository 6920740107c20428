// SPDX-License-Identifier: Apache-2.0
// Thousands of allocations, layouts and copies leave memory, files and threads where they were.
//
// A number as the only argument says how many; 10,000 where there is none.
#include "cycles.h"
#include "sides.h"
#include "stance.h"

static void one_cycle(place place, uint32_t seed) {
    static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
    const kvmem_layout_config config = kv_config(&kv_kinds[seed % KV_NUM_KINDS]);
    OPENED(side, host, PLACE_PINNED, 0, &config, NULL, seed);
    OPENED(side, there, place, 0, &config, NULL, seed + 1);
    side_move(&host, &there, &move);
}

TEST_CALL(device_memory_comes_and_goes, cycles_run(one_cycle, PLACE_DEVICE))
TEST_CALL(adopted_memory_comes_and_goes, cycles_run(one_cycle, PLACE_ADOPTED))
TEST_CALL(elastic_memory_comes_and_goes, cycles_run(one_cycle, PLACE_ELASTIC))

int main(int argc, char **argv) {
    argc = cycles_take_count(argc, argv);
    return test_main(argc, argv, test_registered()); /* in one stance: it takes long enough */
}
