// SPDX-License-Identifier: Apache-2.0
// What clients of a broker may have at once, and what becomes of them when an offer or the broker goes.
#include "shop.h"

SHOP_ROLES

#define THREADS 16
#define ROUNDS 30

/* A client that has asked for a large share, and been sent as much as its socket holds. */
static int start_reading(const shop *shop, const kvmem_token *token) {
    const int client = ask_raw(shop->path, "large", token, WHOLE_REQUEST);
    struct pollfd answered = {.fd = client, .events = POLLIN};
    CHECK_EQ(poll(&answered, 1, 60000), 1);
    return client;
}

static void publish_large(const shop *shop, many_goods *large, kvmem_token *token) {
    large_goods_make(large);
    EXPECT_OK(kvmem_broker_publish(shop->broker, "large", large->share, NULL, token, ERR));
}

TEST(a_user_has_so_many_clients_at_once) {
    const uint32_t users[] = {(uint32_t)geteuid(), NOBODY};
    kvmem_broker_options options = WITH(shop_options(), it.users = users, it.num_users = NUM(users),
                                        it.mode = 0666);
    options.max_clients = 4; /* two for each */
    OPENED(shop, shop, &options);
    const int stalled[] = {connect_raw(shop.path), connect_raw(shop.path)};
    shop_await_clients(&shop, NUM(stalled));
    order order = order_from(&shop);
    customer_expect(&order, KVMEM_STATUS_BUSY, "2 clients");
    if (can_test_other_users("the part of another user")) { /* others have their own part */
        order.user = NOBODY;
        order.flags = KVMEM_FETCH_BROKER_USER;
        customer_expect(&order, KVMEM_STATUS_OK, "");
    }
    close(stalled[0]);
    shop_await_clients(&shop, 1);
    shop_check_service(&shop);
    close(stalled[1]);
}

TEST(a_user_has_so_many_bytes_on_their_way) {
    OPENED(shop, shop, REF(WITH(shop_options(), it.max_bytes_per_user = 1)));
    kvmem_token token;
    CLEANUP(many_goods_close) many_goods large;
    publish_large(&shop, &large, &token);
    const int reader = start_reading(&shop, &token); /* one is served, however large */
    order order = order_from(&shop);
    kvmem_publish_options once = {.struct_size = sizeof(once), .max_uses = 1};
    EXPECT_OK(kvmem_broker_grant(shop.broker, "kv", &once, &order.token, ERR));
    customer_expect(&order, KVMEM_STATUS_BUSY, "bytes");
    close(reader);
    shop_await_clients(&shop, 0);
    customer_expect(&order, KVMEM_STATUS_OK, ""); /* who was sent away has not used its token */
}

TEST(who_comes_to_a_full_broker_waits) {
    OPENED(shop, shop, REF(WITH(shop_options(), it.max_clients = 2)));
    const int stalled[] = {connect_raw(shop.path), connect_raw(shop.path)};
    shop_await_clients(&shop, NUM(stalled));
    const order order = order_from(&shop);
    kvmem_fetch_options fetch = WITH(order_options(&order), it.timeout_ns = MILLISECONDS(10));
    kvmem_share *share = NULL;
    for (int i = 0; i < 8; i++) { /* at first in the kernel's queue, then not even there */
        EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_share_fetch(&fetch, &share, ERR));
        CHECK(share == NULL);
    }
    close(stalled[0]);
    close(stalled[1]);
    shop_check_service(&shop);
}

TEST(what_is_unpublished_while_it_is_sent_still_arrives) {
    KEEPS_FILES;
    OPENED(shop, shop, NULL);
    many_goods large;
    order order = order_from(&shop);
    strcpy(order.name, "large");
    publish_large(&shop, &large, &order.token);
    const int reader = start_reading(&shop, &order.token);
    EXPECT_OK(kvmem_broker_unpublish(shop.broker, "large", ERR));
    customer_expect(&order, KVMEM_STATUS_PERMISSION_DENIED, "not published");
    /* Nobody but the client's answer holds it any more. */
    many_goods_close(&large);
    GET(kvmem_share *, share, kvmem_share_receive, reader, PATIENCE);
    CHECK_EQ(share_info(share).object, KVMEM_SHARED_LAYOUT);
    kvmem_share_destroy(share);
    close(reader);
    shop_await_clients(&shop, 0);
}

static order shared_order;
static atomic_int outcomes[2]; /* served, refused */

static void *fetch_once(void *unused) {
    (void)unused;
    OWNED(kvmem_share) share = NULL;
    const kvmem_status status = kvmem_share_fetch(REF(order_options(&shared_order)), &share, NULL);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_PERMISSION_DENIED);
    atomic_fetch_add(&outcomes[status != KVMEM_STATUS_OK], 1);
    return NULL;
}

static void start_fetching(threads *threads) {
    atomic_store(&outcomes[0], 0);
    atomic_store(&outcomes[1], 0);
    threads_start(threads, THREADS, fetch_once, NULL, 0);
}

static void end_fetching(threads *threads) {
    threads_join(threads);
    CHECK_EQ(outcomes[0] + outcomes[1], THREADS);
}

TEST(of_many_at_once_as_many_are_served_as_the_token_has_uses) {
    OPENED(shop, shop, NULL);
    shared_order = order_from(&shop);
    const kvmem_publish_options thrice = {.struct_size = sizeof(thrice), .max_uses = 3};
    EXPECT_OK(kvmem_broker_grant(shop.broker, "kv", &thrice, &shared_order.token, ERR));
    threads threads;
    start_fetching(&threads);
    end_fetching(&threads);
    CHECK_EQ(outcomes[0], 3);
}

TEST(what_goes_while_many_fetch_is_there_or_not) {
    KEEPS_FILES;
    OPENED(shop, shop, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        threads threads;
        shared_order = order_published(&shop, "fleeting", shop.goods.share);
        start_fetching(&threads);
        EXPECT_OK(kvmem_broker_unpublish(shop.broker, "fleeting", ERR));
        end_fetching(&threads);
    }
    CHECK_EQ(region_holders(shop.goods.region).shares, 1);
    shop_check_service(&shop);
}

static void *fetch_until_lost(void *unused) {
    (void)unused;
    kvmem_share *share = NULL;
    const kvmem_status status = kvmem_share_fetch(REF(order_options(&shared_order)), &share, NULL);
    /* It had connected, or came when the path had just gone. */
    CHECK(status == KVMEM_STATUS_PEER_LOST || status == KVMEM_STATUS_NOT_FOUND);
    CHECK(share == NULL);
    return NULL;
}

/* Reads on to the end, which there must be; a client that was not heard is told so. */
static void expect_end(int client) {
    char rest[4096];
    ssize_t size = 1;
    while (size > 0) size = recv(client, rest, sizeof(rest), 0);
    CHECK(size == 0 || errno == ECONNRESET);
    close(client);
}

TEST(a_broker_that_ends_sends_all_its_clients_away) {
    KEEPS_FILES;
    OPENED(shop, shop, REF(WITH(shop_options(), it.max_clients = 4)));
    many_goods large;
    kvmem_token token;
    publish_large(&shop, &large, &token);
    const int clients[] = {start_reading(&shop, &token), connect_raw(shop.path), shop_ask(&shop, 20),
                           shop_ask(&shop, 60)};
    shop_await_clients(&shop, NUM(clients));
    /* Those find no room, and wait. */
    shared_order = order_from(&shop);
    threads waiting;
    threads_start(&waiting, 3, fetch_until_lost, NULL, 0);
    const int queued = connect_raw(shop.path);
    many_goods_close(&large);
    kvmem_broker_destroy(shop.broker);
    shop.broker = NULL;
    threads_join(&waiting);
    for (size_t i = 0; i < NUM(clients); i++) expect_end(clients[i]);
    expect_end(queued);
}
