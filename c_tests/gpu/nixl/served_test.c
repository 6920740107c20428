// SPDX-License-Identifier: Apache-2.0
// Transfers between a peer and layouts in GPU memory through staging memory: of this process (staged), or of
// the owner (served).
#include "elastic_side.h"
#include "side_peer.h"
#include "caller_context.h"

SIDE_PEER_ROLE

#define SMALL_ARENA (8 * 4096)

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}, {2, 1}};
static const kv_move all_layers = {scattered, NUM(scattered), 0, 0, 3};


static const uint64_t from_gpu = KVMEM_SERVE_WRITE, from_host = KVMEM_SERVE_WRITE | KVMEM_SERVE_FROM_HOST;

/* Whether NIXL can access GPU memory. UCX handles memory of the stand-in as host memory, which the CPU cannot
   access. */
static bool has_gpu(void) { return lacks_real_gpu() == NULL; }

static const kv_job *by(kv_job *options, uint32_t path) {
    *options = kv_job_of(&all_layers);
    options->transfer.method = path;
    options->transfer.staging_size = SMALL_ARENA;
    return options;
}

/* Each run reads the blocks of the peer to host memory, and compares them. */
static const kv_job *verified_by(kv_job *options, uint32_t path) {
    by(options, path);
    options->run.flags = KVMEM_SUBMIT_VERIFY;
    return options;
}

static void move_both_directions(side *here, kv_peer *peer, uint32_t method) {
    kv_job options;
    kvmem_transfer_info info;
    info = kv_run_with(peer->model.layout, here->model.layout, verified_by(&options, method));
    CHECK_EQ(info.method, method);
    kv_expect_moved(&here->model, &peer->model, &all_layers);
    side_check(here);
    kv_peer_check(peer);
    side_refill(here, 77);
    info = kv_run_with(here->model.layout, peer->model.layout, verified_by(&options, method));
    CHECK_EQ(info.method, method);
    kv_expect_moved(&peer->model, &here->model, &all_layers);
    kv_peer_check(peer);
    side_check(here);
}

typedef struct connection {
    kvmem_agent *agent;
    kv_peer peer;
} connection;

static void connection_open(connection *connection, place there, uint64_t flags) {
    connection->agent = agent_open("near");
    side_peer_start_served(&connection->peer, "far", there, 0, REF(side_config(&kv_kinds[1])), 100,
                           REF(OPTIONS(kvmem_serve_options, it.flags = flags, it.staging_size = SMALL_ARENA)));
    kv_peer_meet(&connection->peer, connection->agent);
}

static void connection_close(connection *connection) {
    kv_peer_close(&connection->peer);
    CALL(kvmem_agent_destroy(connection->agent));
}

static void refuse_to_serve(side *here, kv_peer *peer) {
    kv_job options;
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "KVMEM_SERVE_FROM_HOST", kv_prepare, peer->model.layout,
           here->model.layout, by(&options, KVMEM_METHOD_NIXL_SERVED));
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "KVMEM_SERVE_FROM_HOST", kv_prepare, here->model.layout,
           peer->model.layout, by(&options, KVMEM_METHOD_NIXL_SERVED));
}

/* Between one owner and each place of this process, for all kinds of layouts. */
static void exchange_with(place there, uint64_t flags) {
    static const place places[] = {PLACE_DEVICE, PLACE_ELASTIC, PLACE_PINNED, PLACE_SYSTEM};
    OPENED(connection, connection, there, flags);
    const bool by_gpu = place_is_device(there) && flags == from_gpu;
    for (size_t i = 0; i < NUM(places) * KV_NUM_KINDS; i++) {
        if (driver_leaves_out(i)) continue;
        const place place = places[i / KV_NUM_KINDS];
        const kvmem_layout_config local = side_config(&kv_kinds[i % KV_NUM_KINDS]);
        OPENED(side, here, place, 0, &local, connection.agent, (uint32_t)i);
        if (by_gpu && !place_is_device(place))
            refuse_to_serve(&here, &connection.peer);
        else
            move_both_directions(&here, &connection.peer, KVMEM_METHOD_NIXL_SERVED);
        if (has_gpu() || !place_is_device(there))
            move_both_directions(&here, &connection.peer, KVMEM_METHOD_NIXL_STAGED);
    }
}

TEST_CALL(with_host_memory_there, exchange_with(PLACE_SYSTEM, from_gpu))
TEST_CALL(with_device_memory_served_from_the_host, exchange_with(PLACE_DEVICE, from_host))
TEST_CALL(with_elastic_memory_served_from_the_host, exchange_with(PLACE_ELASTIC, from_host))

TEST(with_gpu_memory_served_from_the_gpu) {
    if (!has_gpu()) SKIP("%s", lacks_real_gpu());
    exchange_with(PLACE_DEVICE, from_gpu);
    exchange_with(PLACE_ELASTIC, from_gpu);
}

static void import_and_refuse(place there) {
    OPENED(connection, connection, there, from_gpu);
    OPENED(side, here, PLACE_SYSTEM, 0, REF(side_config(&kv_kinds[0])), connection.agent, 1);
    refuse_to_serve(&here, &connection.peer);
}

TEST(layouts_served_from_the_gpu_need_gpu_memory_in_the_reader) {
    import_and_refuse(PLACE_DEVICE);
    import_and_refuse(PLACE_ELASTIC);
}

/* Few long blocks, with an arena of the default size. The path is requested, because the selected one depends
   on measured rates. */
TEST(long_blocks_of_elastic_memory_are_served) {
    if (!has_gpu()) SKIP("%s", lacks_real_gpu());
    OWNED(kvmem_agent) agent = agent_open("near");
    const kvmem_layout_config config =
        WITH(side_config(&kv_kinds[0]), it.num_blocks = 64, it.page_size = 64, it.inner_dim = 1024);
    CLEANUP(kv_peer_close) kv_peer peer;
    side_peer_start_served(&peer, "new", PLACE_ELASTIC, 0, &config, 5, REF(OPTIONS(kvmem_serve_options)));
    kv_peer_meet(&peer, agent);
    OPENED(side, here, PLACE_ELASTIC, 0, &config, agent, 6);
    kv_job options = kv_job_of(&all_layers);
    options.transfer.method = KVMEM_METHOD_NIXL_SERVED;
    const kvmem_transfer_info info = kv_run_with(peer.model.layout, here.model.layout, &options);
    CHECK_EQ(info.method, KVMEM_METHOD_NIXL_SERVED);
    kv_expect_moved(&here.model, &peer.model, &all_layers);
    side_check(&here);
}

/* The rows of one slot have more descriptors than the descriptor ring of a GPU has space for. */
TEST(a_slot_may_have_any_number_of_rows) {
    enum { BLOCKS = 300000 };
    static kvmem_block_pair reversed[BLOCKS];
    for (uint32_t i = 0; i < BLOCKS; i++) reversed[i] = (kvmem_block_pair){i, BLOCKS - 1 - i};
    const kv_move all = {reversed, BLOCKS, 0, 0, 1};
    const kvmem_layout_config config =
        WITH(side_config(&kv_kinds[0]), it.num_blocks = BLOCKS, it.num_layers = 1, it.outer_dim = 1,
             it.page_size = 1, it.inner_dim = 8);
    OWNED(kvmem_agent) agent = agent_open("near");
    CLEANUP(kv_peer_close) kv_peer peer;
    side_peer_start(&peer, "far", PLACE_SYSTEM, 0, &config, 100);
    kv_peer_meet(&peer, agent);
    OPENED(side, here, PLACE_DEVICE, 0, &config, agent, 1);
    kv_job options = kv_job_of(&all);
    options.transfer.method = KVMEM_METHOD_NIXL_STAGED;
    options.transfer.staging_size = UINT64_C(64) << 20; /* eight slots, one of which contains all blocks */
    CHECK_EQ(kv_run_with(peer.model.layout, here.model.layout, &options).method, KVMEM_METHOD_NIXL_STAGED);
    kv_expect_moved(&here.model, &peer.model, &all);
    side_check(&here);
}

static const uint64_t possible_flags[] = {KVMEM_SERVE_WRITE | KVMEM_SERVE_FROM_HOST, KVMEM_SERVE_WRITE};

/* Only the first with the stand-in. */
static size_t num_flags(void) { return has_gpu() ? NUM(possible_flags) : 1; }

TEST(a_cancelled_transfer_ends_and_runs_again) {
    for (size_t i = 0; i < num_flags(); i++) {
        OPENED(connection, connection, PLACE_ELASTIC, possible_flags[i]);
        OPENED(side, here, PLACE_DEVICE, 0, REF(side_config(&kv_kinds[0])), connection.agent, 3);
        kv_job options;
        OWN(kvmem_transfer, read, kv_prepare, connection.peer.model.layout, here.model.layout,
            by(&options, KVMEM_METHOD_NIXL_SERVED));
        kv_cancel_and_run(read);
        kv_expect_moved(&here.model, &connection.peer.model, &all_layers);
        side_check(&here);
    }
}

TEST(transfers_fail_when_the_owner_is_killed) {
    for (size_t i = 0; i < num_flags(); i++) {
        OPENED(connection, connection, PLACE_ELASTIC, possible_flags[i]);
        OPENED(side, here, PLACE_ELASTIC, 0, REF(side_config(&kv_kinds[0])), connection.agent, 3);
        kv_job options;
        kvmem_transfer *both[2] = {NULL};
        EXPECT_OK(kv_prepare(connection.peer.model.layout, here.model.layout,
                                        by(&options, KVMEM_METHOD_NIXL_SERVED), &both[0], ERR));
        EXPECT_OK(kv_prepare(here.model.layout, connection.peer.model.layout,
                                        by(&options, KVMEM_METHOD_NIXL_SERVED), &both[1], ERR));
        kv_peer_crash_under(&connection.peer, both, 2, PATIENCE);
    }
}

/* A peer that reads from the owner. */
enum { MEET = 1, ROUND };

typedef struct reader {
    side here;
    kvmem_layout *far;
    kvmem_transfer *read;
} reader;

static reader reader_open(int socket, const char *name) {
    CLEANUP(message_free) message metadata = frame_expect(socket, MEET);
    CLEANUP(message_free) message descriptor = frame_expect(socket, MEET);
    kvmem_agent *agent = agent_open(name);
    reader reader;
    side_open(&reader.here, PLACE_DEVICE, 0, REF(side_config(&kv_kinds[1])), agent, 3);
    agent_load(agent, &metadata);
    reader.far = MADE(kvmem_layout, kvmem_layout_import, agent, descriptor.data, descriptor.size);
    kv_job options;
    reader.read = MADE(kvmem_transfer, kv_prepare, reader.far, reader.here.model.layout,
                       by(&options, KVMEM_METHOD_NIXL_SERVED));
    return reader;
}

static peer reader_start(const char *role, const message *metadata, const message *descriptor) {
    const peer reader = peer_start(role);
    frame_send(reader.socket, MEET, metadata->data, metadata->size);
    frame_send(reader.socket, MEET, descriptor->data, descriptor->size);
    return reader;
}

/* Reads until it is killed. */
static void requester_role(int socket) {
    const reader reader = reader_open(socket, "requester");
    for (;;) {
        RUN(reader.read);
        frame_send(socket, ROUND, NULL, 0);
    }
}

USES_ROLE(requester, requester_role)

/* A side in elastic memory that is served by these flags, and what a reader needs of it. */
typedef struct owner {
    kvmem_agent *agent;
    side own;
    message metadata, descriptor;
} owner;

static void owner_open(owner *owner, uint64_t flags) {
    owner->agent = agent_open("owner");
    side_open(&owner->own, PLACE_ELASTIC, 0, REF(side_config(&kv_kinds[0])), owner->agent, 7);
    EXPECT_OK(kvmem_layout_serve(
        owner->own.model.layout,
        REF(OPTIONS(kvmem_serve_options, it.flags = flags, it.staging_size = SMALL_ARENA)), ERR));
    owner->metadata = agent_metadata(owner->agent);
    owner->descriptor = layout_descriptor(owner->own.model.layout);
}

static void owner_close(owner *owner) {
    message_free(&owner->metadata);
    message_free(&owner->descriptor);
    side_close(&owner->own);
    kvmem_agent_destroy(owner->agent);
}

TEST(requesters_that_are_killed_leave_the_owner_unchanged) {
    for (size_t i = 0; i < num_flags(); i++) {
        OPENED(owner, owner, possible_flags[i]);
        side *own = &owner.own;
        for (int round = 0; round < 3; round++) {
            peer requester = reader_start("requester", &owner.metadata, &owner.descriptor);
            frame_await(requester.socket, ROUND);
            peer_kill(&requester);
        }
        side_check(own);
    }
}

/* Reads once per request, and sends the status. */
static void reader_role(int socket) {
    const reader reader = reader_open(socket, "reader");
    for (;;) { /* until it is killed */
        frame_await(socket, ROUND);
        EXPECT_OK(kvmem_transfer_submit(reader.read, NULL, ERR));
        const int32_t status = kvmem_transfer_wait(reader.read, PATIENCE, NULL);
        frame_send(socket, ROUND, &status, sizeof(status));
    }
}

USES_ROLE(reader, reader_role)

static void expect_read(const peer *reader, kvmem_status expected) {
    frame_send(reader->socket, ROUND, NULL, 0);
    CLEANUP(message_free) message reply = frame_expect(reader->socket, ROUND);
    int32_t status = -1;
    CHECK_EQ(reply.size, sizeof(status));
    memcpy(&status, reply.data, sizeof(status));
    CHECK_EQ(status, expected);
}

TEST(blocks_that_the_owner_has_decommitted_are_stale) {
    for (size_t i = 0; i < num_flags(); i++) {
        OPENED(owner, owner, possible_flags[i]);
        side *own = &owner.own;
        peer reader = reader_start("reader", &owner.metadata, &owner.descriptor);
        expect_read(&reader, KVMEM_STATUS_OK);
        EXPECT_OK(kvmem_layout_resize(own->model.layout, 0, ERR));
        expect_read(&reader, KVMEM_STATUS_STALE);
        EXPECT_OK(kvmem_layout_resize(own->model.layout, own->blocks_in_use, ERR));
        expect_read(&reader, KVMEM_STATUS_STALE); /* the addresses have other memory */
        peer_kill(&reader);
        elastic_side_write(own);
        side_check(own);
    }
}
