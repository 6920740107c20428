// SPDX-License-Identifier: Apache-2.0
// Brokers and clients of different users, brokers that were forked, and what else lies at a broker's path.
#include "shop.h"

#include <sys/un.h>

SHOP_ROLES

#define FEW_FILES 200

enum { TAG_ORDER = 10, TAG_TOKEN };

/* As few as let a broker live, and its user have no more on their way through sockets. */
static void have_few_files(void) {
    const struct rlimit few = {.rlim_cur = FEW_FILES, .rlim_max = FEW_FILES};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
}

/* Role: a broker of the user it is told to become, for that user and for root. */
ROLE(foreign_broker) {
    have_few_files();
    order order;
    frame_expect_into(socket, TAG_ORDER, &order, sizeof(order));
    become(order.user);
    OPENED(goods, goods);
    const uint32_t users[] = {order.user, 0};
    kvmem_broker_options options = WITH(shop_options(), it.path = order.path, it.users = users,
                                        it.num_users = NUM(users), it.mode = 0666);
    OWN(kvmem_broker, broker, kvmem_broker_create, &options);
    GET(kvmem_token, token, kvmem_broker_publish, broker, "kv", goods.share, NULL);
    frame_send(socket, TAG_TOKEN, &token, sizeof(token));
    char end = 0;
    CHECK_EQ(recv(socket, &end, 1, 0), 0);
}

static peer start_foreign_broker(const scratch *directory, order *order) {
    CHECK_EQ(chown(directory->path, NOBODY, NOBODY), 0);
    snprintf(order->path, sizeof(order->path), "%s", scratch_file(directory, "broker"));
    strcpy(order->name, "kv");
    order->user = NOBODY;
    peer peer = peer_start("foreign_broker");
    frame_send(peer.socket, TAG_ORDER, order, sizeof(*order));
    frame_expect_into(peer.socket, TAG_TOKEN, &order->token, sizeof(order->token));
    return peer;
}

/* Whoever listens first at a path where a broker should be is not believed for that. */
TEST(a_broker_of_another_user_is_trusted_only_by_name) {
    require_other_users("a broker of another user");
    SCRATCH(directory);
    order order = {.flags = 0};
    peer peer = start_foreign_broker(&directory, &order);
    kvmem_fetch_options options = order_options(&order);
    kvmem_share *share = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_PERMISSION_DENIED, "runs as user 65534, expected user 0",
                   kvmem_share_fetch(&options, &share, ERR));
    CHECK(share == NULL);
    options.flags = KVMEM_FETCH_BROKER_USER;
    options.broker_user = 1;
    EXPECT_MESSAGE(KVMEM_STATUS_PERMISSION_DENIED, "expected user", kvmem_share_fetch(&options, &share, ERR));
    options.broker_user = NOBODY;
    EXPECT_OK(kvmem_share_fetch(&options, &share, ERR));
    kvmem_region *region = goods_region(share);
    goods_mark(region);
    kvmem_region_destroy(region);
    kvmem_share_destroy(share);
    /* Its own user trusts it, and is served. */
    customer_expect(&order, KVMEM_STATUS_OK, "");
    peer_finish(&peer);
    CHECK_EQ(count_directory_entries(directory.path), 0);
}

/* Not even root takes the place of a socket that another user has left. */
TEST(a_socket_that_another_user_left_stays) {
    require_other_users("a socket that another user left");
    SCRATCH(directory);
    CHECK_EQ(chmod(directory.path, 0777), 0);
    order order = {.flags = 0};
    peer peer = start_foreign_broker(&directory, &order);
    peer_kill(&peer);
    kvmem_broker_options options = WITH(shop_options(), it.path = order.path);
    REFUSE(KVMEM_STATUS_ALREADY_EXISTS, "user 65534", kvmem_broker_create, &options);
    CHECK_EQ(count_directory_entries(directory.path), 1);
}

/* The kernel lets a user have so many files on their way, all receivers together. */
TEST(files_that_a_user_leaves_unread_are_missed_by_nobody_else) {
    require_other_users("files that another user leaves unread");
    SCRATCH(directory);
    order order = {.flags = 0};
    CLEANUP(peer_finish) peer peer = start_foreign_broker(&directory, &order);
    int clients[FEW_FILES / 2 + 10]; /* two files for each */
    for (size_t i = 0; i < NUM(clients); i++) {
        clients[i] = ask_raw(order.path, "kv", &order.token, WHOLE_REQUEST); /* and the answer is not read */
    }
    struct pollfd answered = {.fd = clients[0], .events = POLLIN};
    CHECK_EQ(poll(&answered, 1, 60000), 1);
    customer_expect(&order, KVMEM_STATUS_OK, "");
    for (size_t i = 0; i < NUM(clients); i++) { /* each gets its own when those before it have read theirs */
        OWNED(kvmem_share) share = NULL;
        EXPECT_OK(kvmem_share_receive(clients[i], PATIENCE, &share, ERR));
    }
    for (size_t i = 0; i < NUM(clients); i++) close(clients[i]);
}

/* Sockets of other kinds are somebody's too while they are open. */
TEST(what_is_no_broker_is_neither_replaced_nor_believed) {
    SCRATCH(directory);
    const kvmem_token token = {{0}};
    order order = {.name = "kv", .token = token};
    snprintf(order.path, sizeof(order.path), "%s", scratch_file(&directory, "broker"));
    const kvmem_fetch_options fetch = order_options(&order);
    kvmem_broker_options options = WITH(shop_options(), it.path = order.path);
    kvmem_broker *broker = NULL;
    kvmem_share *share = NULL;

    static const int kinds[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    for (size_t i = 0; i < NUM(kinds); i++) {
        const int other = bind_raw(order.path, kinds[i]);
        if (kinds[i] == SOCK_SEQPACKET) CHECK_EQ(listen(other, 1), 0);
        EXPECT(KVMEM_STATUS_ALREADY_EXISTS, kvmem_broker_create(&options, &broker, ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "another type", kvmem_share_fetch(&fetch, &share, ERR));
        close(other);
        EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_share_fetch(&fetch, &share, ERR));
        EXPECT_OK(kvmem_broker_create(&options, &broker, ERR)); /* nobody has it any more */
        kvmem_broker_destroy(broker);
        broker = NULL;
        CHECK_EQ(count_directory_entries(directory.path), 0);
    }
    const int file = open(order.path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(file >= 0);
    close(file);
    EXPECT_MESSAGE(KVMEM_STATUS_ALREADY_EXISTS, "not a socket", kvmem_broker_create(&options, &broker, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "not a socket", kvmem_share_fetch(&fetch, &share, ERR));
    CHECK_EQ(unlink(order.path), 0);
    CHECK_EQ(symlink("nowhere", order.path), 0);
    EXPECT(KVMEM_STATUS_ALREADY_EXISTS, kvmem_broker_create(&options, &broker, ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_share_fetch(&fetch, &share, ERR));
    CHECK_EQ(unlink(order.path), 0);
    CHECK_EQ(mkdir(order.path, 0700), 0);
    EXPECT(KVMEM_STATUS_ALREADY_EXISTS, kvmem_broker_create(&options, &broker, ERR));
    CHECK(kvmem_share_fetch(&fetch, &share, ERR) < 0);
    CHECK_EQ(rmdir(order.path), 0);
}

static shop forked;

/* In a forked child the handles are the parent's, and stay its own. */
static void use_in_child(void) {
    kvmem_token token;
    kvmem_broker_info info;
    EXPECT(KVMEM_STATUS_INVALID_STATE,
           kvmem_broker_publish(forked.broker, "other", forked.goods.share, NULL, &token, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_broker_grant(forked.broker, "kv", NULL, &token, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_broker_unpublish(forked.broker, "kv", ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_broker_get_info(forked.broker, &info, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_share_send(forked.goods.share, 0, 0, ERR));
    kvmem_broker_destroy(forked.broker);
    /* A client like any other. */
    shop_check_service(&forked);
    /* Its own broker is its own. */
    OPENED(shop, own, NULL);
    shop_check_service(&own);
}

TEST(a_forked_child_has_no_broker) {
    KEEPS_FILES;
    shop_open(&forked, NULL);
    in_a_forked_child(use_in_child);
    shop_check_service(&forked);
    shop_close(&forked);
}
