// SPDX-License-Identifier: Apache-2.0
// Transfers that wait for an unresponsive peer: over TCP a stopped process keeps them in flight. What may be
// destroyed then, what fails, and the result of a kill.
#include "harness.h"


KV_PEER_ROLE

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {3, 3});

/* Everything that can be destroyed while the transfer is in flight. */
typedef struct flight {
    kvmem_agent *agent;
    kv_side model; /* the bytes of the local side */
    int releases_before;
    kvmem_region *region;
    kvmem_layout *local;
    kvmem_layout *remote;
    kvmem_queue *queue;
    kvmem_transfer *transfer;
} flight;

static void lay_out_with_release(flight *flight, const kvmem_layout_config *config) {
    kv_model_open(&flight->model, config, 1);
    unsigned char *memory = flight->model.memory + flight->model.starts[0];
    flight->releases_before = releases_count();
    flight->region = region_adopt_noting_release(memory, kv_region_size(config));
    flight->local = regions_lay_out(config, &flight->region, 1, flight->agent);
}

/* Connected by a first run, so that the next one needs only the peer's help. */
static void prepare(flight *flight, kv_peer *peer, const char *name) {
    flight->agent = agent_open(name);
    lay_out_with_release(flight, REF(kv_config(&kv_kinds[0])));
    kv_peer_meet(peer, flight->agent);
    flight->remote = peer->model.layout;
    peer->model.layout = NULL;
    EXPECT_OK(kvmem_queue_create(&flight->queue, ERR));
    kv_job options = WITH(kv_job_of(&move), it.transfer.queue = flight->queue);
    EXPECT_OK(kv_prepare(flight->remote, flight->local, &options, &flight->transfer, ERR));
    RUN(flight->transfer);
    next_completion(flight->queue);
}

static void start_and_stop_peer(flight *flight, kv_peer *peer) {
    peer_freeze(&peer->process);
    EXPECT_OK(kvmem_transfer_submit(flight->transfer, NULL, ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight->transfer, MILLISECONDS(5), ERR));
}

enum { AGENT, REGION, LOCAL, REMOTE, QUEUE, TRANSFER, NUM_HANDLES };

static void destroy_handle(flight *flight, int handle) {
    switch (handle) {
    case AGENT:
        DESTROYED(kvmem_agent, flight->agent);
        break;
    case REGION:
        DESTROYED(kvmem_region, flight->region);
        break;
    case LOCAL:
        DESTROYED(kvmem_layout, flight->local);
        break;
    case REMOTE:
        DESTROYED(kvmem_layout, flight->remote);
        break;
    case QUEUE:
        DESTROYED(kvmem_queue, flight->queue);
        break;
    default:
        DESTROYED(kvmem_transfer, flight->transfer);
    }
}

static void destroy_all(flight *flight) {
    for (int handle = NUM_HANDLES - 1; handle >= 0; handle--) destroy_handle(flight, handle);
    await_releases(flight->releases_before + 1);
    kv_side_close(&flight->model);
}

static void start(kv_peer *peer) { kv_peer_open(peer, "frozen", REF(kv_config(&kv_kinds[0])), 2); }

static void open_flight(flight *flight, kv_peer *peer) {
    start(peer);
    prepare(flight, peer, "waiting");
}

TEST(a_run_in_flight_cannot_be_repeated_and_ends_after_its_peer_was_invalidated) {
    flight flight;
    CLEANUP(kv_peer_close) kv_peer peer;
    open_flight(&flight, &peer);
    start_and_stop_peer(&flight, &peer);
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight.transfer, ERR));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(flight.transfer, NULL, ERR));
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(flight.agent, "frozen", NULL, ERR));
    peer_thaw(&peer.process);
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    kv_side_check_moved(&flight.model, &peer.model, &move);
    destroy_all(&flight);
}

TEST(a_run_with_a_frozen_peer_ends_at_its_deadline) {
    flight flight;
    CLEANUP(kv_peer_close) kv_peer peer;
    open_flight(&flight, &peer);
    OWN(kvmem_transfer, limited, kv_prepare, flight.remote, flight.local,
        KV_JOB(&move, it.run.run_timeout_ns = SECONDS(1), it.run.user_data = 3, it.transfer.queue = flight.queue,
               it.transfer.flags = KVMEM_TRANSFER_REPORT_RELEASE));
    peer_freeze(&peer.process);
    RUN_ENDS(KVMEM_STATUS_TIMED_OUT, "with agent 'frozen' was not complete after 1000 ms", limited);
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "its memory may still be in use",
                   kvmem_transfer_submit(limited, NULL, ERR));
    CHECK_EQ(next_completion(flight.queue).released, 0);
    peer_thaw(&peer.process);
    expect_release(flight.queue, 3, KVMEM_STATUS_OK);
    kvmem_submit_options again = {.struct_size = sizeof(again), .pairs = move.pairs,
                                  .num_pairs = move.num_pairs,
                                  .run_timeout_ns = KVMEM_TIMEOUT_FOREVER};
    EXPECT_OK(kvmem_transfer_submit(limited, &again, ERR));
    EXPECT_OK(kvmem_transfer_wait(limited, PATIENCE, ERR));
    kv_side_check_moved(&flight.model, &peer.model, &move);
    DESTROYED(kvmem_transfer, limited);
    destroy_all(&flight);
}

/* Otherwise the late bytes of the frozen peer would overwrite those of a run that has succeeded. */
TEST(blocks_that_an_ended_run_may_still_write_get_no_others) {
    flight flight;
    CLEANUP(kv_peer_close) kv_peer peer;
    open_flight(&flight, &peer);
    OWN(kvmem_transfer, limited, kv_prepare, flight.remote, flight.local,
        KV_JOB(&move, it.run.run_timeout_ns = SECONDS(1)));
    kv_side model;
    kv_side_open(&model, REF(kv_config(&kv_kinds[0])), NULL, 3);
    OWN(kvmem_transfer, same, kv_prepare, model.layout, flight.local, KV_JOB(&move));
    const kv_move elsewhere = KV_MOVE(3, {0, 1});
    kv_side_check_moved(&flight.model, &peer.model, &move);
    OWN(kvmem_transfer, other, kv_prepare, model.layout, flight.local, KV_JOB(&elsewhere));
    peer_freeze(&peer.process);
    RUN_ENDS(KVMEM_STATUS_TIMED_OUT, "was not complete", limited);
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "may still write to the destination",
                   kvmem_transfer_submit(same, NULL, ERR));
    RUN(other);
    kv_side_check_moved(&flight.model, &model, &elsewhere);
    peer_thaw(&peer.process);
    CHECK_EQ(submit_when_free(same), KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_wait(same, PATIENCE, ERR));
    kv_side_check_moved(&flight.model, &model, &move);
    DESTROYED(kvmem_transfer, same);
    DESTROYED(kvmem_transfer, other);
    DESTROYED(kvmem_transfer, limited);
    kv_side_close(&model);
    destroy_all(&flight);
}

TEST(memory_in_use_is_reported_although_the_peer_was_invalidated) {
    flight flight;
    CLEANUP(kv_peer_close) kv_peer peer;
    open_flight(&flight, &peer);
    OWN(kvmem_transfer, limited, kv_prepare, flight.remote, flight.local,
        KV_JOB(&move, it.run.run_timeout_ns = SECONDS(1)));
    peer_freeze(&peer.process);
    RUN_ENDS(KVMEM_STATUS_TIMED_OUT, "was not complete", limited);
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(flight.agent, "frozen", NULL, ERR));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(limited, NULL, ERR));
    peer_thaw(&peer.process);
    CHECK_EQ(submit_when_free(limited), KVMEM_STATUS_STALE);
    DESTROYED(kvmem_transfer, limited);
    destroy_all(&flight);
}

/* NIXL releases the requests to a process that has ended some time after kvmem has reported that. */
TEST(memory_of_a_run_with_a_killed_peer_is_released) {
    flight flight;
    CLEANUP(kv_peer_close) kv_peer peer;
    open_flight(&flight, &peer);
    kvmem_transfer_destroy(flight.transfer);
    flight.transfer = MADE(kvmem_transfer, kv_prepare, flight.remote, flight.local,
                           KV_JOB(&move, it.run.user_data = 4, it.transfer.queue = flight.queue,
                                  it.transfer.flags = KVMEM_TRANSFER_REPORT_RELEASE));
    start_and_stop_peer(&flight, &peer);
    kv_peer_crash(&peer);
    const kvmem_completion end = next_completion(flight.queue);
    CHECK_EQ(end.status, KVMEM_STATUS_PEER_LOST);
    if (!end.released) expect_release(flight.queue, 4, KVMEM_STATUS_OK);
    CHECK(kvmem_transfer_submit(flight.transfer, NULL, ERR) != KVMEM_STATUS_BUSY);
    destroy_all(&flight);
}

TEST(killed_while_a_transfer_waits_for_it) {
    flight flight;
    CLEANUP(kv_peer_close) kv_peer peer;
    open_flight(&flight, &peer);
    start_and_stop_peer(&flight, &peer);
    kv_peer_crash(&peer);
    EXPECT_MESSAGE(KVMEM_STATUS_PEER_LOST, "frozen",
                   kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    CHECK_EQ(next_completion(flight.queue).status, KVMEM_STATUS_PEER_LOST);
    destroy_all(&flight);
}

TEST(killed_in_flight_and_back_under_the_same_name) {
    CLEANUP(kv_peer_close) kv_peer old;
    CLEANUP(kv_peer_close) kv_peer risen;
    flight flight;
    open_flight(&flight, &old);
    start_and_stop_peer(&flight, &old);
    kv_peer_crash(&old);
    EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(flight.agent, "frozen", NULL, ERR));
    start(&risen);
    kv_peer_meet(&risen, flight.agent);
    kv_run(risen.model.layout, flight.local, &move);
    kv_side_check_moved(&flight.model, &risen.model, &move);
    DESTROYED(kvmem_layout, risen.model.layout);
    destroy_all(&flight);
}

/* The old process hangs, and is never heard of again until its successor has moved blocks. */
TEST(replaced_under_the_same_name_while_it_is_frozen) {
    CLEANUP(kv_peer_close) kv_peer old;
    CLEANUP(kv_peer_close) kv_peer risen;
    flight flight;
    open_flight(&flight, &old);
    start_and_stop_peer(&flight, &old);
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(flight.agent, "frozen", NULL, ERR));
    start(&risen);
    kv_peer_meet(&risen, flight.agent);
    kv_run(risen.model.layout, flight.local, &move);
    kv_side_check_moved(&flight.model, &risen.model, &move);
    EXPECT_OK(kvmem_agent_notify(flight.agent, "frozen", "hello", 5, ERR));
    kv_peer_expect_notification(&risen, "waiting", "hello", 5);
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight.transfer, ERR));
    kv_peer_crash(&old);
    EXPECT_MESSAGE(KVMEM_STATUS_PEER_LOST, "frozen", kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    kv_run(risen.model.layout, flight.local, &move);
    kv_side_check_moved(&flight.model, &risen.model, &move);
    DESTROYED(kvmem_layout, risen.model.layout);
    destroy_all(&flight);
}

static void destroy_in_order(kv_peer *peer, const int *order, const char *name) {
    flight flight;
    prepare(&flight, peer, name);
    start_and_stop_peer(&flight, peer);
    for (int i = 0; i < NUM_HANDLES; i++) destroy_handle(&flight, order[i]);
    CHECK_EQ(releases_count(), flight.releases_before); /* a transfer in flight keeps its memory */
    peer_thaw(&peer->process);
    await_releases(flight.releases_before + 1);
    kv_side_check_moved(&flight.model, &peer->model, &move);
    kv_side_close(&flight.model);
    kv_peer_check(peer);
    kv_peer_invalidate(peer, name);
}

/* Replaces an order by the next one; returns whether there was one. */
static bool next_order(int *order) {
    int i = NUM_HANDLES - 2;
    while (i >= 0 && order[i] > order[i + 1]) i--;
    if (i < 0) return false;
    int j = NUM_HANDLES - 1;
    while (order[j] < order[i]) j--;
    const int swapped = order[i];
    order[i] = order[j];
    order[j] = swapped;
    for (int low = i + 1, high = NUM_HANDLES - 1; low < high; low++, high--) {
        const int moved = order[low];
        order[low] = order[high];
        order[high] = moved;
    }
    return true;
}

/* Every seventh of the 720 orders: any three handles in all their orders, and each handle in every place. */
TEST(handles_are_destroyed_in_any_order_while_in_flight) {
    int order[NUM_HANDLES] = {0, 1, 2, 3, 4, 5};
    CLEANUP(kv_peer_close) kv_peer peer;
    start(&peer);
    size_t number = 0;
    do {
        if (number % 7 == 0) {
            char name[32];
            snprintf(name, sizeof(name), "order %zu", number);
            destroy_in_order(&peer, order, name);
        }
        number++;
    } while (next_order(order));
    CHECK_EQ(number, 720);
}

/* Peers that are stopped take neither the staging memory of an agent nor its copies of control blocks from
   others. */
enum { STOPPED = 2, RUNS = 9, NUM_BLOCKS = 128 };

typedef struct crowd {
    kvmem_agent *near;
    kv_side sides[RUNS];
    kv_peer stopped[STOPPED], healthy;
} crowd;

static kvmem_layout_config crowd_config(void) {
    return WITH(kv_config(&kv_kinds[0]), it.num_blocks = NUM_BLOCKS, it.inner_dim = 24);
}

static void crowd_open(crowd *crowd, const char *name) {
    const kvmem_layout_config config = crowd_config();
    const kvmem_serve_options serve = OPTIONS(kvmem_serve_options, it.staging_size = 8 * 4096);
    crowd->near = agent_open(name);
    for (int i = 0; i < RUNS; i++) kv_side_open(&crowd->sides[i], &config, crowd->near, 1);
    for (int i = 0; i <= STOPPED; i++) {
        kv_peer *peer = i < STOPPED ? &crowd->stopped[i] : &crowd->healthy;
        char peer_name[32];
        snprintf(peer_name, sizeof(peer_name), "%s %d", i < STOPPED ? "stopped" : "healthy", i);
        kv_peer_open_served(peer, peer_name, &config, 2, &serve);
        kv_peer_meet(peer, crowd->near);
    }
}

static void crowd_close(crowd *crowd) {
    for (int i = 0; i <= STOPPED; i++) {
        kv_peer *peer = i < STOPPED ? &crowd->stopped[i] : &crowd->healthy;
        DESTROYED(kvmem_layout, peer->model.layout);
        kv_peer_close(peer);
    }
    for (int i = 0; i < RUNS; i++) kv_side_close(&crowd->sides[i]);
    DESTROYED(kvmem_agent, crowd->near);
}

static kvmem_transfer *crowd_read(const crowd *crowd, const kv_peer *peer, int side, uint32_t method) {
    static kvmem_block_pair pairs[NUM_BLOCKS];
    for (uint32_t i = 0; i < NUM_BLOCKS; i++) pairs[i] = (kvmem_block_pair){i, NUM_BLOCKS - 1 - i};
    const kv_move all = {pairs, NUM_BLOCKS, 0, 0, crowd_config().num_layers};
    return MADE(kvmem_transfer, kv_prepare, peer->model.layout, crowd->sides[side].layout,
                KV_JOB(&all, it.transfer.method = method, it.transfer.staging_size = 8 * 4096, it.transfer.stall_timeout_ns = SECONDS(5)));
}

static void others_move_while_peers_are_stopped(uint32_t method, const char *name) {
    static crowd crowd;
    crowd_open(&crowd, name);
    kvmem_transfer *reads[RUNS];
    for (int i = 0; i < RUNS; i++) {
        const kv_peer *peer = i < RUNS - 1 ? &crowd.stopped[i % STOPPED] : &crowd.healthy;
        reads[i] = crowd_read(&crowd, peer, i, method);
        RUN(reads[i]);
    }
    kvmem_transfer *healthy = reads[RUNS - 1];
    for (int i = 0; i < STOPPED; i++) peer_freeze(&crowd.stopped[i].process);
    for (int i = 0; i < RUNS - 1; i++) EXPECT_OK(kvmem_transfer_submit(reads[i], NULL, ERR));
    RUN(healthy); /* while they wait */
    for (int i = 0; i < RUNS - 1; i++)
        EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(reads[i], PATIENCE, ERR));
    RUN(healthy); /* and while NIXL still uses their memory */
    for (int i = 0; i < STOPPED; i++) peer_thaw(&crowd.stopped[i].process);
    /* Until every late request has ended: one for memory that its owner has unmapped ends the owner, over TCP. */
    for (int i = 0; i < RUNS - 1; i++) {
        CHECK_EQ(submit_when_free(reads[i]), KVMEM_STATUS_OK);
        EXPECT_OK(kvmem_transfer_wait(reads[i], PATIENCE, ERR));
    }
    for (int i = 0; i < RUNS; i++) DESTROYED(kvmem_transfer, reads[i]);
    crowd_close(&crowd);
}

TEST(stopped_peers_leave_staging_memory_for_others) {
    others_move_while_peers_are_stopped(KVMEM_METHOD_NIXL_STAGED, "staging");
}

TEST(stopped_owners_leave_copies_of_control_blocks_for_others) {
    others_move_while_peers_are_stopped(KVMEM_METHOD_NIXL_SERVED, "serving");
}

int main(int argc, char **argv) {
    /* Shared memory needs no help of the peer, TCP does. Set before NIXL is loaded; peers inherit it. */
    setenv("UCX_TLS", "tcp,self", 1);
    return test_main(argc, argv, test_registered());
}
