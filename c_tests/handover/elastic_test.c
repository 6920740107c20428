// SPDX-License-Identifier: Apache-2.0
// Sharing elastic GPU memory: one file descriptor per extent, more than one message carries, and extents that
// a broker keeps.
#include "server.h"
#include "caller_context.h"

#define EXTENT (2 * MIB)
#define MANY_EXTENTS 260
#define FEW_EXTENTS 3
#define SAMPLE 512

enum { TAG_REQUEST = 10, TAG_TAKEN };

static kvmem_region *create(uint64_t extents) {
    keep_device();
    kvmem_region *region = region_create_elastic(extents * EXTENT, EXTENT, extents * EXTENT);
    unsigned char sample[SAMPLE];
    for (uint64_t i = 0; i < extents; i++) {
        memset(sample, (int)(i % 251), sizeof(sample));
        write_device(0, region_info(region).address + i * EXTENT, sample, sizeof(sample));
    }
    return region;
}

static kvmem_share *share_of(const kvmem_region *region) {
    return MADE(kvmem_share, kvmem_share_create_region, region, NULL);
}

/* In another process: opens the share, checks each extent, and keeps the region until the socket is
   closed. */
static void open_and_hold(int socket, kvmem_share *share) {
    keep_device();
    OWN(kvmem_region, region, kvmem_share_open_region, share, NULL);
    const kvmem_region_info info = region_info(region);
    unsigned char sample[SAMPLE];
    for (uint64_t i = 0; i < info.size / EXTENT; i++) {
        read_device(0, sample, info.address + i * EXTENT, sizeof(sample));
        CHECK_FILLED(sample, (unsigned char)(i % 251), sizeof(sample));
    }
    frame_send(socket, TAG_TAKEN, &info.flags, sizeof(info.flags));
    char end = 0;
    CHECK_EQ(recv(socket, &end, 1, 0), 0);
    kvmem_share_destroy(share);
}

/* Role: receives a share from its socket. */
ROLE(importer) {
    GET(kvmem_share *, share, kvmem_share_receive, socket, PATIENCE);
    open_and_hold(socket, share);
}

/* Role: fetches a share from a broker. */
ROLE(fetcher) {
    fetch_request request;
    frame_expect_into(socket, TAG_REQUEST, &request, sizeof(request));
    const kvmem_fetch_options options = request_options(&request);
    GET(kvmem_share *, share, kvmem_share_fetch, &options, PATIENCE);
    open_and_hold(socket, share);
}

/* Waits until the peer has opened the share. Returns the flags of its region. */
static uint64_t await_opened(const peer *peer) {
    uint64_t flags = 0;
    frame_expect_into(peer->socket, TAG_TAKEN, &flags, sizeof(flags));
    return flags;
}

TEST(more_extents_than_a_message_carries_arrive) {
    const size_t files = count_open_files();
    kvmem_region *region = create(MANY_EXTENTS);
    kvmem_share *share = share_of(region);
    CHECK_EQ(share_info(share).num_fds, MANY_EXTENTS + 1);
    peer peer = peer_start("importer");
    EXPECT_OK(kvmem_share_send(share, peer.socket, PATIENCE, ERR));
    await_opened(&peer);
    peer_finish(&peer);
    CALL(kvmem_share_destroy(share));
    CALL(kvmem_region_destroy(region));
    CHECK(count_open_files() <= files + MANY_EXTENTS / 2); /* the driver may keep some open */
}

static peer send_fetcher(const fetch_request *request) {
    peer peer = peer_start("fetcher");
    frame_send(peer.socket, TAG_REQUEST, request, sizeof(*request));
    return peer;
}

/* A client that may only read gets the same extents, read-only. */
TEST(a_published_share_keeps_its_extents) {
    OWNED(kvmem_region) region = create(FEW_EXTENTS);
    OPENED(server, server, NULL);
    fetch_request request = request_of(&server);
    strcpy(request.name, "elastic");
    kvmem_share *share = share_of(region);
    EXPECT_OK(kvmem_broker_publish(server.broker, "elastic", share, NULL, &request.token, ERR));
    CALL(kvmem_share_destroy(share));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_region_decommit(region, 0, EXTENT, ERR));

    CLEANUP(peer_finish) peer writer = send_fetcher(&request);
    CHECK(!(await_opened(&writer) & KVMEM_REGION_READ_ONLY));
    request.flags = KVMEM_FETCH_READ_ONLY;
    CLEANUP(peer_finish) peer reader = send_fetcher(&request);
    CHECK(await_opened(&reader) & KVMEM_REGION_READ_ONLY);
    CHECK_EQ(region_holders(region).importers, 2);
    CHECK_EQ(region_holders(region).shares, 1);
    EXPECT(KVMEM_STATUS_BUSY, kvmem_region_decommit(region, 0, EXTENT, ERR));

    EXPECT_OK(kvmem_broker_unpublish(server.broker, "elastic", ERR));
    server_await_clients(&server, 0); /* the broker's last reply is released with its client */
    CHECK_EQ(region_holders(region).shares, 0);
    EXPECT_OK(kvmem_region_decommit(region, 0, EXTENT, ERR));
}

static kvmem_share *fetch_read_only(const fetch_request *request) {
    kvmem_fetch_options options = WITH(request_options(request), it.flags = KVMEM_SHARE_READ_ONLY);
    return MADE(kvmem_share, kvmem_share_fetch, &options, PATIENCE);
}

/* Extents committed after the region was shared are neither sent nor kept. */
TEST(a_read_only_fetch_gets_exactly_the_shared_extents) {
    OWNED(kvmem_region) region = create(FEW_EXTENTS);
    EXPECT_OK(kvmem_region_decommit(region, EXTENT, EXTENT, ERR));
    OPENED(server, server, NULL);
    fetch_request request = request_of(&server);
    strcpy(request.name, "elastic");
    kvmem_share *share = share_of(region);
    GET(kvmem_share_info, shared, kvmem_share_get_info, share);
    EXPECT_OK(kvmem_broker_publish(server.broker, "elastic", share, NULL, &request.token, ERR));
    CALL(kvmem_share_destroy(share));
    EXPECT_OK(kvmem_region_commit(region, EXTENT, EXTENT, ERR));

    kvmem_share *fetched = fetch_read_only(&request);
    CHECK_EQ(share_info(fetched).read_only, 1);
    CHECK_EQ(share_info(fetched).num_fds, shared.num_fds);
    EXPECT_OK(kvmem_region_decommit(region, EXTENT, EXTENT, ERR));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_region_decommit(region, 0, EXTENT, ERR));
    CALL(kvmem_share_destroy(fetched));
    EXPECT_OK(kvmem_broker_unpublish(server.broker, "elastic", ERR));
}

#define ROUNDS 60

/* What the threads of the next case share. */
typedef struct workload {
    const server *server;
    kvmem_region *region;
    fetch_request request;
    CUcontext context; /* current in every thread */
} workload;

static void expect_one_of(kvmem_status status, kvmem_status first, kvmem_status second) {
    if (status != first && status != second) FAIL("%s: %s", kvmem_status_name(status), test_last_message());
}

/* The first extent stays committed, so the region can always be shared. */
static void *resize(void *argument) {
    const workload *workload = argument;
    CU(cuCtxSetCurrent(workload->context));
    for (int i = 0; i < ROUNDS; i++) {
        EXPECT_OK(kvmem_region_commit(workload->region, EXTENT, 2 * EXTENT, ERR));
        expect_one_of(kvmem_region_decommit(workload->region, EXTENT, 2 * EXTENT, ERR), KVMEM_STATUS_OK,
                      KVMEM_STATUS_BUSY);
    }
    test_forget_error();
    return NULL;
}

static void *share_and_publish(void *argument) {
    const workload *workload = argument;
    CU(cuCtxSetCurrent(workload->context));
    for (int i = 0; i < ROUNDS; i++) {
        kvmem_share *share = share_of(workload->region);
        GET(kvmem_token, token, kvmem_broker_publish, workload->server->broker, "other", share, NULL);
        kvmem_share_destroy(share);
        EXPECT_OK(kvmem_broker_unpublish(workload->server->broker, "other", ERR));
    }
    test_forget_error();
    return NULL;
}

static void *fetch_and_open(void *argument) {
    const workload *workload = argument;
    CU(cuCtxSetCurrent(workload->context));
    for (int i = 0; i < ROUNDS; i++) {
        OWNED(kvmem_share) share = fetch_read_only(&workload->request);
        OWNED(kvmem_region) region = NULL;
        /* a region from the same process is the original */
        EXPECT_OK(kvmem_share_open_region(share, NULL, &region, ERR));
        CHECK_EQ(region_info(region).address, region_info(workload->region).address);
    }
    test_forget_error();
    return NULL;
}

static void *create_and_destroy(void *argument) {
    const workload *workload = argument;
    CU(cuCtxSetCurrent(workload->context));
    for (int i = 0; i < ROUNDS; i++) {
        const kvmem_device_options options = {.struct_size = sizeof(options), .size = EXTENT};
        GET(kvmem_region *, region, kvmem_region_create_device, &options);
        kvmem_share_destroy(share_of(region));
        kvmem_region_destroy(region);
        GET(kvmem_region_holders, holders, kvmem_region_get_holders, workload->region);
    }
    test_forget_error();
    return NULL;
}

/* Operations on a region and a broker that may run concurrently. */
TEST(sharing_fetching_resizing_and_freeing_run_concurrently) {
    static void *(*const works[])(void *) = {resize, share_and_publish, fetch_and_open, create_and_destroy};
    OWNED(kvmem_region) region = create(FEW_EXTENTS);
    EXPECT_OK(kvmem_region_decommit(region, EXTENT, 2 * EXTENT, ERR));
    server server;
    server_open(&server, NULL);
    workload workload = {.server = &server, .region = region, .request = request_of(&server)};
    strcpy(workload.request.name, "elastic");
    CU(cuCtxGetCurrent(&workload.context));
    kvmem_share *share = share_of(region);
    EXPECT_OK(kvmem_broker_publish(server.broker, "elastic", share, NULL, &workload.request.token, ERR));
    CALL(kvmem_share_destroy(share));
    pthread_t threads[NUM(works)];
    for (size_t i = 0; i < NUM(works); i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, works[i], &workload), 0);
    for (size_t i = 0; i < NUM(works); i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    EXPECT_OK(kvmem_broker_unpublish(server.broker, "elastic", ERR));
    server_close(&server);
    EXPECT_OK(kvmem_region_commit(region, 0, 3 * EXTENT, ERR));
    /* no share or importer holds the extents now */
    EXPECT_OK(kvmem_region_decommit(region, 0, 3 * EXTENT, ERR));
}

TEST(a_broker_that_ends_keeps_no_extents) {
    OWNED(kvmem_region) region = create(FEW_EXTENTS);
    server server;
    server_open(&server, NULL);
    kvmem_share *share = share_of(region);
    GET(kvmem_token, token, kvmem_broker_publish, server.broker, "elastic", share, NULL);
    CALL(kvmem_share_destroy(share));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_region_decommit(region, 0, EXTENT, ERR));
    server_close(&server);
    EXPECT_OK(kvmem_region_decommit(region, 0, EXTENT, ERR));
}
