// SPDX-License-Identifier: Apache-2.0
// Thousands of rounds of allocate, register, build and destroy leave memory, files and threads where they
// were. Needs a GPU; a number as the only argument says how many, 10,000 where there is none.
#include "cycles.h"
#include "stance.h"

static kvmem_agent *agent;

static void one_cycle(place place, uint32_t seed) {
    const kvmem_layout_config config = side_config(&kv_kinds[seed % KV_NUM_KINDS]);
    OPENED(side, side, place, 0, &config, agent, seed);
}

static void registered_memory_comes_and_goes(place place) {
    agent = agent_open("cycles");
    cycles_run(one_cycle, place);
    CALL(kvmem_agent_destroy(agent));
}

TEST_CALL(registered_device_memory_comes_and_goes, registered_memory_comes_and_goes(PLACE_DEVICE))
TEST_CALL(registered_pinned_memory_comes_and_goes, registered_memory_comes_and_goes(PLACE_PINNED))
TEST_CALL(registered_adopted_memory_comes_and_goes, registered_memory_comes_and_goes(PLACE_ADOPTED))
TEST_CALL(registered_elastic_memory_comes_and_goes, registered_memory_comes_and_goes(PLACE_ELASTIC))

REQUIRES(lacks_real_gpu)

int main(int argc, char **argv) {
    argc = cycles_take_count(argc, argv);
    return test_main(argc, argv, test_registered()); /* in one stance: it takes long enough */
}
