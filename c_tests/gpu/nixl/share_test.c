// SPDX-License-Identifier: Apache-2.0
// Layouts in memory of a GPU that are shared by NIXL only: another process opens them, reads and writes their blocks,
// and its transfers fail when the owner dies. Needs a GPU.
#include "holder.h"
#include "kept_context.h"
#include "kinds.h"
#include "opened.h"
#include "patience.h"

#include <sched.h>

REQUIRES(lacks_real_gpu)

KEEPING_HOLDER_ROLE

/* The time limit to detect that the peer is dead, longer than the keepalive interval of UCX. */
#define LONG SECONDS(60)

static const kvmem_share_options by_nixl = {.struct_size = sizeof(by_nixl), .transport = KVMEM_SHARE_REMOTE};

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}};
static const kvmem_block_pair few[] = {{2, 4}, {5, 1}};
static const kv_move in_move = {scattered, NUM(scattered), 0, 0, 3};
static const kv_move out_move = {few, NUM(few), 1, 0, 2};

/* The layout of another process, opened in this process. */
typedef struct visit {
    peer owner;
    parcel parcel;
    kvmem_layout *layout;
    kv_side model; /* the expected contents of its blocks */
} visit;

static void check_carries_no_memory(const parcel *parcel) {
    OWNED(kvmem_share) share = parcel_share(parcel);
    GET(kvmem_share_info, info, kvmem_share_get_info, share);
    CHECK_EQ(info.object, KVMEM_SHARED_LAYOUT);
    CHECK_EQ(info.transport, KVMEM_SHARE_REMOTE);
    CHECK_EQ(info.num_fds, 0);
    CHECK_EQ(info.memory_size, 0);
}

static void visit_open(visit *visit, memory_kind kind, size_t layout_kind, const char *name,
                       kvmem_agent *agent) {
    const kvmem_layout_config config = blocks_config(&kv_kinds[layout_kind]);
    visit->owner = holder_start();
    holder_build(&visit->owner, kind, layout_kind, BLOCKS_TOGETHER, name, 1);
    visit->parcel = holder_share(&visit->owner, &by_nixl);
    kv_model_open(&visit->model, &config, 1);
    check_carries_no_memory(&visit->parcel);
    refuse_layout(&visit->parcel, 0, NULL, KVMEM_STATUS_UNSUPPORTED, "agent");
    visit->layout = open_layout(&visit->parcel, 0, agent);
    GET(kvmem_layout_info, info, kvmem_layout_get_info, visit->layout);
    CHECK_EQ(info.locality, KVMEM_LOCALITY_REMOTE);
    CHECK_EQ(info.num_blocks, config.num_blocks);
}

/* Also if the owner is dead. */
static void visit_close_layout(visit *visit) {
    CALL(kvmem_layout_destroy(visit->layout));
    kv_side_close(&visit->model);
    parcel_close(&visit->parcel);
}

static void visit_close(visit *visit) {
    visit_close_layout(visit);
    peer_finish(&visit->owner);
}

/* A layout of this process, registered with the agent. */
typedef struct home {
    kvmem_layout *layout;
    kv_side model;
} home;

static void home_open(home *home, memory_kind kind, size_t layout_kind, kvmem_agent *agent) {
    const kvmem_layout_config config = blocks_config(&kv_kinds[layout_kind]);
    kv_model_open(&home->model, &config, 2);
    home->layout = blocks_build(kind, &config, BLOCKS_TOGETHER, agent);
    blocks_write(home->layout, &home->model);
}

static void home_close(home *home) {
    CALL(kvmem_layout_destroy(home->layout));
    kv_side_close(&home->model);
}

/* Compares every byte of both sides. */
static void check_both(const visit *visit, const home *home) {
    blocks_check(home->layout, &home->model);
    holder_check_model(&visit->owner, &visit->model);
}

static void read_and_write(visit *visit, home *home) {
    CHECK_EQ(kv_run(visit->layout, home->layout, &in_move).path, KVMEM_PATH_NIXL_READ);
    kv_expect_moved(&home->model, &visit->model, &in_move);
    check_both(visit, home);
    CHECK_EQ(kv_run(home->layout, visit->layout, &out_move).path, KVMEM_PATH_NIXL_WRITE);
    kv_expect_moved(&visit->model, &home->model, &out_move);
    check_both(visit, home);
}

static void read_and_write_all(memory_kind there) {
    static const memory_kind here[] = {MEMORY_SYSTEM, MEMORY_DEVICE};
    static const char *const names[KV_NUM_KINDS] = {"first", "second", "third"};
    keep_context();
    OWNED(kvmem_agent) agent = agent_open("guest");
    for (size_t i = 0; i < KV_NUM_KINDS; i++) {
        OPENED(visit, visit, there, i, names[i], agent);
        for (size_t k = 0; k < NUM(here); k++) {
            OPENED(home, home, here[k], (i + k) % KV_NUM_KINDS, agent);
            read_and_write(&visit, &home);
        }
    }
}

TEST_CALL(device_memory_is_read_and_written, read_and_write_all(MEMORY_DEVICE))
TEST_CALL(elastic_memory_is_read_and_written, read_and_write_all(MEMORY_ELASTIC))

/* ---- the owner dies ---- */

static kvmem_transfer *create_read(const visit *visit, const home *home) {
    const kvmem_transfer_options options = kv_transfer_options(&in_move);
    return MADE(kvmem_transfer, kvmem_transfer_create, visit->layout, home->layout, &options);
}

static void lose(memory_kind there) {
    keep_context();
    OWNED(kvmem_agent) agent = agent_open("guest");
    home home;
    home_open(&home, MEMORY_SYSTEM, 0, agent);
    visit visit;
    visit_open(&visit, there, 0, "victim", agent);
    repeated stream = {.transfer = create_read(&visit, &home), .patience = LONG};
    threads reader;
    threads_start(&reader, 1, repeat_transfer, &stream, 0);
    while (stream.rounds < 100 && !stream.is_over) sched_yield();
    peer_kill(&visit.owner);
    threads_join(&reader);
    CHECK_EQ(stream.last, KVMEM_STATUS_PEER_LOST);
    /* Later runs fail, too. */
    EXPECT_MESSAGE(KVMEM_STATUS_PEER_LOST, "victim", submit_and_wait(stream.transfer, LONG));
    CALL(kvmem_transfer_destroy(stream.transfer));
    visit_close_layout(&visit);
    home_close(&home);
    /* The agent works with another owner. */
    home_open(&home, MEMORY_SYSTEM, 0, agent);
    visit_open(&visit, there, 1, "heir", agent);
    read_and_write(&visit, &home);
    visit_close(&visit);
    home_close(&home);
}

TEST_CALL(transfers_fail_when_the_owner_of_device_memory_dies, lose(MEMORY_DEVICE))
TEST_CALL(transfers_fail_when_the_owner_of_elastic_memory_dies, lose(MEMORY_ELASTIC))
