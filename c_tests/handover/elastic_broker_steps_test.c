// SPDX-License-Identifier: Apache-2.0
// Elastic memory goes from a broker in several messages, and one side is killed after each of them and amid
// each: the other is told, keeps nothing of it, and serves or fetches the next. Needs the stand-in.
#include "shop.h"
#include "stance.h"
#include "steps.h"
#include "survivor.h"

enum { TAG_TASK = 10, TAG_TOKEN, TAG_THERE };

#define NAME "elastic"

/* What a peer is to do, and how far. */
typedef struct task {
    order order;
    step step;
    size_t asks; /* bytes of its request that a client sends */
} task;

static task task_of(const char *path, const kvmem_token *token, const step *step) {
    task task = {.order = {.name = NAME, .token = *token}, .step = *step, .asks = REQUEST_SIZE(NAME)};
    CHECK(strlen(path) < sizeof(task.order.path));
    strcpy(task.order.path, path);
    return task;
}

static peer start(const char *role, const task *task) {
    peer peer = peer_start(role);
    frame_send(peer.socket, TAG_TASK, task, sizeof(*task));
    return peer;
}

static task begin(int socket) {
    extents_allow_files();
    task task;
    frame_expect_into(socket, TAG_TASK, &task, sizeof(task));
    return task;
}

static void say_there(int socket) { frame_send(socket, TAG_THERE, NULL, 0); }

static void await_there(const peer *peer) { frame_await(peer->socket, TAG_THERE); }

static kvmem_status fetch(const order *order, kvmem_share **share) {
    const kvmem_fetch_options options = order_options(order);
    return kvmem_share_fetch(&options, share, ERR);
}

static void fetch_whole(const order *order, kvmem_status owner) {
    kvmem_share *share = NULL;
    EXPECT_OK(fetch(order, &share));
    OWNED(kvmem_layout) layout = extents_open(share);
    CALL(kvmem_share_destroy(share));
    CHECK_EQ(extents_check_owner(layout), owner);
}

/* ---- the client dies ---- */

/* Role: asks, reads as many messages of the answer as it is told, and dies there. */
ROLE(dying_client) {
    const task task = begin(socket);
    unsigned char request[REQUEST_SIZE(NAME)];
    const int client = connect_raw(task.order.path);
    write_request(request, NAME, &task.order.token);
    CHECK_EQ(send(client, request, task.asks, MSG_NOSIGNAL), (ssize_t)task.asks);
    for (size_t i = 0; i < task.step.messages; i++) wire_receive(client);
    step_die();
}

/* Role: fetches, opens if it is told to, says so and waits to be killed. */
ROLE(doomed_client) {
    const task task = begin(socket);
    kvmem_share *share = NULL;
    EXPECT_OK(fetch(&task.order, &share));
    if (task.step.opens) extents_open(share);
    say_there(socket);
    pause();
}

/* Role: fetches and opens, for as long as it is told to. */
ROLE(client) {
    while (frame_comes(socket)) {
        const task task = begin(socket);
        fetch_whole(&task.order, KVMEM_STATUS_OK);
        say_there(socket);
    }
}

typedef struct stall {
    shop shop;
    extents extents;
    kvmem_token token;
} stall;

static void stall_open(stall *stall) {
    extents_allow_files();
    extents_make(&stall->extents);
    shop_open(&stall->shop, NULL);
    const kvmem_share *share = stall->extents.share;
    EXPECT_OK(kvmem_broker_publish(stall->shop.broker, NAME, share, NULL, &stall->token, ERR));
}

/* What the broker was given, and nobody else has, can be taken back. */
static void stall_close(stall *stall) {
    EXPECT_OK(kvmem_broker_unpublish(stall->shop.broker, NAME, ERR));
    shop_await_clients(&stall->shop, 0);
    extents_check_free(&stall->extents);
    extents_give_up(&stall->extents);
    shop_close(&stall->shop);
}

static void serve_next(const stall *stall) {
    const peer customer = peer_in_common("client");
    const task task = task_of(stall->shop.path, &stall->token, &steps[0]);
    frame_send(customer.socket, TAG_TASK, &task, sizeof(task));
    await_there(&customer);
    shop_await_clients(&stall->shop, 0);
    CHECK_EQ(extents_importers(&stall->extents), 0);
}

TEST(a_client_killed_after_any_message_leaves_nothing) {
    static const size_t asks[] = {0, 1, WIRE_HEADER, REQUEST_SIZE(NAME) - 1, REQUEST_SIZE(NAME)};
    OPENED(stall, stall);
    serve_next(&stall);
    const survivor before = survivor_now();
    for (size_t i = 0; i < NUM(asks) + ALL; i++) {
        const step step = {i < NUM(asks) ? 0 : i - NUM(asks) + 1, 0, false};
        task task = task_of(stall.shop.path, &stall.token, &step);
        task.asks = asks[i < NUM(asks) ? i : NUM(asks) - 1];
        peer peer = start("dying_client", &task);
        peer_await_kill(&peer);
        serve_next(&stall);
        survivor_check(&before);
    }
}

TEST(a_client_killed_before_or_after_it_opens_holds_nothing) {
    OPENED(stall, stall);
    serve_next(&stall);
    const survivor before = survivor_now();
    for (int opens = 0; opens < 2; opens++) {
        const task task = task_of(stall.shop.path, &stall.token, &(step){ALL, 0, opens != 0});
        peer peer = start("doomed_client", &task);
        await_there(&peer);
        CHECK_EQ(extents_importers(&stall.extents), opens);
        peer_kill(&peer);
        CHECK_EQ(extents_importers(&stall.extents), 0);
        serve_next(&stall);
        survivor_check(&before);
    }
}

/* kvmem itself fetches there: it has read so much when it is killed, waiting for the rest. */
static void kill_client_at(int listener, const task *task, const wire *messages) {
    peer peer = start("doomed_client", task);
    CLEANUP(test_close) const int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(client >= 0);
    unsigned char request[REQUEST_SIZE(NAME)];
    CHECK_EQ(recv(client, request, sizeof(request), MSG_WAITALL), sizeof(request));
    step_send(client, messages, &task->step);
    step_await_read(client);
    if (task->step.messages == ALL) await_there(&peer);
    peer_kill(&peer);
}

TEST(what_a_client_had_when_it_was_killed_is_free) {
    OPENED(stall, stall);
    wire messages[ALL];
    CHECK_EQ(wire_capture_all(stall.extents.share, messages, ALL), ALL);
    const char *path = scratch_file(&stall.shop.directory, "another");
    const task first = task_of(path, &stall.token, &steps[0]);
    const int listener = listen_raw(first.order.path);
    serve_next(&stall);
    const survivor before = survivor_now();
    for (size_t i = 0; i < NUM_STEPS; i++) {
        task task = first;
        task.step = steps[i];
        kill_client_at(listener, &task, messages);
        CHECK_EQ(extents_importers(&stall.extents), 0);
        survivor_check(&before);
    }
    serve_next(&stall);
    close(listener);
    CHECK_EQ(unlink(first.order.path), 0);
    for (size_t i = 0; i < ALL; i++) wire_close(&messages[i]);
}

/* ---- the broker dies ---- */

/* Role: answers one client as far as it is told, as a broker would, and dies there. */
ROLE(dying_broker) {
    const task task = begin(socket);
    const int listener = listen_raw(task.order.path);
    extents extents;
    extents_make(&extents);
    wire messages[ALL];
    CHECK_EQ(wire_capture_all(extents.share, messages, ALL), ALL);
    say_there(socket);
    const int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(client >= 0);
    unsigned char request[REQUEST_SIZE(NAME)];
    CHECK_EQ(recv(client, request, sizeof(request), MSG_WAITALL), sizeof(request));
    step_send(client, messages, &task.step);
    step_die();
}

/* Role: a broker that lives, and says where it is and by what token. */
ROLE(broker) {
    OPENED(stall, stall);
    const task task = task_of(stall.shop.path, &stall.token, &steps[0]);
    frame_send(socket, TAG_TOKEN, &task.order, sizeof(task.order));
    CHECK(!frame_comes(socket));
}

static void fetch_step(const char *path, const step *step) {
    static const kvmem_token token;
    const task task = task_of(path, &token, step);
    peer peer = start("dying_broker", &task);
    await_there(&peer);
    if (step->messages == ALL) {
        kvmem_share *share = NULL;
        EXPECT_OK(fetch(&task.order, &share));
        peer_await_kill(&peer);
        OWNED(kvmem_layout) layout = extents_open(share); /* what is all there outlives its broker */
        CALL(kvmem_share_destroy(share));
        CHECK_EQ(extents_check_owner(layout), KVMEM_STATUS_PEER_LOST);
    } else {
        kvmem_share *share = (kvmem_share *)step;
        EXPECT_MESSAGE(KVMEM_STATUS_PEER_LOST, step_told(step), fetch(&task.order, &share));
        CHECK(share == NULL);
        peer_await_kill(&peer);
    }
    CHECK_EQ(unlink(path), 0);
}

TEST(a_broker_killed_at_any_step_is_lost) {
    extents_allow_files();
    keep_device();
    CLEANUP(peer_finish) peer lives = peer_start("broker");
    order order;
    frame_expect_into(lives.socket, TAG_TOKEN, &order, sizeof(order));
    SCRATCH_FILE(path, "broker");
    fetch_whole(&order, KVMEM_STATUS_OK);
    for (size_t i = 0; i < NUM_STEPS; i++) {
        const survivor before = survivor_now();
        fetch_step(path, &steps[i]);
        survivor_check(&before);
        fetch_whole(&order, KVMEM_STATUS_OK);
        survivor_check(&before);
    }
}

TEST_MAIN_ONCE
