// SPDX-License-Identifier: Apache-2.0
// Layouts in memory of a GPU that are shared by NIXL only: another process opens them, reads and writes their
// blocks, and its transfers fail when the owner dies. Needs a GPU.
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
typedef struct remote_layout {
    peer owner;
    parcel parcel;
    kvmem_layout *layout;
    kv_side model; /* the expected contents of its blocks */
} remote_layout;

static void check_carries_no_memory(const parcel *parcel) {
    OWNED(kvmem_share) share = parcel_share(parcel);
    GET(kvmem_share_info, info, kvmem_share_get_info, share);
    CHECK_EQ(info.object, KVMEM_SHARED_LAYOUT);
    CHECK_EQ(info.transport, KVMEM_SHARE_REMOTE);
    CHECK_EQ(info.num_fds, 0);
    CHECK_EQ(info.memory_size, 0);
}

static void remote_layout_open(remote_layout *remote, memory_kind kind, size_t layout_kind, const char *name,
                               kvmem_agent *agent) {
    const kvmem_layout_config config = blocks_config(&kv_kinds[layout_kind]);
    remote->owner = holder_start();
    holder_build(&remote->owner, kind, layout_kind, BLOCKS_TOGETHER, name, 1);
    remote->parcel = holder_share(&remote->owner, &by_nixl);
    kv_model_open(&remote->model, &config, 1);
    check_carries_no_memory(&remote->parcel);
    refuse_layout(&remote->parcel, 0, NULL, KVMEM_STATUS_UNSUPPORTED, "agent");
    remote->layout = open_layout(&remote->parcel, 0, agent);
    GET(kvmem_layout_info, info, kvmem_layout_get_info, remote->layout);
    CHECK_EQ(info.locality, KVMEM_LOCALITY_REMOTE);
    CHECK_EQ(info.num_blocks, config.num_blocks);
}

/* Also if the owner is dead. */
static void remote_layout_close_handle(remote_layout *remote) {
    CALL(kvmem_layout_destroy(remote->layout));
    kv_side_close(&remote->model);
    parcel_close(&remote->parcel);
}

static void remote_layout_close(remote_layout *remote) {
    remote_layout_close_handle(remote);
    peer_finish(&remote->owner);
}

/* A layout of this process, registered with the agent. */
typedef struct local_layout {
    kvmem_layout *layout;
    kv_side model;
} local_layout;

static void local_layout_open(local_layout *local, memory_kind kind, size_t layout_kind, kvmem_agent *agent) {
    const kvmem_layout_config config = blocks_config(&kv_kinds[layout_kind]);
    kv_model_open(&local->model, &config, 2);
    local->layout = blocks_build(kind, &config, BLOCKS_TOGETHER, agent);
    blocks_write(local->layout, &local->model);
}

static void local_layout_close(local_layout *local) {
    CALL(kvmem_layout_destroy(local->layout));
    kv_side_close(&local->model);
}

/* Compares every byte of both sides. */
static void check_both(const remote_layout *remote, const local_layout *local) {
    blocks_check(local->layout, &local->model);
    holder_check_model(&remote->owner, &remote->model);
}

static void read_and_write(remote_layout *remote, local_layout *local) {
    CHECK_EQ(kv_run(remote->layout, local->layout, &in_move).method, KVMEM_METHOD_NIXL);
    kv_expect_moved(&local->model, &remote->model, &in_move);
    check_both(remote, local);
    CHECK_EQ(kv_run(local->layout, remote->layout, &out_move).method, KVMEM_METHOD_NIXL);
    kv_expect_moved(&remote->model, &local->model, &out_move);
    check_both(remote, local);
}

static void read_and_write_all(memory_kind there) {
    static const memory_kind here[] = {MEMORY_SYSTEM, MEMORY_DEVICE};
    static const char *const names[KV_NUM_KINDS] = {"first", "second", "third"};
    keep_context();
    OWNED(kvmem_agent) agent = agent_open("client");
    for (size_t i = 0; i < KV_NUM_KINDS; i++) {
        OPENED(remote_layout, remote, there, i, names[i], agent);
        for (size_t k = 0; k < NUM(here); k++) {
            OPENED(local_layout, local, here[k], (i + k) % KV_NUM_KINDS, agent);
            read_and_write(&remote, &local);
        }
    }
}

TEST_CALL(device_memory_is_read_and_written, read_and_write_all(MEMORY_DEVICE))
TEST_CALL(elastic_memory_is_read_and_written, read_and_write_all(MEMORY_ELASTIC))

/* ---- the owner dies ---- */

static kvmem_transfer *create_read(const remote_layout *remote, const local_layout *local) {
    const kv_job options = kv_job_of(&in_move);
    return MADE(kvmem_transfer, kv_prepare, remote->layout, local->layout, &options);
}

static void read_until_owner_dies(memory_kind there) {
    keep_context();
    OWNED(kvmem_agent) agent = agent_open("client");
    local_layout local;
    local_layout_open(&local, MEMORY_SYSTEM, 0, agent);
    remote_layout remote;
    remote_layout_open(&remote, there, 0, "first_owner", agent);
    repeated stream = {.transfer = create_read(&remote, &local), .patience = LONG};
    threads reader;
    threads_start(&reader, 1, repeat_transfer, &stream, 0);
    while (stream.rounds < 100 && !stream.is_over) sched_yield();
    peer_kill(&remote.owner);
    threads_join(&reader);
    CHECK_EQ(stream.last, KVMEM_STATUS_PEER_LOST);
    /* Later runs fail, too. */
    EXPECT_MESSAGE(KVMEM_STATUS_PEER_LOST, "first_owner", submit_and_wait(stream.transfer, LONG));
    CALL(kvmem_transfer_destroy(stream.transfer));
    remote_layout_close_handle(&remote);
    local_layout_close(&local);
    /* The agent works with another owner. */
    local_layout_open(&local, MEMORY_SYSTEM, 0, agent);
    remote_layout_open(&remote, there, 1, "second_owner", agent);
    read_and_write(&remote, &local);
    remote_layout_close(&remote);
    local_layout_close(&local);
}

TEST_CALL(transfers_fail_when_the_owner_of_device_memory_dies, read_until_owner_dies(MEMORY_DEVICE))
TEST_CALL(transfers_fail_when_the_owner_of_elastic_memory_dies, read_until_owner_dies(MEMORY_ELASTIC))
