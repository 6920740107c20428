// SPDX-License-Identifier: Apache-2.0
// Shares over sockets and from brokers, in one process: each thread of the broker belongs to the operation, too.
#include "walk.h"

#include <sys/un.h>

FAULT_WALK_CASES

const bool operations_have_peer = true;

static kvmem_region *memory;
static kvmem_layout *layout;
static kvmem_share *share;
static socket_pair sockets;
#define SIZE UINT64_C(65536)
#define FILLED 0x5A
#define LIMIT SECONDS(10)

static void *bytes(void) { return (void *)(uintptr_t)region_info(memory).address; }

void operations_open(void) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    const kvmem_system_options system = OPTIONS(kvmem_system_options, it.flags = KVMEM_SYSTEM_SHAREABLE);
    memory = region_create_system(SIZE, KVMEM_SYSTEM_SHAREABLE);
    memset(bytes(), FILLED, SIZE);
    EXPECT_OK(kvmem_layout_build(REF(OPTIONS(kvmem_layout_options, it.config = &config, it.system = &system,
                                             it.source = KVMEM_LAYOUT_ALLOCATE)),
                                 &layout, ERR));
    EXPECT_OK(kvmem_share_create_region(memory, NULL, &share, ERR));
    socket_pair_open(&sockets, SOCK_STREAM);
}

void operations_close(void) {
    socket_pair_close(&sockets);
    kvmem_share_destroy(share);
    kvmem_layout_destroy(layout);
    kvmem_region_destroy(memory);
}

void operations_check(void) {
    CHECK_FILLED(bytes(), FILLED, SIZE);
    /* After a failure the caller closes the socket. */
    socket_pair_close(&sockets);
    socket_pair_open(&sockets, SOCK_STREAM);
}

static kvmem_status open_region(const kvmem_share *received, uint64_t flags) {
    return TRIED(kvmem_region, kvmem_share_open_region, received, REF(OPTIONS(kvmem_open_options, it.flags = flags)));
}

OPERATION(share_a_region) {
    OWNED(kvmem_share) made = NULL;
    kvmem_status status = kvmem_share_create_region(memory, NULL, &made, ERR);
    THEN(status, open_region(made, 0));
    THEN(status, open_region(made, KVMEM_OPEN_READ_ONLY));
    return status;
}

OPERATION(share_a_layout) {
    OWNED(kvmem_share) made = NULL;
    kvmem_status status = kvmem_share_create_layout(layout, NULL, &made, ERR);
    THEN(status, TRIED(kvmem_layout, kvmem_share_open_layout, made, NULL));
    return status;
}

/* With memory of its own: a region keeps the file by which it was leased open. */
OPERATION(lease_blocks) {
    OWNED(kvmem_region) own = NULL;
    OWNED(kvmem_layout) leased = NULL;
    OWNED(kvmem_lease) lease = NULL;
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    const uint32_t blocks[] = {0, 2};
    size_t count = 0;
    kvmem_status status = kvmem_region_create_system(
        REF(OPTIONS(kvmem_system_options, it.flags = KVMEM_SYSTEM_SHAREABLE, it.size = kv_region_size(&config))), &own, ERR);
    THEN(status, kvmem_layout_build(REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_REGIONS,
                                                it.regions = &own, it.count = 1)),
                                    &leased, ERR));
    THEN(status, kvmem_lease_create(leased, blocks, NUM(blocks), NULL, &lease, ERR));
    THEN(status, kvmem_lease_renew(lease, SECONDS(1000), ERR));
    THEN(status, kvmem_layout_get_accesses(leased, blocks, NUM(blocks), NULL, 0, &count, ERR));
    if (status == KVMEM_STATUS_OK) CHECK_EQ(count, NUM(blocks));
    return status;
}

OPERATION(send_and_receive) {
    OWNED(kvmem_share) received = NULL;
    kvmem_status status = kvmem_share_send(share, sockets.fds[0], LIMIT, ERR);
    THEN(status, kvmem_share_receive(sockets.fds[1], LIMIT, &received, ERR));
    THEN(status, open_region(received, 0));
    return status;
}

static kvmem_status fetched(const char *path, const kvmem_token *token, kvmem_share **made) {
    return kvmem_share_fetch(REF(OPTIONS(kvmem_fetch_options, it.path = path, it.name = "kv", it.token = token)), LIMIT, made, ERR);
}

/* A broker at the path that has published the share. */
static kvmem_status publish(const char *path, kvmem_broker **broker, kvmem_token *token) {
    kvmem_status status =
        kvmem_broker_create(REF(OPTIONS(kvmem_broker_options, it.path = path, it.client_timeout_ns = LIMIT)), broker, ERR);
    THEN(status, kvmem_broker_publish(*broker, "kv", share, NULL, token, ERR));
    return status;
}

OPERATION(fetch_from_a_broker) {
    const char *path = TEXT("%s/socket", fault_folder());
    OWNED(kvmem_broker) broker = NULL;
    OWNED(kvmem_share) copy = NULL;
    kvmem_token token;
    kvmem_status status = publish(path, &broker, &token);
    THEN(status, fetched(path, &token, &copy));
    THEN(status, open_region(copy, 0));
    return status;
}

OPERATION(publish_and_grant) {
    const char *path = TEXT("%s/socket", fault_folder());
    OWNED(kvmem_broker) broker = NULL;
    OWNED(kvmem_share) copy = NULL;
    kvmem_token token;
    kvmem_status status = publish(path, &broker, &token);
    THEN(status, kvmem_broker_grant(broker, "kv", NULL, &token, ERR));
    THEN(status, fetched(path, &token, &copy));
    THEN(status, kvmem_broker_unpublish(broker, "kv", ERR));
    return status;
}

OPERATION(open_what_came_over_another_channel) {
    OWNED(kvmem_share) received = NULL;
    OWNED(kvmem_region) opened = NULL;
    kvmem_share_info info;
    kvmem_status status = kvmem_share_get_info(share, &info, ERR);
    THEN(status, kvmem_share_create_received(info.data, info.size, info.fds, info.num_fds, &received, ERR));
    THEN(status, kvmem_share_open_region(received, NULL, &opened, ERR));
    THEN(status, kvmem_region_check_owner(opened, ERR));
    return status;
}

/* The socket of a broker that was killed is at the path. In a folder of its own: what cannot be removed from there stays. */
OPERATION(replace_a_stale_socket) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *folder = TEXT("%s/cluster", fault_folder());
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", folder);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) return KVMEM_STATUS_OK; /* not a call of the library */
    CLEANUP(test_close) const int left = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (left < 0 || bind(left, (struct sockaddr *)&address, sizeof(address)) != 0) return KVMEM_STATUS_OK;
    return TRIED(kvmem_broker, kvmem_broker_create, REF(OPTIONS(kvmem_broker_options, it.path = address.sun_path)));
}
