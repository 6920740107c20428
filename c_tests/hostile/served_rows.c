// SPDX-License-Identifier: Apache-2.0
// Requesters of an owner that serves transfers. The victim is the owner, and the healthy peer reads and writes its blocks.
#include "hostile.h"

#include "served_wire.h"

#define BLOCKS 64
/* The hostile peer may write these, which the healthy one leaves alone. */
#define FOREIGN 4

HOSTILE_CASES

static kvmem_agent *agent;
static kv_side side;
static message descriptor;

static kvmem_layout_config config_of(const kv_kind *kind) {
    return WITH(kv_config(kind), it.num_blocks = BLOCKS, it.inner_dim = 64);
}

/* ---- the owner ---- */

static void open_owner(void) {
    agent = agent_open("owner");
    kv_side_open(&side, REF(config_of(&kv_kinds[0])), agent, 7);
    EXPECT_OK(kvmem_layout_serve(side.layout,
                                 REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE, it.staging_size = 8 * 16384,
                                             it.stall_timeout_ns = SECONDS(2), it.max_lease_ns = SECONDS(2))),
                                 ERR));
    hostile_put_layout(agent, side.layout);
}

/* Who accesses blocks is a peer that has a session or a lease, which ends. */
static void ask(void) {
    static kvmem_block_access found[8192];
    uint32_t blocks[BLOCKS];
    size_t count = 0;
    for (uint32_t i = 0; i < BLOCKS; i++) blocks[i] = i;
    EXPECT_OK(kvmem_layout_get_accesses(side.layout, blocks, BLOCKS, found, NUM(found), &count, ERR));
    for (size_t i = 0; i < count && i < NUM(found); i++) {
        CHECK(found[i].block < BLOCKS && found[i].agent[0] != 0);
        if (found[i].accessor != KVMEM_ACCESSOR_PEER) CHECK_EQ(found[i].accessor, KVMEM_ACCESSOR_LEASE);
        CHECK(found[i].remaining_ns <= SECONDS(2) + MILLISECONDS(1));
    }
}

static void close_owner(void) {
    kv_side_close(&side);
    kvmem_agent_destroy(agent);
}

/* ---- the healthy requester ---- */

static kv_side model; /* of the owner */
static kvmem_transfer *reads, *writes;
static kvmem_block_pair pairs[BLOCKS - FOREIGN];
static const kv_move all = {pairs, NUM(pairs), 0, 0, 3};

static void open_requester(void) {
    for (uint32_t i = 0; i < NUM(pairs); i++) pairs[i] = (kvmem_block_pair){FOREIGN + i, FOREIGN + i};
    agent = agent_open("requester");
    kv_side_open(&side, REF(config_of(&kv_kinds[1])), agent, 3);
    kv_model_open(&model, REF(config_of(&kv_kinds[0])), 7);
    descriptor = hostile_take_layout(agent, &model.layout);
    EXPECT_OK(kv_prepare(model.layout, side.layout, KV_JOB(&all, it.transfer.method = KVMEM_METHOD_NIXL_SERVED), &reads, ERR));
    EXPECT_OK(kv_prepare(side.layout, model.layout, KV_JOB(&all, it.transfer.method = KVMEM_METHOD_NIXL_SERVED), &writes, ERR));
}

/* Again while all requests that may wait are those of hostile peers: each of these loses its own some time after it has ended. */
static void run_when_served(kvmem_transfer *transfer) {
    const load_clock clock = load_begin();
    kvmem_status status = KVMEM_STATUS_BUSY;
    while (status == KVMEM_STATUS_BUSY && load_lasts(&clock, PATIENCE)) {
        status = kvmem_transfer_submit(transfer, NULL, ERR);
        THEN(status, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    }
    if (status != KVMEM_STATUS_OK) FAIL("%s: %s", kvmem_status_name(status), test_last_message());
}

/* A hostile peer has no more than its share of leases. */
static void lease_all(void) {
    uint32_t blocks[NUM(pairs)];
    for (uint32_t i = 0; i < NUM(pairs); i++) blocks[i] = pairs[i].source;
    OWN(kvmem_lease, lease, kvmem_lease_create, model.layout, blocks, NUM(pairs),
        REF(OPTIONS(kvmem_lease_options, it.duration_ns = SECONDS(1), it.timeout_ns = PATIENCE)));
}

/* Writes back what it has read. */
static void read_and_write(void) {
    lease_all();
    run_when_served(reads);
    kv_side_check_moved(&side, &model, &all);
    run_when_served(writes);
}

static void close_requester(void) {
    kvmem_transfer_destroy(reads);
    kvmem_transfer_destroy(writes);
    kv_side_close(&model);
    kv_side_close(&side);
    message_free(&descriptor);
    kvmem_agent_destroy(agent);
}

/* ---- the hostile requester ---- */

static served_message sent;
static kvmem_layout_config shape;
static unsigned char service[16];

static void open_hostile(void) {
    CLEANUP(message_free) message metadata = hostile_take("metadata");
    CLEANUP(message_free) message layout = hostile_take("descriptor");
    memcpy(service, served_id(&layout), sizeof(service));
    shape = config_of(&kv_kinds[0]);
    raw_agent_open(hostile_name("hostile"), &metadata);
}

static served_open request(void) { return served_open_for(&shape, hostile_random()); }

static void send_it(void) { raw_agent_send(sent.bytes, sent.size); }

static void send_open(served_open open) {
    served_write_open(&sent, service, &open);
    send_it();
}

static void send_progress(uint64_t session, uint64_t chunks) {
    served_write_progress(&sent, service, session, chunks);
    send_it();
}

static void send_close(uint64_t session) {
    served_write_close(&sent, service, session);
    send_it();
}

static void flood_requests(unsigned turn) {
    (void)turn;
    for (int i = 0; i < 64; i++) send_open(request());
}

static void flood_unknown_sessions(unsigned turn) {
    for (int i = 0; i < 256; i++) turn % 2 != 0 ? send_close(hostile_random()) : send_progress(hostile_random(), 1);
}

static void flood_long_messages(unsigned turn) {
    (void)turn;
    for (int i = 0; i < 8; i++) send_open(WITH(request(), it.spans = 21000));
}

static void open_reads(unsigned turn) {
    (void)turn;
    send_open(request());
}

static void open_writes(unsigned turn) {
    (void)turn;
    send_open(WITH(request(), it.writes = true));
}

static void repeat_a_request(unsigned turn) {
    static served_open repeated;
    if (turn == 0) repeated = request();
    for (int i = 0; i < 32; i++) send_open(repeated);
}

static void reorder(unsigned turn) {
    const served_open open = WITH(request(), it.writes = turn % 2 != 0);
    send_close(open.session);
    send_progress(open.session, 1);
    send_open(open);
    send_progress(open.session, 2);
    send_close(open.session);
    send_open(open);
    send_progress(open.session, 1);
}

static void lie_about_sizes(unsigned turn) {
    const served_open lies[] = {
        WITH(request(), it.bytes = UINT64_MAX),
        WITH(request(), it.bytes = 0),
        WITH(request(), it.bytes += 1),
        WITH(request(), it.chunk_size = UINT64_MAX),
        WITH(request(), it.chunk_size = 0),
        WITH(request(), it.chunk_size = 1),
        WITH(request(), it.block = BLOCKS),
        WITH(request(), it.blocks = UINT32_MAX),
        WITH(request(), it.blocks = 0),
        WITH(request(), it.token = UINT32_MAX),
        WITH(request(), it.tokens = UINT64_MAX),
        WITH(request(), it.first_layer = UINT64_MAX),
        WITH(request(), it.num_layers = UINT64_MAX),
        WITH(request(), it.of_heads = 0),
        WITH(request(), it.element_size = UINT64_MAX),
        WITH(request(), it.spans = 0),
    };
    send_open(WITH(lies[turn % NUM(lies)], it.writes = turn / NUM(lies) % 2 != 0));
}

/* 12 KiB each: all blocks, a thousand times. */
static void ask_for_many_spans(unsigned turn) {
    (void)turn;
    for (int i = 0; i < 8; i++) send_open(WITH(request(), it.spans = 1024, it.blocks = BLOCKS));
}

static void lie_about_progress(unsigned turn) {
    const served_open open = WITH(request(), it.writes = turn % 2 != 0);
    send_open(open);
    for (uint64_t chunks = 1; chunks != 0; chunks <<= 3) send_progress(open.session, chunks - turn % 3);
}

static void send_damaged(unsigned turn) {
    served_write_open(&sent, service, REF(request()));
    for (int i = 0; i < 32; i++) {
        served_message damaged = sent;
        damaged.bytes[24 + hostile_random() % (damaged.size - 24)] ^= (unsigned char)(1 + hostile_random() % 255);
        if (turn % 2 != 0) damaged.size = hostile_random() % damaged.size;
        raw_agent_send(damaged.bytes, damaged.size);
    }
}

static void send_lease(served_lease lease) {
    served_write_lease(&sent, service, &lease);
    send_it();
}

/* A lease of all blocks, for as long as the owner keeps it. */
static served_lease lease_of_all(void) {
    return (served_lease){.session = hostile_random(), .milliseconds = UINT64_MAX, .blocks = BLOCKS, .spans = 1, .writes = true};
}

static void lease_without_end(unsigned turn) {
    (void)turn;
    for (int i = 0; i < 64; i++) send_lease(lease_of_all());
}

static void renew_without_end(unsigned turn) {
    static served_lease lease;
    if (turn == 0) send_lease(lease = lease_of_all());
    lease.spans = 0;
    for (int i = 0; i < 64; i++) {
        lease.number++;
        send_lease(lease);
    }
}

static void lie_about_leases(unsigned turn) {
    const served_lease lies[] = {
        WITH(lease_of_all(), it.block = BLOCKS),
        WITH(lease_of_all(), it.blocks = UINT32_MAX),
        WITH(lease_of_all(), it.blocks = 0),
        WITH(lease_of_all(), it.block = UINT32_MAX),
        WITH(lease_of_all(), it.spans = 30000),
        WITH(lease_of_all(), it.spans = 1024, it.blocks = BLOCKS),
        WITH(lease_of_all(), it.spans = 0),
        WITH(lease_of_all(), it.spans = 0, it.number = UINT64_MAX),
        WITH(lease_of_all(), it.number = UINT64_MAX),
        WITH(lease_of_all(), it.milliseconds = 0),
    };
    send_lease(lies[turn % NUM(lies)]);
}

/* As sessions, and sessions as leases. */
static void mix_leases_and_sessions(unsigned turn) {
    const served_lease lease = lease_of_all();
    send_lease(lease);
    send_progress(lease.session, turn % 3);
    send_open(WITH(request(), it.session = lease.session, it.writes = turn % 2 != 0));
    send_lease(lease);
    send_close(lease.session);
    send_lease(lease);
}

static const hostile_row rows[] = {
    {.does = "floods an owner with requests", .act = flood_requests},
    {.does = "floods an owner with messages of sessions that do not exist", .act = flood_unknown_sessions, .is_long = true},
    {.does = "floods an owner with messages of 252 KiB", .act = flood_long_messages, .is_long = true},
    {.does = "opens reads and never closes them", .act = open_reads, .is_long = true},
    {.does = "opens reads, and stops", .act = open_reads, .stops = true, .is_long = true},
    {.does = "opens writes and never closes them", .act = open_writes, .is_long = true},
    {.does = "opens writes, and stops", .act = open_writes, .stops = true},
    {.does = "repeats a request", .act = repeat_a_request, .is_long = true},
    {.does = "sends messages of a session in another order", .act = reorder},
    {.does = "lies about sizes of a request", .act = lie_about_sizes, .turns = 32},
    {.does = "asks for many spans", .act = ask_for_many_spans, .is_long = true},
    {.does = "lies about progress", .act = lie_about_progress, .is_long = true},
    {.does = "sends damaged messages", .act = send_damaged, .is_long = true},
    {.does = "leases all blocks without end", .act = lease_without_end},
    {.does = "leases all blocks, and stops", .act = lease_without_end, .turns = 8, .stops = true, .is_long = true},
    {.does = "renews a lease without end", .act = renew_without_end, .is_long = true},
    {.does = "lies about leases", .act = lie_about_leases, .turns = 20},
    {.does = "sends messages of leases for sessions", .act = mix_leases_and_sessions, .is_long = true},
};

const hostile_form hostile_form_here = {
    .victim = {.open = open_owner, .deal = ask, .close = close_owner},
    .healthy = {.open = open_requester, .round = read_and_write, .close = close_requester},
    .open_hostile = open_hostile,
    .files = 8, /* UCX's connections to three agents */
    .threads = 2,
    .bytes = 48 * MIB,
    .bounds = {.longest_ms = 6500, .share = 0.001, .processors = 2},
    .rows = rows,
    .num_rows = NUM(rows),
};
