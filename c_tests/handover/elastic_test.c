// SPDX-License-Identifier: Apache-2.0
// Elastic memory of a GPU handed over: a file an extent, more than a message carries, and extents that a
// broker keeps.
#include "shop.h"
#include "stance.h"

#define EXTENT (2 * MIB)
#define MANY_EXTENTS 260
#define FEW_EXTENTS 3
#define SAMPLE 512

enum { TAG_ORDER = 10, TAG_TAKEN };

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

/* In another process: opens the share, looks at each extent, and holds it until the socket closes. */
static void take(int socket, kvmem_share *share) {
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

/* Role: takes a share from its socket. */
ROLE(importer) {
    GET(kvmem_share *, share, kvmem_share_receive, socket, PATIENCE);
    take(socket, share);
}

/* Role: fetches a share from a broker. */
ROLE(fetcher) {
    order order;
    frame_expect_into(socket, TAG_ORDER, &order, sizeof(order));
    const kvmem_fetch_options options = order_options(&order);
    GET(kvmem_share *, share, kvmem_share_fetch, &options);
    take(socket, share);
}

/* Waits for the peer to have it, and answers the flags of its region. */
static uint64_t await_taken(const peer *peer) {
    uint64_t flags = 0;
    frame_expect_into(peer->socket, TAG_TAKEN, &flags, sizeof(flags));
    return flags;
}

TEST(more_extents_than_a_message_has_files_arrive) {
    const size_t files = count_open_files();
    kvmem_region *region = create(MANY_EXTENTS);
    kvmem_share *share = share_of(region);
    CHECK_EQ(share_info(share).num_fds, MANY_EXTENTS + 1);
    peer peer = peer_start("importer");
    EXPECT_OK(kvmem_share_send(share, peer.socket, PATIENCE, ERR));
    await_taken(&peer);
    peer_finish(&peer);
    CALL(kvmem_share_destroy(share));
    CALL(kvmem_region_destroy(region));
    CHECK(count_open_files() <= files + MANY_EXTENTS / 2); /* the driver may have opened some for good */
}

static peer send_fetcher(const order *order) {
    peer peer = peer_start("fetcher");
    frame_send(peer.socket, TAG_ORDER, order, sizeof(*order));
    return peer;
}

/* As it was published, and narrowed for a client that may only read. */
TEST(what_is_published_keeps_its_extents) {
    OWNED(kvmem_region) region = create(FEW_EXTENTS);
    OPENED(shop, shop, NULL);
    order order = order_from(&shop);
    strcpy(order.name, "elastic");
    kvmem_share *share = share_of(region);
    EXPECT_OK(kvmem_broker_publish(shop.broker, "elastic", share, NULL, &order.token, ERR));
    CALL(kvmem_share_destroy(share));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_region_decommit(region, 0, EXTENT, ERR));

    CLEANUP(peer_finish) peer writer = send_fetcher(&order);
    CHECK(!(await_taken(&writer) & KVMEM_REGION_READ_ONLY));
    order.flags = KVMEM_FETCH_READ_ONLY;
    CLEANUP(peer_finish) peer reader = send_fetcher(&order);
    CHECK(await_taken(&reader) & KVMEM_REGION_READ_ONLY);
    CHECK_EQ(region_holders(region).importers, 2);
    CHECK_EQ(region_holders(region).shares, 1);
    EXPECT(KVMEM_STATUS_BUSY, kvmem_region_decommit(region, 0, EXTENT, ERR));

    EXPECT_OK(kvmem_broker_unpublish(shop.broker, "elastic", ERR));
    shop_await_clients(&shop, 0); /* the last answer is let go with its client */
    CHECK_EQ(region_holders(region).shares, 0);
    EXPECT_OK(kvmem_region_decommit(region, 0, EXTENT, ERR));
}

static kvmem_share *fetch_read_only(const order *order) {
    kvmem_fetch_options options = WITH(order_options(order), it.flags = KVMEM_SHARE_READ_ONLY);
    return MADE(kvmem_share, kvmem_share_fetch, &options);
}

/* What the region got after it was shared is neither handed out nor held. */
TEST(a_read_only_fetch_has_what_was_shared_and_no_more) {
    OWNED(kvmem_region) region = create(FEW_EXTENTS);
    EXPECT_OK(kvmem_region_decommit(region, EXTENT, EXTENT, ERR));
    OPENED(shop, shop, NULL);
    order order = order_from(&shop);
    strcpy(order.name, "elastic");
    kvmem_share *share = share_of(region);
    GET(kvmem_share_info, shared, kvmem_share_get_info, share);
    EXPECT_OK(kvmem_broker_publish(shop.broker, "elastic", share, NULL, &order.token, ERR));
    CALL(kvmem_share_destroy(share));
    EXPECT_OK(kvmem_region_commit(region, EXTENT, EXTENT, ERR));

    kvmem_share *fetched = fetch_read_only(&order);
    CHECK_EQ(share_info(fetched).read_only, 1);
    CHECK_EQ(share_info(fetched).num_fds, shared.num_fds);
    EXPECT_OK(kvmem_region_decommit(region, EXTENT, EXTENT, ERR));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_region_decommit(region, 0, EXTENT, ERR));
    CALL(kvmem_share_destroy(fetched));
    EXPECT_OK(kvmem_broker_unpublish(shop.broker, "elastic", ERR));
}

#define ROUNDS 60

/* What the threads of the next case have in common. */
typedef struct bustle {
    const shop *shop;
    kvmem_region *region;
    order order;
    CUcontext context; /* current in every thread, as in the case's own */
} bustle;

static void expect_one_of(kvmem_status status, kvmem_status first, kvmem_status second) {
    if (status != first && status != second) FAIL("%s: %s", kvmem_status_name(status), test_last_message());
}

/* The first extent stays: it is always there to be shared. */
static void *resize(void *argument) {
    const bustle *bustle = argument;
    CU(cuCtxSetCurrent(bustle->context));
    for (int i = 0; i < ROUNDS; i++) {
        EXPECT_OK(kvmem_region_commit(bustle->region, EXTENT, 2 * EXTENT, ERR));
        expect_one_of(kvmem_region_decommit(bustle->region, EXTENT, 2 * EXTENT, ERR), KVMEM_STATUS_OK,
                      KVMEM_STATUS_BUSY);
    }
    test_forget_error();
    return NULL;
}

static void *share_and_publish(void *argument) {
    const bustle *bustle = argument;
    CU(cuCtxSetCurrent(bustle->context));
    for (int i = 0; i < ROUNDS; i++) {
        kvmem_share *share = share_of(bustle->region);
        GET(kvmem_token, token, kvmem_broker_publish, bustle->shop->broker, "other", share, NULL);
        kvmem_share_destroy(share);
        EXPECT_OK(kvmem_broker_unpublish(bustle->shop->broker, "other", ERR));
    }
    test_forget_error();
    return NULL;
}

static void *fetch_and_open(void *argument) {
    const bustle *bustle = argument;
    CU(cuCtxSetCurrent(bustle->context));
    for (int i = 0; i < ROUNDS; i++) {
        OWNED(kvmem_share) share = fetch_read_only(&bustle->order);
        OWNED(kvmem_region) region = NULL;
        EXPECT_OK(kvmem_share_open_region(share, NULL, &region, ERR)); /* the original */
        CHECK_EQ(region_info(region).address, region_info(bustle->region).address);
    }
    test_forget_error();
    return NULL;
}

static void *make_and_free(void *argument) {
    const bustle *bustle = argument;
    CU(cuCtxSetCurrent(bustle->context));
    for (int i = 0; i < ROUNDS; i++) {
        const kvmem_device_options options = {.struct_size = sizeof(options), .size = EXTENT};
        GET(kvmem_region *, region, kvmem_region_create_device, &options);
        kvmem_share_destroy(share_of(region));
        kvmem_region_destroy(region);
        GET(kvmem_region_holders, holders, kvmem_region_get_holders, bustle->region);
    }
    test_forget_error();
    return NULL;
}

/* What users may do at once with a region and a broker. */
TEST(sharing_fetching_resizing_and_freeing_run_at_once) {
    static void *(*const works[])(void *) = {resize, share_and_publish, fetch_and_open, make_and_free};
    OWNED(kvmem_region) region = create(FEW_EXTENTS);
    EXPECT_OK(kvmem_region_decommit(region, EXTENT, 2 * EXTENT, ERR));
    shop shop;
    shop_open(&shop, NULL);
    bustle bustle = {.shop = &shop, .region = region, .order = order_from(&shop)};
    strcpy(bustle.order.name, "elastic");
    CU(cuCtxGetCurrent(&bustle.context));
    kvmem_share *share = share_of(region);
    EXPECT_OK(kvmem_broker_publish(shop.broker, "elastic", share, NULL, &bustle.order.token, ERR));
    CALL(kvmem_share_destroy(share));
    pthread_t threads[NUM(works)];
    for (size_t i = 0; i < NUM(works); i++) CHECK_EQ(pthread_create(&threads[i], NULL, works[i], &bustle), 0);
    for (size_t i = 0; i < NUM(works); i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    EXPECT_OK(kvmem_broker_unpublish(shop.broker, "elastic", ERR));
    shop_close(&shop);
    EXPECT_OK(kvmem_region_commit(region, 0, 3 * EXTENT, ERR));
    EXPECT_OK(kvmem_region_decommit(region, 0, 3 * EXTENT, ERR)); /* nothing holds it any more */
}

TEST(a_broker_that_ends_keeps_no_extents) {
    OWNED(kvmem_region) region = create(FEW_EXTENTS);
    shop shop;
    shop_open(&shop, NULL);
    kvmem_share *share = share_of(region);
    GET(kvmem_token, token, kvmem_broker_publish, shop.broker, "elastic", share, NULL);
    CALL(kvmem_share_destroy(share));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_region_decommit(region, 0, EXTENT, ERR));
    shop_close(&shop);
    EXPECT_OK(kvmem_region_decommit(region, 0, EXTENT, ERR));
}
