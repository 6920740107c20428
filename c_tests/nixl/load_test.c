// SPDX-License-Identifier: Apache-2.0
// Eight processes read blocks from one agent while it registers and deregisters memory, and creates and
// destroys the layouts they read.
#include "harness.h"

#define READERS 8

enum {
    OPEN = 1, /* reader_setup -> nothing */
    IMPORT,     /* metadata, then a second frame with a descriptor -> nothing */
    READ,     /* nanoseconds -> number of rounds */
};

typedef struct reader_setup {
    char name[32];
    kv_sent_config shape;
    uint32_t seed;
    uint32_t reserved;
} reader_setup;

/* ---- a process that reads ---- */

static kvmem_agent *reader_agent;
static kv_side reader_side;
static kv_side reader_model; /* of the owner */
static uint64_t reader_random;

static void serve_setup(const message *request) {
    static reader_setup setup; /* the layouts refer to it */
    CHECK_EQ(request->size, sizeof(setup));
    memcpy(&setup, request->data, sizeof(setup));
    reader_agent = agent_open(setup.name);
    kv_side_open(&reader_side, REF(kv_received(&setup.shape)), reader_agent, setup.seed);
    kv_model_open(&reader_model, REF(kv_received(&setup.shape)), 1);
    reader_random = setup.seed;
}

/* The owner is a new peer each time: its memory may have other addresses, or be other memory at the same
   addresses. */
static void serve_import(int socket, const message *metadata) {
    CLEANUP(message_free) message descriptor = frame_expect(socket, IMPORT);
    DESTROYED(kvmem_layout, reader_model.layout);
    if (kvmem_agent_check_remote_metadata(reader_agent, "owner", NULL) == KVMEM_STATUS_OK)
        EXPECT_OK(kvmem_agent_invalidate_remote_metadata(reader_agent, "owner", NULL, ERR));
    agent_load(reader_agent, metadata);
    EXPECT_OK(kvmem_layout_import(reader_agent, descriptor.data, descriptor.size, &reader_model.layout, ERR));
}

static uint32_t next_block(void) {
    reader_random = reader_random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((reader_random >> 33) % reader_side.config.num_blocks);
}

/* Reads a random block to a random place, and compares every byte of the memory. */
static void read_once(void) {
    const kv_move move = KV_MOVE(reader_side.config.num_layers, {next_block(), next_block()});
    kv_run(reader_model.layout, reader_side.layout, &move);
    kv_side_check_moved(&reader_side, &reader_model, &move);
}

static void serve_read(int socket, const message *request) {
    uint64_t duration = 0;
    CHECK_EQ(request->size, sizeof(duration));
    memcpy(&duration, request->data, sizeof(duration));
    const load_clock clock = load_begin();
    uint64_t rounds = 0;
    do {
        read_once();
        rounds++;
    } while (load_lasts(&clock, duration));
    frame_send(socket, READ, &rounds, sizeof(rounds));
}

static void serve(int socket, uint32_t tag, const message *request) {
    switch (tag) {
    case OPEN:
        serve_setup(request);
        frame_send(socket, tag, NULL, 0);
        break;
    case IMPORT:
        serve_import(socket, request);
        frame_send(socket, tag, NULL, 0);
        break;
    default:
        CHECK_EQ(tag, READ);
        serve_read(socket, request);
    }
}

ROLE(reader) {
    frames_serve(socket, serve);
    kv_side_close(&reader_side);
    kv_side_close(&reader_model);
    kvmem_agent_destroy(reader_agent);
}

/* ---- the owner ---- */

typedef struct owner {
    kvmem_agent *agent;
    kv_side side;
    peer readers[READERS];
} owner;

static void await_all(owner *owner, uint32_t tag) {
    for (size_t i = 0; i < READERS; i++) frame_await(owner->readers[i].socket, tag);
}

/* Sends the metadata and the layout to the readers. */
static void introduce(owner *owner) {
    CLEANUP(message_free) message metadata = agent_metadata(owner->agent);
    CLEANUP(message_free) message descriptor = layout_descriptor(owner->side.layout);
    for (size_t i = 0; i < READERS; i++) {
        frame_send(owner->readers[i].socket, IMPORT, metadata.data, metadata.size);
        frame_send(owner->readers[i].socket, IMPORT, descriptor.data, descriptor.size);
    }
    await_all(owner, IMPORT);
}

static void owner_open(owner *owner) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    for (uint32_t i = 0; i < READERS; i++) {
        owner->readers[i] = peer_start("reader");
        reader_setup setup = {.shape = kv_sent(&config), .seed = 2 + i};
        snprintf(setup.name, sizeof(setup.name), "reader %u", i);
        frame_send(owner->readers[i].socket, OPEN, &setup, sizeof(setup));
    }
    owner->agent = agent_open("owner");
    kv_side_open(&owner->side, &config, owner->agent, 1);
    await_all(owner, OPEN);
    introduce(owner);
}

static void owner_close(owner *owner) {
    for (size_t i = 0; i < READERS; i++) peer_finish(&owner->readers[i]);
    kv_side_close(&owner->side);
    kvmem_agent_destroy(owner->agent);
}

static void begin_reads(owner *owner, uint64_t duration) {
    for (size_t i = 0; i < READERS; i++)
        frame_send(owner->readers[i].socket, READ, &duration, sizeof(duration));
}

static uint64_t await_reads(owner *owner) {
    uint64_t all = 0;
    for (size_t i = 0; i < READERS; i++) {
        uint64_t rounds = 0;
        frame_expect_into(owner->readers[i].socket, READ, &rounds, sizeof(rounds));
        CHECK(rounds > 0);
        all += rounds;
    }
    return all;
}

/* A thread that registers memory, gets metadata, and deregisters. */
typedef struct churn {
    kvmem_agent *agent;
    atomic_bool *is_over;
    uint64_t cycles;
    kvmem_status status; /* the first failure; read after the thread was joined */
} churn;

static kvmem_status churn_once(const churn *churn, uint64_t size) {
    const kvmem_system_options options = OPTIONS(kvmem_system_options, it.size = size);
    OWNED(kvmem_region) region = NULL;
    OWNED(kvmem_registration) registration = NULL;
    OWNED(kvmem_blob) metadata = NULL;
    kvmem_status status = kvmem_region_create_system(&options, &region, NULL);
    THEN(status, kvmem_region_register(region, churn->agent, &registration, NULL));
    THEN(status, kvmem_agent_get_local_metadata(churn->agent, &metadata, NULL));
    THEN(status, kvmem_registration_deregister(registration, NULL));
    return status;
}

static void *churn_repeatedly(void *argument) {
    churn *churn = argument;
    while (churn->status == KVMEM_STATUS_OK && !*churn->is_over) {
        churn->status = churn_once(churn, 4096 * (1 + churn->cycles % 64));
        churn->cycles++;
    }
    return NULL;
}

TEST(eight_processes_read_while_memory_is_registered_and_deregistered) {
    OPENED(owner, owner);
    atomic_bool is_over = false;
    churn churns[2] = {{.agent = owner.agent, .is_over = &is_over},
                       {.agent = owner.agent, .is_over = &is_over}};
    threads threads = {0};
    threads_start(&threads, NUM(churns), churn_repeatedly, churns, sizeof(churns[0]));
    begin_reads(&owner, load_duration());
    const uint64_t rounds = await_reads(&owner);
    is_over = true;
    threads_join(&threads);
    for (size_t i = 0; i < NUM(churns); i++) {
        CHECK_EQ(churns[i].status, KVMEM_STATUS_OK);
        CHECK(churns[i].cycles > 0);
    }
    kv_side_check(&owner.side);
    load_report("%d processes pulled %llu times while two threads registered memory %llu times", READERS,
                (unsigned long long)rounds, (unsigned long long)(churns[0].cycles + churns[1].cycles));
}

/* The memory is registered as another layout each time, and the processes read its current bytes. */
TEST(eight_processes_read_from_layouts_that_are_replaced) {
    OPENED(owner, owner);
    const load_clock clock = load_begin();
    uint64_t layouts = 0;
    uint64_t rounds = 0;
    do {
        begin_reads(&owner, MILLISECONDS(10));
        rounds += await_reads(&owner);
        DESTROYED(kvmem_layout, owner.side.layout);
        kv_side_build(&owner.side, owner.agent);
        introduce(&owner);
        layouts++;
    } while (load_lasts(&clock, load_duration()));
    begin_reads(&owner, 0);
    rounds += await_reads(&owner);
    load_report("%d processes pulled %llu times from %llu layouts", READERS, (unsigned long long)rounds,
                (unsigned long long)(layouts + 1));
}
