// SPDX-License-Identifier: Apache-2.0
// Transfers with elastic memory of a peer by NIXL: blocks that had memory when the layout was exported are
// read and written; blocks that the peer has decommitted since are stale. Needs a GPU.
#include "elastic_side.h"
#include "caller_context.h"

#include <poll.h>
#include <sys/socket.h>

REQUIRES(lacks_real_gpu)

enum { EXPORT = 1, RESIZE, LOAD, CHECK_BLOCK };

/* Blocks of 1.5 MiB, so that a few of them fill several extents. */
static kvmem_layout_config block_config(void) {
    return WITH(kv_config(&kv_kinds[0]), it.page_size = 16, it.inner_dim = 8192);
}

static uint64_t block_size(const kvmem_layout_config *config) {
    return config->num_layers * config->outer_dim * kv_piece_size(config);
}

static unsigned char value_of(uint64_t block) { return (unsigned char)(0x40 + block); }

/* ---- the peer, which owns the layout and serves requests ---- */

static void fill_block(const kvmem_layout *layout, uint64_t block) {
    const kvmem_layout_config config = block_config();
    unsigned char *bytes = test_allocate(block_size(&config));
    memset(bytes, value_of(block), block_size(&config));
    GET(kvmem_block, first, kvmem_layout_get_block, layout, block, 0, 0);
    write_device(0, first.address, bytes, block_size(&config));
    free(bytes);
}

static void serve_resize(int socket, kvmem_layout *layout, const message *request) {
    uint64_t blocks = 0;
    CHECK_EQ(request->size, sizeof(blocks));
    memcpy(&blocks, request->data, sizeof(blocks));
    EXPECT_OK(kvmem_layout_resize(layout, blocks, ERR));
    for (uint64_t block = 0; block < blocks; block++) fill_block(layout, block);
    frame_send(socket, RESIZE, NULL, 0);
}

static void serve_export(int socket, kvmem_layout *layout, kvmem_agent *agent) {
    CLEANUP(message_free) message metadata = agent_metadata(agent);
    CLEANUP(message_free) message descriptor = layout_descriptor(layout);
    frame_send(socket, EXPORT, metadata.data, metadata.size);
    frame_send(socket, EXPORT, descriptor.data, descriptor.size);
}

/* The value of every byte of a block. */
typedef struct content {
    uint64_t block;
    uint64_t value;
} content;

static void serve_check(int socket, const kvmem_layout *layout, const message *request) {
    const kvmem_layout_config config = block_config();
    content expected;
    CHECK_EQ(request->size, sizeof(expected));
    memcpy(&expected, request->data, sizeof(expected));
    unsigned char *bytes = test_allocate(block_size(&config));
    GET(kvmem_block, first, kvmem_layout_get_block, layout, expected.block, 0, 0);
    read_device(0, bytes, first.address, block_size(&config));
    CHECK_FILLED(bytes, (unsigned char)expected.value, block_size(&config));
    free(bytes);
    frame_send(socket, CHECK_BLOCK, NULL, 0);
}

static bool await_request(int socket) {
    struct pollfd ready = {.fd = socket, .events = POLLIN};
    char byte;
    return poll(&ready, 1, -1) == 1 && recv(socket, &byte, 1, MSG_PEEK) == 1;
}

static void owner_role(int socket) {
    const kvmem_layout_config config = block_config();
    OWNED(kvmem_agent) agent = agent_open("owner");
    OWNED(kvmem_layout) layout = elastic_layout(&config, 0, agent);
    while (await_request(socket)) {
        uint32_t tag = 0;
        CLEANUP(message_free) message request = frame_receive(socket, &tag);
        if (tag == RESIZE) {
            serve_resize(socket, layout, &request);
        } else if (tag == EXPORT) {
            serve_export(socket, layout, agent);
        } else if (tag == CHECK_BLOCK) {
            serve_check(socket, layout, &request);
        } else {
            agent_load(agent, &request);
            frame_send(socket, LOAD, NULL, 0);
        }
    }
}

USES_ROLE(owner, owner_role)

/* ---- this process ---- */

typedef struct connection {
    peer owner;
    kvmem_agent *agent;
    kvmem_layout *peer_layout;
    kvmem_layout *own_layout;
} connection;

static void resize(const connection *connection, uint64_t blocks) {
    frame_send(connection->owner.socket, RESIZE, &blocks, sizeof(blocks));
    frame_await(connection->owner.socket, RESIZE);
}

static void import(connection *connection) {
    frame_send(connection->owner.socket, EXPORT, NULL, 0);
    CLEANUP(message_free) message metadata = frame_expect(connection->owner.socket, EXPORT);
    CLEANUP(message_free) message descriptor = frame_expect(connection->owner.socket, EXPORT);
    agent_load(connection->agent, &metadata);
    EXPECT_OK(kvmem_layout_import(connection->agent, descriptor.data, descriptor.size,
                                  &connection->peer_layout, ERR));
}

static void connection_open(connection *connection, uint64_t blocks) {
    *connection = (struct connection){.owner = peer_start("owner"), .agent = agent_open("client")};
    CLEANUP(message_free) message metadata = agent_metadata(connection->agent);
    frame_send(connection->owner.socket, LOAD, metadata.data, metadata.size);
    frame_await(connection->owner.socket, LOAD);
    resize(connection, blocks);
    import(connection);
    const kvmem_layout_config config = block_config();
    kvmem_system_options memory = OPTIONS(kvmem_system_options);
    EXPECT_OK(kvmem_layout_build(REF(OPTIONS(kvmem_layout_options, it.config = &config,
                                             it.agent = connection->agent, it.source = KVMEM_LAYOUT_ALLOCATE,
                                             it.system = &memory)), &connection->own_layout, ERR));
}

static void connection_close(connection *connection) {
    CALL(kvmem_layout_destroy(connection->peer_layout));
    CALL(kvmem_layout_destroy(connection->own_layout));
    peer_finish(&connection->owner);
    CALL(kvmem_agent_destroy(connection->agent));
}

static kvmem_status create_read(const connection *connection, uint32_t block, kvmem_transfer **transfer) {
    const kvmem_block_pair pair = {block, block};
    kv_job options = JOB(it.run.pairs = &pair, it.run.num_pairs = 1);
    return kv_prepare(connection->peer_layout, connection->own_layout, &options, transfer, ERR);
}

static kvmem_status run(kvmem_transfer *transfer) {
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    return kvmem_transfer_wait(transfer, PATIENCE, ERR);
}

static void check_block(const connection *connection, uint32_t block) {
    const kvmem_layout_config config = block_config();
    GET(kvmem_block, first, kvmem_layout_get_block, connection->own_layout, block, 0, 0);
    CHECK_FILLED((const void *)(uintptr_t)first.address, value_of(block), block_size(&config));
}

static void read_block(const connection *connection, uint32_t block) {
    OWNED(kvmem_transfer) transfer = NULL;
    EXPECT_OK(create_read(connection, block, &transfer));
    EXPECT_OK(run(transfer));
    check_block(connection, block);
}

static kvmem_status create_write(const connection *connection, uint32_t block, kvmem_transfer **transfer) {
    const kvmem_block_pair pair = {block, block};
    kv_job options = JOB(it.run.pairs = &pair, it.run.num_pairs = 1);
    return kv_prepare(connection->own_layout, connection->peer_layout, &options, transfer, ERR);
}

static unsigned char new_value_of(uint64_t block) { return (unsigned char)(0xA0 + block); }

static void fill_own_block(const connection *connection, uint32_t block) {
    const kvmem_layout_config config = block_config();
    GET(kvmem_block, first, kvmem_layout_get_block, connection->own_layout, block, 0, 0);
    memset((void *)(uintptr_t)first.address, new_value_of(block), block_size(&config));
}

static void check_peer_block(const connection *connection, uint64_t block, unsigned char value) {
    const content expected = {block, value};
    frame_send(connection->owner.socket, CHECK_BLOCK, &expected, sizeof(expected));
    frame_await(connection->owner.socket, CHECK_BLOCK);
}

/* Every second block; the others are unchanged. */
TEST(blocks_of_a_peer_are_written) {
    OPENED(connection, connection, 7);
    for (uint32_t block = 0; block < 7; block += 2) {
        OWNED(kvmem_transfer) transfer = NULL;
        fill_own_block(&connection, block);
        EXPECT_OK(create_write(&connection, block, &transfer));
        EXPECT_OK(run(transfer));
    }
    for (uint32_t block = 0; block < 7; block++)
        check_peer_block(&connection, block, block % 2 == 0 ? new_value_of(block) : value_of(block));
}

TEST(writing_blocks_that_were_not_committed_fails) {
    kvmem_transfer *transfer = NULL;
    OPENED(connection, connection, 2);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "was not committed", create_write(&connection, 6, &transfer));
}

/* Also if the addresses are committed again. */
TEST(decommitted_blocks_are_not_written) {
    OPENED(connection, connection, 7);
    OWNED(kvmem_transfer) first = NULL;
    OWNED(kvmem_transfer) last = NULL;
    fill_own_block(&connection, 0);
    fill_own_block(&connection, 6);
    EXPECT_OK(create_write(&connection, 0, &first));
    EXPECT_OK(create_write(&connection, 6, &last));
    EXPECT_OK(run(last));
    check_peer_block(&connection, 6, new_value_of(6));
    resize(&connection, 1);
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "decommitted extent", run(last));
    resize(&connection, 7);
    EXPECT(KVMEM_STATUS_STALE, run(last));
    check_peer_block(&connection, 6, value_of(6));
    EXPECT_OK(run(first));
    check_peer_block(&connection, 0, new_value_of(0));
}

TEST(blocks_of_a_peer_are_read) {
    OPENED(connection, connection, 7);
    for (uint32_t block = 0; block < 7; block++) read_block(&connection, block);
}

TEST(reading_blocks_that_were_not_committed_fails) {
    OPENED(connection, connection, 2);
    read_block(&connection, 1);
    kvmem_transfer *transfer = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "was not committed", create_read(&connection, 6, &transfer));
}

TEST(decommitted_blocks_are_stale) {
    OPENED(connection, connection, 7);
    OWNED(kvmem_transfer) first = NULL;
    OWNED(kvmem_transfer) last = NULL;
    EXPECT_OK(create_read(&connection, 0, &first));
    EXPECT_OK(create_read(&connection, 6, &last));
    EXPECT_OK(run(last));
    resize(&connection, 1);
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "decommitted extent", run(last));
    EXPECT_OK(run(first));
    resize(&connection, 7);
    EXPECT(KVMEM_STATUS_STALE, run(last)); /* the addresses have other memory */
    EXPECT_OK(run(first));
    check_block(&connection, 0);
}

TEST(committing_more_keeps_earlier_blocks_valid) {
    OPENED(connection, connection, 1);
    resize(&connection, 7);
    read_block(&connection, 0);
    CALL(kvmem_layout_destroy(connection.peer_layout));
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(connection.agent, "owner", NULL, ERR));
    import(&connection);
    read_block(&connection, 6);
}
