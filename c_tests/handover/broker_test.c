// SPDX-License-Identifier: Apache-2.0
// What a broker gives to other processes: to whom, for which token, and what those hear who get nothing.
#include "shop.h"

#include <sys/un.h>

SHOP_ROLES

/* A user that is not root, beside NOBODY. */
#define SOMEBODY 65533u

static kvmem_publish_options terms(void) { return OPTIONS(kvmem_publish_options); }

TEST(another_process_fetches_and_maps) {
    KEEPS_FILES;
    OPENED(shop, shop, NULL);
    const order order = order_from(&shop);
    for (int i = 0; i < 3; i++) {
        customer_expect(&order, KVMEM_STATUS_OK, "");
        goods_await_mark(&shop.goods);
    }
    const kvmem_broker_info info = shop_info(&shop);
    CHECK_EQ(info.publications, 1);
    CHECK_EQ(info.granted, 3);
    CHECK_EQ(info.refused, 0);
}

TEST(memory_adopted_from_a_file_is_fetched_and_mapped) {
    KEEPS_FILES;
    OPENED(shop, shop, NULL);
    goods file;
    goods_open_in_file(&file);
    CHECK_EQ(region_info(file.region).origin, KVMEM_ORIGIN_ADOPTED);
    const order order = order_published(&shop, "file", file.share);
    customer_expect(&order, KVMEM_STATUS_OK, "");
    goods_await_mark(&file);
    CHECK_EQ(region_holders(file.region).importers, 0); /* the customer has ended */
    goods_close(&file);
    customer_expect(&order, KVMEM_STATUS_OK, ""); /* what is published stays */
}

TEST(what_is_published_stays_after_its_handles) {
    OPENED(shop, shop, NULL);
    goods other;
    goods_open(&other);
    const order order = order_published(&shop, "other", other.share);
    goods_close(&other);
    customer_expect(&order, KVMEM_STATUS_OK, "");
    EXPECT_OK(kvmem_broker_unpublish(shop.broker, "other", ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_broker_unpublish(shop.broker, "other", ERR));
    customer_expect(&order, KVMEM_STATUS_PERMISSION_DENIED, "not published");
}

TEST(a_name_is_published_once) {
    OPENED(shop, shop, NULL);
    kvmem_token token;
    EXPECT(KVMEM_STATUS_ALREADY_EXISTS,
           kvmem_broker_publish(shop.broker, "kv", shop.goods.share, NULL, &token, ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_broker_grant(shop.broker, "vk", NULL, &token, ERR));
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT,
           kvmem_broker_publish(shop.broker, "", shop.goods.share, NULL, &token, ERR));
}

TEST(a_token_that_is_wrong_used_up_or_expired_opens_nothing) {
    OPENED(shop, shop, NULL);
    order order = order_from(&shop);
    order.token.bytes[31] ^= 1;
    customer_expect(&order, KVMEM_STATUS_PERMISSION_DENIED, "token is wrong");

    order = order_from(&shop);
    strcpy(order.name, "vk");
    customer_expect(&order, KVMEM_STATUS_PERMISSION_DENIED, "token is wrong");

    order = order_from(&shop);
    order.token = shop_grant(&shop, REF(WITH(terms(), it.max_uses = 1)));
    customer_expect(&order, KVMEM_STATUS_OK, "");
    customer_expect(&order, KVMEM_STATUS_PERMISSION_DENIED, "used up");

    order.token = shop_grant(&shop, REF(WITH(terms(), it.lifetime_ns = 1)));
    customer_expect(&order, KVMEM_STATUS_PERMISSION_DENIED, "expired");
    CHECK_EQ(shop_info(&shop).refused, 4);
}

TEST(a_token_to_read_does_not_let_write) {
    OPENED(shop, shop, NULL);
    kvmem_publish_options reading = WITH(terms(), it.flags = KVMEM_PUBLISH_READ_ONLY);
    order order = WITH(order_from(&shop), it.token = shop_grant(&shop, &reading),
                       it.flags = KVMEM_FETCH_READ_WRITE);
    customer_expect(&order, KVMEM_STATUS_PERMISSION_DENIED, "write");
}

/* Without a flag all that is granted; with one no more than to read, or no less than to write. */
TEST(what_is_granted_is_fetched) {
    OPENED(shop, shop, NULL);
    kvmem_publish_options reading = WITH(terms(), it.flags = KVMEM_PUBLISH_READ_ONLY);
    order order = order_from(&shop);
    const struct {
        kvmem_token token;
        uint64_t flags;
        uint32_t read_only;
    } asked[] = {
        {shop_grant(&shop, &reading), 0, 1},
        {shop_grant(&shop, &reading), KVMEM_FETCH_READ_ONLY, 1},
        {shop.token, 0, 0},
        {shop.token, KVMEM_FETCH_READ_WRITE, 0},
        {shop.token, KVMEM_FETCH_READ_ONLY, 1},
    };
    for (size_t i = 0; i < NUM(asked); i++) {
        order.token = asked[i].token;
        order.flags = asked[i].flags;
        const receipt receipt = customer_send(&order);
        CHECK_EQ(receipt.status, KVMEM_STATUS_OK);
        CHECK_EQ(receipt.read_only, asked[i].read_only);
    }
    order.flags = KVMEM_FETCH_READ_ONLY | KVMEM_FETCH_READ_WRITE;
    customer_expect(&order, KVMEM_STATUS_INVALID_ARGUMENT, "exclude each other");
}

TEST(what_is_shared_to_be_read_is_never_granted_more) {
    OPENED(shop, shop, NULL);
    CLEANUP(goods_close) goods other;
    goods_make_read_only(&other);
    order order = order_published(&shop, "other", other.share);
    order.flags = KVMEM_FETCH_READ_WRITE;
    customer_expect(&order, KVMEM_STATUS_PERMISSION_DENIED, "");
    static const uint64_t enough[] = {0, KVMEM_FETCH_READ_ONLY};
    for (size_t i = 0; i < NUM(enough); i++) {
        order.flags = enough[i];
        const receipt receipt = customer_send(&order);
        CHECK_EQ(receipt.status, KVMEM_STATUS_OK);
        CHECK_EQ(receipt.read_only, 1);
    }
}

/* Without root there is no becoming another user: then the list names everybody but this one. */
TEST(a_user_that_is_not_allowed_gets_nothing) {
    const uint32_t strangers[] = {geteuid() == 0 ? NOBODY : (uint32_t)geteuid() + 1};
    OPENED(shop, shop, REF(WITH(shop_options(), it.users = strangers, it.num_users = NUM(strangers),
                                it.mode = 0666)));
    order order = order_from(&shop);
    /* Root too, when it is not on the list. */
    customer_expect(&order, KVMEM_STATUS_PERMISSION_DENIED, "may not fetch");
    if (can_test_other_users("clients of two other users")) {
        order.flags = KVMEM_FETCH_BROKER_USER;
        order.user = SOMEBODY;
        customer_expect(&order, KVMEM_STATUS_PERMISSION_DENIED, "may not fetch");
        order.user = NOBODY;
        customer_expect(&order, KVMEM_STATUS_OK, "");
        /* Who listens is not whom it trusts. */
        order.flags = 0;
        customer_expect(&order, KVMEM_STATUS_PERMISSION_DENIED, "expected user 65534");
    }
}

TEST(by_default_nobody_else_can_even_connect) {
    OPENED(shop, shop, NULL);
    struct stat found;
    CHECK_EQ(lstat(shop.path, &found), 0);
    CHECK_EQ(found.st_mode & 07777, 0600);
    order order = order_from(&shop);
    if (can_test_other_users("a client of another user at a socket of mode 0600")) {
        order.flags = KVMEM_FETCH_BROKER_USER;
        order.user = NOBODY;
        customer_expect(&order, KVMEM_STATUS_PERMISSION_DENIED, "may not connect");
        order.user = 0;
    }
    order.flags = KVMEM_FETCH_BROKER_USER;
    order.broker_user = (uint32_t)geteuid() + 1;
    customer_expect(&order, KVMEM_STATUS_PERMISSION_DENIED, "expected user");
}

TEST(the_socket_has_the_mode_asked_whatever_the_umask) {
    const mode_t masks[] = {0, 0022, 0177, 0777};
    const uint32_t modes[] = {0600, 0660, 0666};
    const mode_t before = umask(0);
    for (size_t i = 0; i < NUM(masks); i++) {
        for (size_t j = 0; j < NUM(modes); j++) {
            kvmem_broker_options options = WITH(shop_options(), it.mode = modes[j]);
            umask(masks[i] & 077);
            OPENED(shop, shop, &options);
            umask(before);
            struct stat found;
            CHECK_EQ(lstat(shop.path, &found), 0);
            CHECK_EQ(found.st_mode & 07777, modes[j]);
        }
    }
}

TEST(a_place_that_is_taken_stays_as_it_is) {
    OPENED(shop, shop, NULL);
    kvmem_broker_options options = WITH(shop_options(), it.path = shop.path);
    REFUSE(KVMEM_STATUS_ALREADY_EXISTS, "", kvmem_broker_create, &options);
    shop_check_service(&shop);

    const char *file = scratch_file(&shop.directory, "file");
    write_file(file, "precious", 8);
    options.path = file;
    REFUSE(KVMEM_STATUS_ALREADY_EXISTS, "", kvmem_broker_create, &options);
    struct stat found;
    CHECK_EQ(lstat(file, &found), 0);
    CHECK_EQ(found.st_size, 8);
    unlink(file);
}

TEST(options_that_can_not_work_are_refused) {
    SCRATCH(directory);
    const uint32_t other = (uint32_t)geteuid() + 1;
    kvmem_broker_options options = WITH(shop_options(), it.path = scratch_file(&directory, "broker"),
                                        it.users = &other, it.num_users = 1);
    kvmem_broker *broker = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "0666", kvmem_broker_create(&options, &broker, ERR));
    options = shop_options();
    options.mode = 04755;
    options.path = scratch_file(&directory, "broker");
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_broker_create(&options, &broker, ERR));
    options.mode = 0;
    options.path = "/nowhere/at/all";
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_broker_create(&options, &broker, ERR));
    CHECK_EQ(count_directory_entries(directory.path), 0);
}
