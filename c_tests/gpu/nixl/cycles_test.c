// SPDX-License-Identifier: Apache-2.0
// Thousands of rounds of allocate, register, build and destroy leave memory, files and threads where they
// were. Needs a GPU; a number as the only argument says how many, 10,000 where there is none.
#include "agents.h"
#include "cycles.h"
#include "stance.h"

static kvmem_agent *agent;

static void one_cycle(place place, uint32_t seed) {
    const kvmem_layout_config config = side_config(&kv_kinds[seed % KV_NUM_KINDS]);
    side side;
    side_open(&side, place, 0, &config, agent, seed);
    side_close(&side);
}

static void registered_memory_comes_and_goes(place place) {
    agent = agent_open("cycles");
    cycles_run(one_cycle, place);
    CALL(kvmem_agent_destroy(agent));
}

static void registered_device_memory_comes_and_goes(void) {
    registered_memory_comes_and_goes(PLACE_DEVICE);
}

static void registered_pinned_memory_comes_and_goes(void) {
    registered_memory_comes_and_goes(PLACE_PINNED);
}

static void registered_adopted_memory_comes_and_goes(void) {
    registered_memory_comes_and_goes(PLACE_ADOPTED);
}

static void registered_elastic_memory_comes_and_goes(void) {
    registered_memory_comes_and_goes(PLACE_ELASTIC);
}

static const test_case cases[] = {
    CASE(registered_device_memory_comes_and_goes),
    CASE(registered_pinned_memory_comes_and_goes),
    CASE(registered_adopted_memory_comes_and_goes),
    CASE(registered_elastic_memory_comes_and_goes),
};

int main(int argc, char **argv) {
    const test_suite suite = {.cases = cases, .num_cases = NUM(cases), .lacks = lacks_real_gpu};
    argc = cycles_take_count(argc, argv);
    return test_main(argc, argv, &suite); /* in one stance: it takes long enough */
}
