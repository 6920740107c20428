// SPDX-License-Identifier: Apache-2.0
// Owners of served layouts, and senders of messages. The victim reads from the hostile owner, and reads from the healthy one and
// exchanges messages with it meanwhile.
#include "hostile.h"

#include "served_wire.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define BLOCKS 64
#define LIMIT MILLISECONDS(20)

HOSTILE_CASES

static const kv_move all = KV_MOVE(3, {0, 5}, {1, 6}, {2, 7}, {3, 8}, {40, 0}, {41, 1}, {42, 2}, {63, 63});

static kvmem_layout_config config_of(const kv_kind *kind) {
    return WITH(kv_config(kind), it.num_blocks = BLOCKS, it.inner_dim = 64);
}

/* ---- an owner ---- */

typedef struct owner {
    kvmem_agent *agent;
    kv_side side;
    message descriptor;
} owner;

static owner own;

/* Publishes its metadata and layout under its name. */
static void open_owner(const char *name) {
    char names[2][80];
    own.agent = agent_open(name);
    kv_side_open(&own.side, REF(config_of(&kv_kinds[0])), own.agent, 7);
    EXPECT_OK(kvmem_layout_serve(own.side.layout, REF(OPTIONS(kvmem_serve_options, it.staging_size = 8 * 16384)), ERR));
    CLEANUP(message_free) message metadata = agent_metadata(own.agent);
    own.descriptor = layout_descriptor(own.side.layout);
    snprintf(names[0], sizeof(names[0]), "%s metadata", name);
    snprintf(names[1], sizeof(names[1]), "%s layout", name);
    hostile_put(names[0], metadata.data, metadata.size);
    hostile_put(names[1], own.descriptor.data, own.descriptor.size);
    CLEANUP(message_free) message victim = hostile_take("victim metadata");
    agent_load(own.agent, &victim);
}

static void close_owner(void) {
    kv_side_close(&own.side);
    message_free(&own.descriptor);
    kvmem_agent_destroy(own.agent);
}

/* ---- the healthy owner, which replies to messages ---- */

static pthread_t replies;
static atomic_bool ends;

static void *reply(void *nothing) {
    while (!ends) {
        OWNED(kvmem_notifications) taken = NULL;
        const kvmem_status status = kvmem_agent_take_notifications(own.agent, MILLISECONDS(50), &taken, ERR);
        if (status != KVMEM_STATUS_TIMED_OUT) CHECK_EQ(status, KVMEM_STATUS_OK);
        for (size_t i = 0; taken != NULL && i < taken->count; i++)
            EXPECT_OK(kvmem_agent_notify(own.agent, "victim", taken->items[i].data, taken->items[i].size, ERR));
    }
    return nothing;
}

static void open_healthy(void) {
    open_owner("healthy");
    CHECK_EQ(pthread_create(&replies, NULL, reply, NULL), 0);
}

static void close_healthy(void) {
    ends = true;
    CHECK_EQ(pthread_join(replies, NULL), 0);
    kv_side_check(&own.side);
    close_owner();
}

/* ---- the victim ---- */

/* Another process's layout, and one of this process that its blocks are read to. */
typedef struct source {
    kvmem_layout *remote;
    kv_side side;
    kvmem_transfer *transfer;
} source;

static kvmem_agent *agent;
static source healthy, hostile;
static kv_side model; /* of the healthy owner */

static void source_open(source *source, const char *name, const kvmem_layout_config *config) {
    char names[2][80];
    snprintf(names[0], sizeof(names[0]), "%s metadata", name);
    snprintf(names[1], sizeof(names[1]), "%s layout", name);
    CLEANUP(message_free) message metadata = hostile_take(names[0]);
    CLEANUP(message_free) message layout = hostile_take(names[1]);
    kv_side_open(&source->side, config, agent, 3);
    agent_load(agent, &metadata);
    source->remote = MADE(kvmem_layout, kvmem_layout_import, agent, layout.data, layout.size);
    EXPECT_OK(kv_prepare(source->remote, source->side.layout, KV_JOB(&all, it.transfer.method = KVMEM_METHOD_NIXL_SERVED),
                         &source->transfer, ERR));
}

static void source_close(source *source) {
    DESTROYED(kvmem_transfer, source->transfer);
    DESTROYED(kvmem_layout, source->remote);
    kv_side_close(&source->side);
}

static void open_victim(void) {
    agent = agent_open("victim");
    CLEANUP(message_free) message metadata = agent_metadata(agent);
    hostile_put("victim metadata", metadata.data, metadata.size);
    kv_model_open(&model, REF(config_of(&kv_kinds[0])), 7);
    source_open(&healthy, "healthy", REF(config_of(&kv_kinds[1])));
}

/* Takes all messages until that of the healthy peer. That others were lost, because the hostile one sends too many, is reported. */
static void await_reply(uint64_t number) {
    for (bool has_arrived = false; !has_arrived;) {
        OWNED(kvmem_notifications) taken = NULL;
        const kvmem_status status = kvmem_agent_take_notifications(agent, PATIENCE, &taken, ERR);
        if (status != KVMEM_STATUS_OK) CHECK_EQ(status, KVMEM_STATUS_OUT_OF_MEMORY);
        for (size_t i = 0; taken != NULL && i < taken->count; i++) {
            if (strcmp(taken->items[i].agent, "healthy") != 0) continue;
            CHECK_EQ(taken->items[i].size, sizeof(number));
            CHECK_BYTES(taken->items[i].data, &number, sizeof(number));
            has_arrived = true;
        }
    }
}

static void read_and_ask(void) {
    static uint64_t number;
    RUN(healthy.transfer);
    kv_side_check_moved(&healthy.side, &model, &all);
    number++;
    EXPECT_OK(kvmem_agent_notify(agent, "healthy", &number, sizeof(number), ERR));
    await_reply(number);
}

static void meet(void) { source_open(&hostile, hostile_name("hostile"), REF(config_of(&kv_kinds[2]))); }

static void deal(void) {
    const kvmem_submit_options run = {.struct_size = sizeof(run), .pairs = all.pairs, .num_pairs = all.num_pairs, .run_timeout_ns = LIMIT};
    kvmem_status status = kvmem_transfer_submit(hostile.transfer, &run, ERR);
    THEN(status, kvmem_transfer_wait(hostile.transfer, PATIENCE, ERR));
    CHECK(status != KVMEM_STATUS_PANIC);
    if (status != KVMEM_STATUS_OK) CHECK(strlen(test_last_message()) > 0);
    kv_side_check_guards(&hostile.side);
}

static void part(void) {
    source_close(&hostile);
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(agent, hostile_name("hostile"), NULL, ERR));
}

static void close_victim(void) {
    source_close(&healthy);
    kv_side_close(&model);
    kvmem_agent_destroy(agent);
}

/* ---- the hostile owner ---- */

#define ENTRIES 16
#define ENTRY 256

static unsigned char *control; /* its control block */

static void open_hostile(void) {
    open_owner(hostile_name("hostile"));
    control = (unsigned char *)(uintptr_t)served_arena(&own.descriptor);
    CHECK_BYTES(control, "KVMEMSRC", 8);
}

static void put_word(unsigned char *at, uint32_t value) { memcpy(at, &value, sizeof(value)); }

static void seal(unsigned char *entry) { put_word(entry + ENTRY - 4, crc_append(0, entry, ENTRY - 4)); }

/* The entries of sessions that are open, with these words changed. */
static void change_entries(const size_t *offsets, const uint32_t *values, size_t count) {
    for (int round = 0; round < 2000; round++)
        for (size_t i = 1; i < ENTRIES; i++) {
            unsigned char *entry = control + i * ENTRY;
            if (entry[16] != 1) continue;
            for (size_t j = 0; j < count; j++) put_word(entry + offsets[j], values[j]);
            seal(entry);
        }
}

static void write_random_bytes(unsigned turn) {
    (void)turn;
    for (int i = 0; i < 20000; i++) control[ENTRY + hostile_random() % (ENTRY * (ENTRIES - 1))] = (unsigned char)hostile_random();
}

static void lie_about_slots(unsigned turn) {
    static const uint32_t counts[] = {0, 9, UINT32_MAX, 8}, slots[] = {8, 1024, UINT32_MAX, 7};
    change_entries((size_t[]){20, 32, 36}, (uint32_t[]){counts[turn % 4], slots[turn / 4 % 4], slots[turn % 4]}, 3);
}

static void lie_about_chunks(unsigned turn) {
    static const uint32_t counts[] = {UINT32_MAX, 0, 1, 1000000};
    change_entries((size_t[]){24, 28}, (uint32_t[]){counts[turn % 4], turn % 8 < 4 ? 0 : counts[turn % 4]}, 2);
}

static void lie_about_checksums(unsigned turn) {
    change_entries((size_t[]){64, 68, 72}, (uint32_t[]){turn, UINT32_MAX, turn << 8}, 3);
}

/* With statuses and reasons that there are not. */
static void end_sessions(unsigned turn) {
    static const uint32_t statuses[] = {0, 1, 12345, 0x80000000, (uint32_t)KVMEM_STATUS_BUSY, (uint32_t)KVMEM_STATUS_PANIC};
    for (int round = 0; round < 2000; round++)
        for (size_t i = 1; i < ENTRIES; i++) {
            unsigned char *entry = control + i * ENTRY;
            if (entry[16] == 0) continue;
            put_word(entry + 16, 2 + turn % 3 / 2);
            put_word(entry + 20, turn % 2 != 0 ? 188 : UINT32_MAX);
            put_word(entry + 24, statuses[turn % NUM(statuses)]);
            memset(entry + 64, 0xFF, 188);
            seal(entry);
        }
}

static void change_the_first_entry(unsigned turn) {
    unsigned char before[ENTRY];
    memcpy(before, control, sizeof(before));
    if (turn % 3 == 0) control[hostile_random() % 8] ^= 1;
    if (turn % 3 == 1) put_word(control + 8, turn);
    if (turn % 3 == 2) put_word(control + 12, turn % 2 != 0 ? 0 : UINT32_MAX);
    seal(control);
    (void)poll(NULL, 0, 5);
    memcpy(control, before, sizeof(before));
}

static void change_chunks(unsigned turn) {
    (void)turn;
    for (int i = 0; i < 20000; i++) control[4096 + hostile_random() % (8 * 16384)] ^= 1;
}

static void do_nothing(unsigned turn) { (void)turn; }

static void flood(size_t size, int count) {
    unsigned char *bytes = test_allocate(size + 1);
    memset(bytes, 'x', size);
    /* What the victim's transport does not take fails here. */
    for (int i = 0; i < count; i++) (void)kvmem_agent_notify(own.agent, "victim", bytes, size, NULL);
    free(bytes);
}

static void flood_messages(unsigned turn) { flood(turn % 2 * 200, 500); }

static void flood_large_messages(unsigned turn) {
    (void)turn;
    flood(MIB, 8);
}

static const hostile_row rows[] = {
    {.does = "writes random bytes to its control block", .act = write_random_bytes, .turns = 200, .is_long = true},
    {.does = "grants slots that do not exist", .act = lie_about_slots, .turns = 64},
    {.does = "reports chunks that it has not gathered", .act = lie_about_chunks, .turns = 64, .is_long = true},
    {.does = "lies about checksums", .act = lie_about_checksums, .turns = 64, .is_long = true},
    {.does = "ends sessions with any status and reason", .act = end_sessions, .turns = 64},
    {.does = "changes the identity of its control block", .act = change_the_first_entry, .is_long = true},
    {.does = "changes chunks while they are read", .act = change_chunks, .turns = 200, .is_long = true},
    {.does = "serves, and stops", .act = do_nothing, .stops = true},
    {.does = "floods its reader with messages", .act = flood_messages, .is_long = true},
    {.does = "floods its reader with messages of 1 MiB", .act = flood_large_messages},
};

const hostile_form hostile_form_here = {
    .victim = {.open = open_victim, .round = read_and_ask, .meet = meet, .deal = deal, .part = part, .close = close_victim},
    .healthy = {.open = open_healthy, .close = close_healthy},
    .open_hostile = open_hostile,
    .files = 32, /* UCX opens connections to the hostile owner again */
    .threads = 4,
    .bytes = 1024 * MIB, /* 128 MiB of messages wait; UCX, NIXL and a call that takes them have copies, and the heap keeps what is freed */
    .bounds = {.longest_ms = 2000, .share = 0.005, .processors = 2},
    .rows = rows,
    .num_rows = NUM(rows),
};
