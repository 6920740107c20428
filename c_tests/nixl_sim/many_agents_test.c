// SPDX-License-Identifier: Apache-2.0
// Fifty agents with the stand-in for NIXL, which frees everything that it allocates: after they are
// destroyed, the library has left nothing in the heap.
#include "stand_in.h"

#include <malloc.h>

#define AGENTS 50
#define ROUNDS 10

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {3, 3});

typedef struct member {
    kvmem_agent *agent;
    kv_side side;
} member;

static member members[AGENTS];

static void open_member(uint32_t number) {
    members[number].agent = agent_open(TEXT("agent %u", number));
    kv_side_open(&members[number].side, REF(kv_config(&kv_kinds[0])), members[number].agent, number);
}

/* The stand-in moves no bytes; this test is about allocations. */
static void meet_next(uint32_t number) {
    member *own = &members[number];
    member *next = &members[(number + 1) % AGENTS];
    agents_introduce(own->agent, next->agent);
    OWNED(kvmem_layout) remote = layout_import(own->agent, next->side.layout);
    kv_run(remote, own->side.layout, &move);
    kv_run(own->side.layout, remote, &move);
    EXPECT_OK(kvmem_agent_notify(own->agent, kvmem_agent_name(next->agent), "x", 1, ERR));
    REFUSE(KVMEM_STATUS_TIMED_OUT, "", kvmem_agent_take_notifications, own->agent, 0);
    if (number % 2 == 0) { /* the others leave that to the end of the agent */
        EXPECT_OK(kvmem_agent_invalidate_remote_metadata(own->agent, kvmem_agent_name(next->agent), NULL, ERR));
    }
}

static void run_all(void) {
    for (uint32_t i = 0; i < AGENTS; i++) open_member(i);
    for (uint32_t i = 0; i < AGENTS; i++) meet_next(i);
    for (uint32_t i = 0; i < AGENTS; i++) {
        member *closed = &members[i * 7 % AGENTS];
        kvmem_agent_destroy(closed->agent);
        kv_side_close(&closed->side);
    }
    test_forget_error();
}

static size_t bytes_in_use(void) {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* The heap counts chunks that threads cache, and chunks that other arenas have split. CTest disables both. */
static void require_exact_heap(void) {
    const char *tunables = getenv("GLIBC_TUNABLES");
    if (tunables == NULL || strstr(tunables, "tcache_count=0") == NULL ||
        strstr(tunables, "arena_max=1") == NULL)
        FAIL("set GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1, so that the heap is counted exactly");
}

TEST(fifty_agents_leak_no_thread_no_file_and_no_byte) {
    require_exact_heap();
    nixl_find_stand_in();
    run_all();
    run_all(); /* warm-up: creates per-process state */
    printf("counting\n"); /* stdout allocates a buffer too */
    const size_t threads = count_directory_entries("/proc/self/task");
    const size_t files = count_open_files();
    const size_t bytes = bytes_in_use();
    for (int round = 0; round < ROUNDS; round++) {
        run_all();
        /* A thread that was joined is listed until the kernel has ended it. */
        AWAIT(count_directory_entries("/proc/self/task") <= threads);
        CHECK_EQ(count_open_files(), files);
    }
    /* Free memory is fragmented differently in each round, by some 16 bytes. An allocation that each agent
       leaked would be at least 32. */
    const size_t after = bytes_in_use();
    printf("%zu bytes before, %zu after\n", bytes, after);
    CHECK(after < bytes + (size_t)16 * ROUNDS * AGENTS);
}
