// SPDX-License-Identifier: Apache-2.0
// Fifty agents in one process, each with memory that the next one reads. After they are destroyed, no thread
// and no file descriptor is left, and no memory except NIXL's own.
#include "harness.h"

#include <malloc.h>

#define AGENTS 50

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {3, 3});

typedef struct member {
    kvmem_agent *agent;
    kv_side side;
    kvmem_layout *next; /* the layout of the next agent */
} member;

static member members[AGENTS];

static void open_members(void) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    for (uint32_t i = 0; i < AGENTS; i++) {
        members[i].agent = agent_open(TEXT("agent %u", i));
        kv_side_open(&members[i].side, &config, members[i].agent, i);
    }
}

/* Each agent reads from the next one, and notifies it. */
static void meet_next(uint32_t number) {
    member *own = &members[number];
    member *next = &members[(number + 1) % AGENTS];
    agents_introduce(own->agent, next->agent);
    CLEANUP(message_free) message descriptor = layout_descriptor(next->side.layout);
    EXPECT_OK(kvmem_layout_import(own->agent, descriptor.data, descriptor.size, &own->next, ERR));
    kv_run(own->next, own->side.layout, &move);
    EXPECT_OK(kvmem_agent_notify(own->agent, kvmem_agent_name(next->agent), "read", 4, ERR));
    agent_expect_notification(next->agent, kvmem_agent_name(own->agent), "read", 4);
}

/* In an order unrelated to that of their creation. */
static void close_members(void) {
    for (uint32_t i = 0; i < AGENTS; i++) {
        member *closed = &members[i * 7 % AGENTS];
        kvmem_agent_destroy(closed->agent);
        kvmem_layout_destroy(closed->next);
        kv_side_close(&closed->side);
    }
}

static void run_all(void) {
    open_members();
    CHECK(count_directory_entries("/proc/self/task") > AGENTS);
    for (uint32_t i = 0; i < AGENTS; i++) meet_next(i);
    /* In the order of the reads: the last of the ring reads what the first one has read. */
    for (uint32_t i = 0; i < AGENTS; i++)
        kv_side_check_moved(&members[i].side, &members[(i + 1) % AGENTS].side, &move);
    close_members();
}

static size_t bytes_in_use(void) {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

TEST(fifty_agents_leave_nothing_behind) {
    run_all(); /* warm-up: creates per-process state */
    const size_t threads = count_directory_entries("/proc/self/task");
    const size_t files = count_open_files();
    const size_t bytes = bytes_in_use();
    const load_clock clock = load_begin();
    size_t rounds = 0;
    do {
        run_all();
        rounds++;
        /* A thread that was joined is listed until the kernel has ended it. */
        AWAIT(count_directory_entries("/proc/self/task") <= threads);
        CHECK_EQ(count_open_files(), files);
    } while (load_lasts(&clock, load_duration()));
    const long long growth = ((long long)bytes_in_use() - (long long)bytes) / (long long)(rounds * AGENTS);
    load_report("%zu rounds of %d agents: no thread, no file descriptor, %lld bytes per agent more", rounds,
                AGENTS, growth);
}
