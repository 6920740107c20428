// SPDX-License-Identifier: Apache-2.0
// Runs the broker of a test, and its customers.
#include "shop.h"

#include <sys/prctl.h>

enum { TAG_ORDER = 1, TAG_RECEIPT };

kvmem_broker_options shop_options(void) {
    return OPTIONS(kvmem_broker_options, it.client_timeout_ns = PATIENCE);
}

void shop_open(shop *shop, const kvmem_broker_options *options) {
    shop->directory = scratch_create(temporary_directory());
    CHECK_EQ(chmod(shop->directory.path, 0755), 0);
    snprintf(shop->path, sizeof(shop->path), "%s", scratch_file(&shop->directory, "broker"));
    kvmem_broker_options here = options != NULL ? *options : shop_options();
    here.path = shop->path;
    EXPECT_OK(kvmem_broker_create(&here, &shop->broker, ERR));
    goods_open(&shop->goods);
    EXPECT_OK(kvmem_broker_publish(shop->broker, "kv", shop->goods.share, NULL, &shop->token, ERR));
}

void shop_close(shop *shop) {
    kvmem_broker_destroy(shop->broker);
    goods_close(&shop->goods);
    CHECK_EQ(count_directory_entries(shop->directory.path), 0);
    scratch_remove(&shop->directory);
}

kvmem_broker_info shop_info(const shop *shop) {
    GET(kvmem_broker_info, info, kvmem_broker_get_info, shop->broker);
    return info;
}

void shop_await_clients(const shop *shop, uint64_t count) {
    while (shop_info(shop).clients != count) sched_yield();
}

void shop_check_service(const shop *shop) {
    const order order = order_from(shop);
    OWN(kvmem_share, share, kvmem_share_fetch, REF(order_options(&order)));
    OWNED(kvmem_region) region = goods_region(share);
}

order order_from(const shop *shop) {
    order made = {.name = "kv", .token = shop->token};
    memcpy(made.path, shop->path, sizeof(made.path));
    return made;
}

order order_published(const shop *shop, const char *name, const kvmem_share *share) {
    order made = order_from(shop);
    strcpy(made.name, name);
    EXPECT_OK(kvmem_broker_publish(shop->broker, name, share, NULL, &made.token, ERR));
    return made;
}

kvmem_token shop_grant(const shop *shop, const kvmem_publish_options *options) {
    GET(kvmem_token, token, kvmem_broker_grant, shop->broker, "kv", options);
    return token;
}

int shop_ask(const shop *shop, size_t size) { return ask_raw(shop->path, "kv", &shop->token, size); }

kvmem_fetch_options order_options(const order *order) {
    return OPTIONS(kvmem_fetch_options, it.path = order->path, it.name = order->name,
                   it.token = &order->token, it.flags = order->flags, it.broker_user = order->broker_user,
                   it.timeout_ns = PATIENCE);
}

/* After it /proc would hide this process from itself, as it does a set-user-ID program,
 * and the end of its parent would go unnoticed. */
void become(uint32_t user) {
    CHECK_EQ(setgid(user), 0);
    CHECK_EQ(setuid(user), 0);
    CHECK_EQ(prctl(PR_SET_DUMPABLE, 1), 0);
    CHECK_EQ(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
}

static kvmem_region *take_home(const kvmem_share *share, receipt *receipt) {
    kvmem_region *region = goods_region(share);
    receipt->read_only = (region_info(region).flags & KVMEM_REGION_READ_ONLY) != 0;
    if (!receipt->read_only) goods_mark(region);
    return region;
}

void customer(int socket) {
    order order;
    frame_expect_into(socket, TAG_ORDER, &order, sizeof(order));
    if (order.user != 0) become(order.user);
    const kvmem_fetch_options options = order_options(&order);
    OWNED(kvmem_share) share = NULL;
    OWNED(kvmem_region) region = NULL;
    receipt receipt = {.status = kvmem_share_fetch(&options, &share, ERR)};
    snprintf(receipt.message, sizeof(receipt.message), "%s", test_last_message());
    if (receipt.status == KVMEM_STATUS_OK) region = take_home(share, &receipt);
    frame_send(socket, TAG_RECEIPT, &receipt, sizeof(receipt));
    char end = 0;
    CHECK_EQ(recv(socket, &end, 1, 0), 0);
    if (region != NULL) goods_check(region);
}

peer customer_start(const order *order, receipt *receipt) {
    peer peer = peer_start("customer");
    frame_send(peer.socket, TAG_ORDER, order, sizeof(*order));
    frame_expect_into(peer.socket, TAG_RECEIPT, receipt, sizeof(*receipt));
    return peer;
}

receipt customer_send(const order *order) {
    receipt receipt;
    CLEANUP(peer_finish) peer peer = customer_start(order, &receipt);
    return receipt;
}

void customer_expect(const order *order, kvmem_status status, const char *part) {
    const receipt receipt = customer_send(order);
    if (receipt.status != status)
        FAIL("expected %s, got %s: %s", kvmem_status_name(status), kvmem_status_name(receipt.status),
             receipt.message);
    CHECK_HAS(receipt.message, part);
}
