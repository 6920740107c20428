// SPDX-License-Identifier: Apache-2.0
// Senders of messages to a process that takes none. The victim is that process, and the healthy peer reads its blocks.
#include "hostile.h"

#include "served_wire.h"

#include <stdlib.h>

HOSTILE_CASES

static const kv_move all = KV_MOVE(3, {0, 6}, {1, 5}, {2, 4}, {3, 3}, {4, 2}, {5, 1}, {6, 0});

static kvmem_agent *agent;
static kv_side side;

/* ---- the victim ---- */

static void open_owner(void) {
    agent = agent_open("owner");
    kv_side_open(&side, REF(kv_config(&kv_kinds[0])), agent, 7);
    hostile_put_layout(agent, side.layout);
}

static void close_owner(void) {
    kv_side_check(&side);
    kv_side_close(&side);
    kvmem_agent_destroy(agent);
}

/* ---- the healthy reader ---- */

static kv_side model; /* of the victim */
static kvmem_transfer *reads;

static void open_reader(void) {
    agent = agent_open("reader");
    kv_side_open(&side, REF(kv_config(&kv_kinds[0])), agent, 3);
    kv_model_open(&model, REF(kv_config(&kv_kinds[0])), 7);
    CLEANUP(message_free) const message descriptor = hostile_take_layout(agent, &model.layout);
    EXPECT_OK(kv_prepare(model.layout, side.layout, KV_JOB(&all, it.transfer.method = KVMEM_METHOD_NIXL), &reads, ERR));
}

static void read_all(void) {
    RUN(reads);
    kv_side_check_moved(&side, &model, &all);
}

static void close_reader(void) {
    kvmem_transfer_destroy(reads);
    kv_side_close(&model);
    kv_side_close(&side);
    kvmem_agent_destroy(agent);
}

/* ---- the hostile sender ---- */

static void open_hostile(void) {
    CLEANUP(message_free) message metadata = hostile_take("metadata");
    raw_agent_open(hostile_name("hostile"), &metadata);
}

static void flood(const char *begin, size_t size, int count) {
    char *bytes = calloc(1, size + 1);
    CHECK(bytes != NULL);
    memcpy(bytes, begin, strlen(begin) < size ? strlen(begin) : size);
    for (int i = 0; i < count; i++) raw_agent_send(bytes, size);
    free(bytes);
}

static void flood_messages(unsigned turn) { flood("message", turn % 2 * 100, 2000); }
static void flood_large_messages(unsigned turn) { (void)turn, flood("message", MIB, 16); }
static void flood_services(unsigned turn) { (void)turn, flood("KVMEMSRV", 64, 2000); }

static const hostile_row rows[] = {
    {.does = "floods with messages that no call takes", .act = flood_messages},
    {.does = "floods with messages of 1 MiB that no call takes", .act = flood_large_messages},
    {.does = "floods with requests to a service that does not exist", .act = flood_services},
};

const hostile_form hostile_form_here = {
    .victim = {.open = open_owner, .close = close_owner},
    .healthy = {.open = open_reader, .round = read_all, .close = close_reader},
    .open_hostile = open_hostile,
    .files = 8,
    .threads = 2,
    .bytes = 256 * MIB,
    .bounds = {.longest_ms = 1000, .share = 0.02, .processors = 2},
    .rows = rows,
    .num_rows = NUM(rows),
};
