// SPDX-License-Identifier: Apache-2.0
// Runs the broker of a test, and its customers.
#include "shop.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { TAG_ORDER = 1, TAG_RECEIPT };

kvmem_broker_options shop_options(void) {
    kvmem_broker_options options;
    kvmem_broker_options_init(&options, sizeof(options));
    options.client_timeout_ns = PATIENCE;
    return options;
}

void shop_open(shop *shop, const kvmem_broker_options *options) {
    shop->directory = scratch_create(temporary_directory());
    CHECK_EQ(chmod(shop->directory.path, 0755), 0);
    snprintf(shop->path, sizeof(shop->path), "%s", scratch_file(&shop->directory, "broker"));
    kvmem_broker_options here = *options;
    here.path = shop->path;
    EXPECT_OK(kvmem_broker_create(&here, &shop->broker, ERR));
    goods_make(&shop->goods);
    EXPECT_OK(kvmem_broker_publish(shop->broker, "kv", shop->goods.share, NULL, &shop->token, ERR));
}

void shop_open_plain(shop *shop) {
    const kvmem_broker_options options = shop_options();
    shop_open(shop, &options);
}

void shop_close(shop *shop) {
    kvmem_broker_destroy(shop->broker);
    goods_give_up(&shop->goods);
    CHECK_EQ(count_directory_entries(shop->directory.path), 0);
    scratch_remove(&shop->directory);
}

kvmem_broker_info shop_info(const shop *shop) {
    kvmem_broker_info info;
    EXPECT_OK(kvmem_broker_get_info(shop->broker, &info, ERR));
    return info;
}

void shop_await_clients(const shop *shop, uint64_t count) {
    while (shop_info(shop).clients != count) {
        sched_yield();
    }
}

void shop_check_service(const shop *shop) {
    const order order = order_from(shop);
    const kvmem_fetch_options options = order_options(&order);
    kvmem_share *share = NULL;
    EXPECT_OK(kvmem_share_fetch(&options, &share, ERR));
    kvmem_region *region = goods_open(share);
    kvmem_region_destroy(region);
    kvmem_share_destroy(share);
}

order order_from(const shop *shop) {
    order made = {.name = "kv", .token = shop->token};
    memcpy(made.path, shop->path, sizeof(made.path));
    return made;
}

kvmem_fetch_options order_options(const order *order) {
    kvmem_fetch_options options;
    kvmem_fetch_options_init(&options, sizeof(options));
    options.path = order->path;
    options.name = order->name;
    options.token = &order->token;
    options.flags = order->flags;
    options.broker_user = order->broker_user;
    options.timeout_ns = PATIENCE;
    return options;
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
    kvmem_region *region = goods_open(share);
    receipt->read_only = (region_info(region).flags & KVMEM_REGION_READ_ONLY) != 0;
    if (!receipt->read_only) {
        goods_mark(region);
    }
    return region;
}

void customer(int socket) {
    message asked = frame_expect(socket, TAG_ORDER);
    order order;
    CHECK_EQ(asked.size, sizeof(order));
    memcpy(&order, asked.data, sizeof(order));
    free(asked.data);
    if (order.user != 0) {
        become(order.user);
    }
    const kvmem_fetch_options options = order_options(&order);
    kvmem_share *share = NULL;
    kvmem_region *region = NULL;
    receipt receipt = {.status = kvmem_share_fetch(&options, &share, ERR)};
    snprintf(receipt.message, sizeof(receipt.message), "%s", test_last_message());
    if (receipt.status == KVMEM_STATUS_OK) {
        region = take_home(share, &receipt);
    }
    frame_send(socket, TAG_RECEIPT, &receipt, sizeof(receipt));
    char end = 0;
    CHECK_EQ(recv(socket, &end, 1, 0), 0);
    if (region != NULL) {
        goods_check(region);
    }
    kvmem_region_destroy(region);
    kvmem_share_destroy(share);
}

peer customer_start(const order *order, receipt *receipt) {
    peer peer = peer_start("customer");
    frame_send(peer.socket, TAG_ORDER, order, sizeof(*order));
    frame_expect_into(peer.socket, TAG_RECEIPT, receipt, sizeof(*receipt));
    return peer;
}

receipt customer_send(const order *order) {
    receipt receipt;
    peer peer = customer_start(order, &receipt);
    peer_finish(&peer);
    return receipt;
}

void customer_expect(const order *order, kvmem_status status, const char *part) {
    const receipt receipt = customer_send(order);
    if (receipt.status != status) {
        FAIL("expected %s, got %s: %s", kvmem_status_name(status), kvmem_status_name(receipt.status),
             receipt.message);
    }
    CHECK_HAS(receipt.message, part);
}
