// SPDX-License-Identifier: Apache-2.0
// Thousands of cycles of allocate, register, build and destroy leak no memory, files or threads. Needs a GPU.
//
// The optional argument is the number of cycles; default: 1,000.
#include "cycles.h"
#include "caller_context.h"

static kvmem_agent *agent;

static void one_cycle(place place, uint32_t seed) {
    const kvmem_layout_config config = side_config(&kv_kinds[seed % KV_NUM_KINDS]);
    OPENED(side, side, place, 0, &config, agent, seed);
}

static void run_cycles(place place) {
    agent = agent_open("cycles");
    cycles_run(one_cycle, place);
    CALL(kvmem_agent_destroy(agent));
}

TEST_CALL(cycles_of_registered_device_memory, run_cycles(PLACE_DEVICE))
TEST_CALL(cycles_of_registered_pinned_memory, run_cycles(PLACE_PINNED))
TEST_CALL(cycles_of_registered_adopted_memory, run_cycles(PLACE_ADOPTED))
TEST_CALL(cycles_of_registered_elastic_memory, run_cycles(PLACE_ELASTIC))

REQUIRES(lacks_real_gpu)

int main(int argc, char **argv) {
    argc = cycles_take_count(argc, argv);
    return test_main(argc, argv, test_registered()); /* without a current context only, to save time */
}
