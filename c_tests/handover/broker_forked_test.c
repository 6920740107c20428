// SPDX-License-Identifier: Apache-2.0
// A broker whose process has forked and is killed: the child that lives on is no broker. Clients are told at
// once, and another broker takes the path.
#include "shop.h"

enum { TAG_TASK = 10, TAG_OPEN, TAG_FORK, TAG_FORKED };

typedef struct task {
    char path[160];
    uint32_t by_clone;
} task;

/* Role: a broker that makes a child when it is told to, and waits to be killed. */
ROLE(forking_broker) {
    task task;
    frame_expect_into(socket, TAG_TASK, &task, sizeof(task));
    goods goods;
    goods_open(&goods);
    order order = {.name = "kv"};
    GET(kvmem_broker *, broker, kvmem_broker_create, REF(WITH(shop_options(), it.path = task.path)));
    EXPECT_OK(kvmem_broker_publish(broker, "kv", goods.share, NULL, &order.token, ERR));
    memcpy(order.path, task.path, sizeof(order.path));
    frame_send(socket, TAG_OPEN, &order, sizeof(order));
    frame_await(socket, TAG_FORK);
    child_that_lives(socket, task.by_clone != 0);
    frame_send(socket, TAG_FORKED, NULL, 0);
    pause();
}

static peer start_broker(const char *path, bool by_clone, order *order) {
    task task = {.by_clone = by_clone};
    CHECK(strlen(path) < sizeof(task.path));
    strcpy(task.path, path);
    const peer broker = peer_start("forking_broker");
    frame_send(broker.socket, TAG_TASK, &task, sizeof(task));
    frame_expect_into(broker.socket, TAG_OPEN, order, sizeof(*order));
    return broker;
}

/* Has it fork, and kills it; its child lives until the file descriptor is closed. */
static int fork_and_kill(peer *broker) {
    frame_send(broker->socket, TAG_FORK, NULL, 0);
    frame_await(broker->socket, TAG_FORKED);
    const int child = fcntl(broker->socket, F_DUPFD_CLOEXEC, 0);
    CHECK(child >= 0);
    peer_kill(broker);
    return child;
}

static kvmem_status fetch(const order *order) {
    return TRIED(kvmem_share, kvmem_share_fetch, REF(order_options(order)));
}

TEST(a_killed_broker_is_replaced_though_a_child_of_it_lives) {
    for (int by_clone = 0; by_clone < 2; by_clone++) {
        SCRATCH_FILE(path, "broker");
        order order;
        peer first = start_broker(path, by_clone != 0, &order);
        CHECK_EQ(fetch(&order), KVMEM_STATUS_OK);
        const int child = fork_and_kill(&first);
        EXPECT(KVMEM_STATUS_PEER_LOST, fetch(&order));
        peer second = start_broker(path, false, &order);
        CHECK_EQ(fetch(&order), KVMEM_STATUS_OK);
        close(child);
        peer_kill(&second);
        CHECK_EQ(unlink(path), 0);
    }
}

/* It neither reads what they ask nor keeps them waiting. */
TEST(clients_of_a_killed_broker_are_not_kept_by_its_child) {
    SCRATCH_FILE(path, "broker");
    order order;
    peer broker = start_broker(path, false, &order);
    const int client = connect_raw(path);
    CHECK_EQ(fetch(&order), KVMEM_STATUS_OK); /* so the client before it was let in */
    const int child = fork_and_kill(&broker);
    struct pollfd end = {.fd = client, .events = POLLIN};
    CHECK_EQ(poll(&end, 1, (int)(PATIENCE / MILLISECONDS(1))), 1);
    char byte;
    const ssize_t received = recv(client, &byte, 1, 0);
    CHECK(received == 0 || (received < 0 && errno == ECONNRESET));
    close(client);
    close(child);
    CHECK_EQ(unlink(path), 0);
}
