// SPDX-License-Identifier: Apache-2.0
// Counts before and after; threads that end a while after their work are waited for.
#include "cycles.h"

#include "patience.h"
#include "stance.h"
#include "usage.h"

#include <ctype.h>
#include <malloc.h>

#define WARM_UP 20
/* Each run has a deadline of its own in place of the process's: thousands of cycles take a minute or two. */
#define DEADLINE_SECONDS 240

static uint32_t num_cycles = 10000;

int cycles_take_count(int argc, char **argv) {
    if (argc != 2 || !isdigit((unsigned char)argv[1][0])) return argc;
    num_cycles = (uint32_t)strtoul(argv[1], NULL, 10);
    return 1;
}

/* A copy's stream is given back by the thread that copied, which itself ends after idling for a while. */
static void await_as_before(size_t threads_before, uint64_t memory_before) {
    const uint64_t end = patience_end();
    while (count_threads() > threads_before || free_memory(0) < memory_before)
        patience_wait(end, "threads to end and memory to come back");
}

/* What the process holds, without what its allocator keeps for later. */
static uint64_t memory_held(void) {
    malloc_trim(0);
    return resident_memory();
}

/* Under the stand-in all is ours and its own: what is held grows by what threads and tables need once, some
   100 KiB, however many cycles there are. A driver of hardware, and NIXL with it, keep what they don't tell
   of: there half a page a cycle is allowed, which any page of ours that a cycle lost would pass. */
static uint64_t growth_allowed(void) {
    const bool is_stand_in = driver_symbol("sim_reset") != NULL;
    return MIB + (is_stand_in ? 0 : num_cycles * UINT64_C(2048));
}

void cycles_run(void (*cycle)(place place, uint32_t seed), place place) {
    alarm(DEADLINE_SECONDS);
    retain_device(0); /* a context takes memory and threads of its own */
    for (uint32_t i = 0; i < WARM_UP; i++) cycle(place, i);
    const size_t threads_before = count_threads();
    const uint64_t memory_before = free_memory(0);
    const size_t files_before = count_open_files();
    const uint64_t held_before = memory_held();
    for (uint32_t i = 0; i < num_cycles; i++) cycle(place, i);
    await_as_before(threads_before, memory_before);
    CHECK_EQ(count_open_files(), files_before);
    const uint64_t held = memory_held();
    printf("  %lld bytes more after %u cycles\n", (long long)(held - held_before), num_cycles);
    CHECK(held < held_before + growth_allowed());
    release_device(0);
}
