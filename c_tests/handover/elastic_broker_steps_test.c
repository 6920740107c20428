// SPDX-License-Identifier: Apache-2.0
// A broker sends elastic memory in several messages. One side is killed after and within each message: the
// other side gets an error, leaks nothing, and completes the next fetch. Needs the stand-in driver.
#include "server.h"
#include "caller_context.h"
#include "steps.h"
#include "survivor.h"

enum { TAG_TASK = 10, TAG_TOKEN, TAG_READY };

#define NAME "elastic"

/* The task of a peer. */
typedef struct task {
    fetch_request request;
    step step;
    size_t sends; /* bytes of its request that the client sends */
} task;

static task task_of(const char *path, const kvmem_token *token, const step *step) {
    task task = {.request = {.name = NAME, .token = *token}, .step = *step, .sends = REQUEST_SIZE(NAME)};
    CHECK(strlen(path) < sizeof(task.request.path));
    strcpy(task.request.path, path);
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

static void report_ready(int socket) { frame_send(socket, TAG_READY, NULL, 0); }

static void await_ready(const peer *peer) { frame_await(peer->socket, TAG_READY); }

static kvmem_status fetch(const fetch_request *request, kvmem_share **share) {
    const kvmem_fetch_options options = request_options(request);
    return kvmem_share_fetch(&options, PATIENCE, share, ERR);
}

static void fetch_whole(const fetch_request *request, kvmem_status owner) {
    kvmem_share *share = NULL;
    EXPECT_OK(fetch(request, &share));
    OWNED(kvmem_layout) layout = extents_import(share);
    CALL(kvmem_share_destroy(share));
    CHECK_EQ(extents_check_owner(layout), owner);
}

/* ---- the client is killed ---- */

/* Role: sends a request, reads some messages of the reply, and dies. */
ROLE(dying_client) {
    const task task = begin(socket);
    unsigned char request[REQUEST_SIZE(NAME)];
    const int client = connect_raw(task.request.path);
    write_request(request, NAME, &task.request.token);
    CHECK_EQ(send(client, request, task.sends, MSG_NOSIGNAL), (ssize_t)task.sends);
    for (size_t i = 0; i < task.step.messages; i++) wire_receive(client);
    step_die();
}

/* Role: fetches, opens the share if the step says so, reports that and waits to be killed. */
ROLE(importing_client) {
    const task task = begin(socket);
    kvmem_share *share = NULL;
    EXPECT_OK(fetch(&task.request, &share));
    if (task.step.opens) extents_import(share);
    report_ready(socket);
    pause();
}

/* Role: fetches and opens once per task. */
ROLE(client) {
    while (frame_arrives(socket)) {
        const task task = begin(socket);
        fetch_whole(&task.request, KVMEM_STATUS_OK);
        report_ready(socket);
    }
}

typedef struct provider {
    server server;
    extents extents;
    kvmem_token token;
} provider;

static void provider_open(provider *provider) {
    extents_allow_files();
    extents_open(&provider->extents);
    server_open(&provider->server, NULL);
    const kvmem_share *share = provider->extents.share;
    EXPECT_OK(kvmem_broker_publish(provider->server.broker, NAME, share, NULL, &provider->token, ERR));
}

/* Only the broker has held the extents, so they can be decommitted. */
static void provider_close(provider *provider) {
    EXPECT_OK(kvmem_broker_unpublish(provider->server.broker, NAME, ERR));
    server_await_clients(&provider->server, 0);
    extents_check_free(&provider->extents);
    extents_close(&provider->extents);
    server_close(&provider->server);
}

static void serve_next(const provider *provider) {
    const peer fetching_client = peer_shared("client");
    const task task = task_of(provider->server.path, &provider->token, &steps[0]);
    frame_send(fetching_client.socket, TAG_TASK, &task, sizeof(task));
    await_ready(&fetching_client);
    server_await_clients(&provider->server, 0);
    CHECK_EQ(extents_importers(&provider->extents), 0);
}

TEST(a_client_killed_after_any_message_leaks_nothing) {
    static const size_t sends[] = {0, 1, WIRE_HEADER, REQUEST_SIZE(NAME) - 1, REQUEST_SIZE(NAME)};
    OPENED(provider, provider);
    serve_next(&provider);
    const survivor before = survivor_now();
    for (size_t i = 0; i < NUM(sends) + ALL; i++) {
        const step step = {i < NUM(sends) ? 0 : i - NUM(sends) + 1, 0, false};
        task task = task_of(provider.server.path, &provider.token, &step);
        task.sends = sends[i < NUM(sends) ? i : NUM(sends) - 1];
        peer peer = start("dying_client", &task);
        peer_await_kill(&peer);
        serve_next(&provider);
        survivor_check(&before);
    }
}

TEST(a_client_killed_before_or_after_opening_is_not_counted) {
    OPENED(provider, provider);
    serve_next(&provider);
    const survivor before = survivor_now();
    for (int opens = 0; opens < 2; opens++) {
        const task task = task_of(provider.server.path, &provider.token, &(step){ALL, 0, opens != 0});
        peer peer = start("importing_client", &task);
        await_ready(&peer);
        CHECK_EQ(extents_importers(&provider.extents), opens);
        peer_kill(&peer);
        CHECK_EQ(extents_importers(&provider.extents), 0);
        serve_next(&provider);
        survivor_check(&before);
    }
}

/* The client runs kvmem_share_fetch. It has read `step` of the messages, and waits for the rest, when it is
   killed. */
static void kill_client_at(int listener, const task *task, const wire *messages) {
    peer peer = start("importing_client", task);
    CLEANUP(test_close) const int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(client >= 0);
    unsigned char request[REQUEST_SIZE(NAME)];
    CHECK_EQ(recv(client, request, sizeof(request), MSG_WAITALL), sizeof(request));
    step_send(client, messages, &task->step);
    step_await_read(client);
    if (task->step.messages == ALL) await_ready(&peer);
    peer_kill(&peer);
}

TEST(the_imports_of_a_killed_client_are_released) {
    OPENED(provider, provider);
    wire messages[ALL];
    CHECK_EQ(wire_capture_all(provider.extents.share, messages, ALL), ALL);
    const char *path = scratch_file(&provider.server.directory, "another");
    const task first = task_of(path, &provider.token, &steps[0]);
    const int listener = listen_raw(first.request.path);
    serve_next(&provider);
    const survivor before = survivor_now();
    for (size_t i = 0; i < NUM_STEPS; i++) {
        task task = first;
        task.step = steps[i];
        kill_client_at(listener, &task, messages);
        CHECK_EQ(extents_importers(&provider.extents), 0);
        survivor_check(&before);
    }
    serve_next(&provider);
    close(listener);
    CHECK_EQ(unlink(first.request.path), 0);
    for (size_t i = 0; i < ALL; i++) wire_close(&messages[i]);
}

/* ---- the broker is killed ---- */

/* Role: serves one client as a broker would, up to a step, and dies. */
ROLE(dying_broker) {
    const task task = begin(socket);
    const int listener = listen_raw(task.request.path);
    extents extents;
    extents_open(&extents);
    wire messages[ALL];
    CHECK_EQ(wire_capture_all(extents.share, messages, ALL), ALL);
    report_ready(socket);
    const int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(client >= 0);
    unsigned char request[REQUEST_SIZE(NAME)];
    CHECK_EQ(recv(client, request, sizeof(request), MSG_WAITALL), sizeof(request));
    step_send(client, messages, &task.step);
    step_die();
}

/* Role: a broker that is not killed. It sends its path and token. */
ROLE(broker) {
    OPENED(provider, provider);
    const task task = task_of(provider.server.path, &provider.token, &steps[0]);
    frame_send(socket, TAG_TOKEN, &task.request, sizeof(task.request));
    CHECK(!frame_arrives(socket));
}

static void fetch_step(const char *path, const step *step) {
    static const kvmem_token token;
    const task task = task_of(path, &token, step);
    peer peer = start("dying_broker", &task);
    await_ready(&peer);
    if (step->messages == ALL) {
        kvmem_share *share = NULL;
        EXPECT_OK(fetch(&task.request, &share));
        peer_await_kill(&peer);
        OWNED(kvmem_layout) layout = extents_import(share); /* a complete share outlives its broker */
        CALL(kvmem_share_destroy(share));
        CHECK_EQ(extents_check_owner(layout), KVMEM_STATUS_PEER_LOST);
    } else {
        kvmem_share *share = (kvmem_share *)step;
        EXPECT_MESSAGE(KVMEM_STATUS_PEER_LOST, step_error(step), fetch(&task.request, &share));
        CHECK(share == NULL);
        peer_await_kill(&peer);
    }
    CHECK_EQ(unlink(path), 0);
}

TEST(a_fetch_from_a_broker_killed_at_any_step_fails) {
    extents_allow_files();
    keep_device();
    CLEANUP(peer_finish) peer lives = peer_start("broker");
    fetch_request request;
    frame_expect_into(lives.socket, TAG_TOKEN, &request, sizeof(request));
    SCRATCH_FILE(path, "broker");
    fetch_whole(&request, KVMEM_STATUS_OK);
    for (size_t i = 0; i < NUM_STEPS; i++) {
        const survivor before = survivor_now();
        fetch_step(path, &steps[i]);
        survivor_check(&before);
        fetch_whole(&request, KVMEM_STATUS_OK);
        survivor_check(&before);
    }
}

TEST_MAIN_ONCE
