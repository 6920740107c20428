// SPDX-License-Identifier: Apache-2.0
// Many clients of a broker at once, and clients and brokers that stall or are killed at any step.
#include "shop.h"

SHOP_ROLES

#define CROWDS 8
#define CROWD 25
#define BAD_COMPANY 80

enum { TAG_ORDER = 10, TAG_STEP, TAG_THERE, TAG_GO_ON, TAG_TOKEN };

static order take_order(int socket) {
    order order;
    frame_expect_into(socket, TAG_ORDER, &order, sizeof(order));
    return order;
}

static peer start(const char *role, const order *order) {
    peer peer = peer_start(role);
    frame_send(peer.socket, TAG_ORDER, order, sizeof(*order));
    return peer;
}

static order crowd_order;
static pthread_barrier_t crowd_gathered;

static void *fetch_in_crowd(void *unused) {
    (void)unused;
    pthread_barrier_wait(&crowd_gathered);
    OWN(kvmem_share, share, kvmem_share_fetch, REF(order_options(&crowd_order)));
    OWNED(kvmem_region) region = goods_region(share);
    return NULL;
}

/* Role: many threads that all fetch at once. */
ROLE(crowd) {
    crowd_order = take_order(socket);
    threads threads;
    CHECK_EQ(pthread_barrier_init(&crowd_gathered, NULL, CROWD + 1), 0);
    threads_start(&threads, CROWD, fetch_in_crowd, NULL, 0);
    frame_send(socket, TAG_THERE, NULL, 0);
    frame_await(socket, TAG_GO_ON);
    pthread_barrier_wait(&crowd_gathered);
    threads_join(&threads);
}

/* Clients that connect, ask by halves, or send rubbish, and stay. */
static void seat_bad_company(const shop *shop, int clients[BAD_COMPANY]) {
    unsigned char request[REQUEST_SIZE("kv")];
    write_request(request, "kv", &shop->token);
    for (size_t i = 0; i < BAD_COMPANY; i++) {
        clients[i] = connect_raw(shop->path);
        const size_t part = i % sizeof(request);
        request[0] = i % 2 == 0 ? 'K' : 'x';
        CHECK_EQ(send(clients[i], request, part, MSG_NOSIGNAL), (ssize_t)part);
    }
}

TEST(two_hundred_clients_at_once_are_served) {
    int bad_company[BAD_COMPANY];
    OPENED(shop, shop, NULL);
    const order order = order_from(&shop);
    peer crowds[CROWDS];
    for (size_t i = 0; i < CROWDS; i++) crowds[i] = start("crowd", &order);
    for (size_t i = 0; i < CROWDS; i++) free(frame_expect(crowds[i].socket, TAG_THERE).data);
    seat_bad_company(&shop, bad_company);
    for (size_t i = 0; i < CROWDS; i++) frame_send(crowds[i].socket, TAG_GO_ON, NULL, 0);
    for (size_t i = 0; i < CROWDS; i++) peer_finish(&crowds[i]);
    CHECK_EQ(shop_info(&shop).granted, CROWDS * CROWD);
    for (size_t i = 0; i < BAD_COMPANY; i++) close(bad_company[i]);
    shop_await_clients(&shop, 0);
}

/* What a client has sent when it stops, and what it has read. */
typedef struct step {
    const char *name;
    size_t sent;
    size_t read;
} step;
static const step steps[] = {
    {"connected", 0, 0},
    {"in its header", 20, 0},
    {"in its request", 60, 0},
    {"asked", REQUEST_SIZE("many"), 0},
    {"in the answer", REQUEST_SIZE("many"), 100},
};

/* Role: goes so far, and stops. */
ROLE(stopping_client) {
    const order order = take_order(socket);
    step step;
    frame_expect_into(socket, TAG_STEP, &step, sizeof(step));
    const int client = ask_raw(order.path, "many", &order.token, step.sent);
    char answer[100];
    /* To read nothing would wait for something. */
    CHECK(step.read == 0 || recv(client, answer, step.read, MSG_WAITALL) == (ssize_t)step.read);
    frame_send(socket, TAG_THERE, NULL, 0);
    pause();
}

TEST(a_client_killed_at_any_step_is_let_go) {
    KEEPS_FILES;
    OPENED(shop, shop, NULL);
    OPENED(many_goods, many, 20);
    const order order = order_published(&shop, "many", many.share);
    const size_t open = count_open_files();
    for (size_t i = 0; i < NUM(steps); i++) {
        peer peer = start("stopping_client", &order);
        frame_send(peer.socket, TAG_STEP, &steps[i], sizeof(steps[i]));
        frame_await(peer.socket, TAG_THERE);
        shop_check_service(&shop);
        peer_kill(&peer);
        shop_check_service(&shop);
        shop_await_clients(&shop, 0);
        test_check_equal(__FILE__, __LINE__, steps[i].name, (long long)count_open_files(), (long long)open);
    }
}

TEST(an_importer_killed_after_its_fetch_holds_nothing) {
    OPENED(shop, shop, NULL);
    const order order = order_from(&shop);
    receipt receipt;
    peer peer = customer_start(&order, &receipt);
    CHECK_EQ(receipt.status, KVMEM_STATUS_OK);
    CHECK_EQ(region_holders(shop.goods.region).importers, 1);
    peer_kill(&peer);
    CHECK_EQ(region_holders(shop.goods.region).importers, 0);
}

/* The broker says why before it leaves. */
static void expect_timed_out(int client) {
    char answer[2000];
    const ssize_t size = recv(client, answer, sizeof(answer), MSG_WAITALL);
    CHECK(size > 44);
    int32_t status = 0;
    memcpy(&status, answer + 40, sizeof(status));
    CHECK_EQ(status, KVMEM_STATUS_TIMED_OUT);
    close(client);
}

TEST(clients_that_stall_are_let_go_while_others_are_served) {
    OPENED(shop, shop, REF(WITH(shop_options(), it.client_timeout_ns = SECONDS(2))));
    int stalled[100];
    for (size_t i = 0; i < NUM(stalled); i++) stalled[i] = shop_ask(&shop, i % REQUEST_SIZE("kv"));
    for (int i = 0; i < 20; i++) shop_check_service(&shop);
    for (size_t i = 0; i < NUM(stalled); i++) expect_timed_out(stalled[i]);
    shop_await_clients(&shop, 0);
    CHECK_EQ(shop_info(&shop).refused, NUM(stalled));
}

TEST(rubbish_is_refused_and_the_broker_goes_on) {
    OPENED(shop, shop, NULL);
    unsigned seed = 4;
    for (int i = 0; i < 300; i++) {
        unsigned char rubbish[400];
        size_t size = 40 + (size_t)rand_r(&seed) % 360;
        for (size_t j = 0; j < size; j++) rubbish[j] = (unsigned char)rand_r(&seed);
        if (i % 2 == 0) {
            size = REQUEST_SIZE("kv");
            write_request(rubbish, "kv", &shop.token);
            rubbish[(size_t)rand_r(&seed) % size] ^= (unsigned char)(1 + rand_r(&seed) % 255);
        }
        CLEANUP(test_close) const int client = connect_raw(shop.path);
        CHECK_EQ(send(client, rubbish, size, MSG_NOSIGNAL), (ssize_t)size);
        char answer[44];
        CHECK_EQ(recv(client, answer, sizeof(answer), MSG_WAITALL), (ssize_t)sizeof(answer));
        CHECK_EQ(answer[10], 3);
    }
    shop_check_service(&shop);
}

/* Role: a broker. */
ROLE(serve) {
    const order order = take_order(socket);
    shop shop;
    goods_open(&shop.goods);
    EXPECT_OK(kvmem_broker_create(REF(WITH(shop_options(), it.path = order.path)), &shop.broker, ERR));
    EXPECT_OK(kvmem_broker_publish(shop.broker, "kv", shop.goods.share, NULL, &shop.token, ERR));
    frame_send(socket, TAG_TOKEN, &shop.token, sizeof(shop.token));
    pause();
}

TEST(a_broker_that_is_killed_leaves_what_was_fetched) {
    SCRATCH(directory);
    order order = {.name = "kv"};
    snprintf(order.path, sizeof(order.path), "%s", scratch_file(&directory, "broker"));
    peer peer = start("serve", &order);
    frame_expect_into(peer.socket, TAG_TOKEN, &order.token, sizeof(order.token));
    const kvmem_fetch_options options = order_options(&order);
    GET(kvmem_share *, first, kvmem_share_fetch, &options);
    GET(kvmem_share *, second, kvmem_share_fetch, &options);
    kvmem_region *opened = goods_region(first);
    peer_kill(&peer);

    EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_region_check_owner(opened, ERR));
    goods_check(opened);
    kvmem_region_destroy(opened);
    /* What was fetched and not yet opened holds the memory too. */
    opened = goods_region(second);
    EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_region_check_owner(opened, ERR));
    kvmem_region_destroy(opened);
    REFUSE(KVMEM_STATUS_PEER_LOST, "", kvmem_share_fetch, &options);
    kvmem_share_destroy(first);
    kvmem_share_destroy(second);

    /* The socket that it left is replaced. */
    GET(kvmem_broker *, broker, kvmem_broker_create, REF(WITH(shop_options(), it.path = order.path)));
    kvmem_broker_destroy(broker);
    CHECK_EQ(count_directory_entries(directory.path), 0);
}
