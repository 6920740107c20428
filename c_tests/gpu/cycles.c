// SPDX-License-Identifier: Apache-2.0
// Compares counts before and after. Waits for threads that end some time after their work.
#include "cycles.h"

#include "patience.h"
#include "caller_context.h"
#include "usage.h"

#include <ctype.h>
#include <malloc.h>

#define WARM_UP 20
/* The deadline of each run, in place of the deadline of the process: many thousands of cycles take
   minutes. */
#define DEADLINE_SECONDS 700

static uint32_t num_cycles = 1000; /* a leak of a page per cycle exceeds the growth that is allowed */

int cycles_take_count(int argc, char **argv) {
    if (argc != 2 || !isdigit((unsigned char)argv[1][0])) return argc;
    num_cycles = (uint32_t)strtoul(argv[1], NULL, 10);
    return 1;
}

/* The thread that watches a transfer releases its stream, and ends after it has been idle for a while. */
static void await_released(size_t threads_before, uint64_t memory_before) {
    const uint64_t end = patience_end();
    while (count_threads() > threads_before || free_memory(0) < memory_before)
        patience_wait(end, "threads to end and memory to be freed");
}

/* The driver frees memory later than the call returns, and thousands of cycles would fill a GPU meanwhile. */
static void await_most_memory(uint64_t memory_before) {
    const uint64_t max_in_use = 1024 * MIB;
    const uint64_t end = patience_end();
    while (free_memory(0) + max_in_use < memory_before) patience_wait(end, "memory to be freed");
}

/* Returns the resident memory of the process after the allocator has returned free memory to the system. */
static uint64_t memory_in_use(void) {
    malloc_trim(0);
    return resident_memory();
}

/* With the stand-in, memory grows once by about 100 KiB for threads and tables, regardless of the number of
   cycles. A real driver, and NIXL with it, keep an unknown amount of memory. So half a page per cycle is
   allowed there; a leak of a page per cycle in kvmem exceeds it. */
static uint64_t growth_allowed(void) {
    const bool is_stand_in = driver_symbol("sim_reset") != NULL;
    return MIB + (is_stand_in ? 0 : num_cycles * UINT64_C(2048));
}

void cycles_run(void (*cycle)(place place, uint32_t seed), place place) {
    alarm(DEADLINE_SECONDS);
    retain_device(0); /* creating a context takes memory and threads */
    for (uint32_t i = 0; i < WARM_UP; i++) cycle(place, i);
    const size_t threads_before = count_threads();
    const uint64_t memory_before = free_memory(0);
    const size_t files_before = count_open_files();
    const uint64_t used_before = memory_in_use();
    for (uint32_t i = 0; i < num_cycles; i++) {
        cycle(place, i);
        if (i % 64 == 0) await_most_memory(memory_before);
    }
    await_released(threads_before, memory_before);
    CHECK(count_open_files() <= files_before); /* a thread may have had one open before */
    const uint64_t used = memory_in_use();
    printf("  %lld bytes more after %u cycles\n", (long long)(used - used_before), num_cycles);
    CHECK(used < used_before + growth_allowed());
    release_device(0);
}
