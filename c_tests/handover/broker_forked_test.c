// SPDX-License-Identifier: Apache-2.0
// A broker whose process has forked and is then killed. The surviving child is not a broker: clients are
// disconnected at once, and another broker can use the path.
#include "server.h"

enum { TAG_TASK = 10, TAG_OPEN, TAG_FORK, TAG_FORKED };

typedef struct task {
    char path[160];
    uint32_t by_clone;
} task;

/* Role: a broker that forks on request, and waits to be killed. */
ROLE(forking_broker) {
    task task;
    frame_expect_into(socket, TAG_TASK, &task, sizeof(task));
    sample sample;
    sample_open(&sample);
    fetch_request request = {.name = "kv"};
    GET(kvmem_broker *, broker, kvmem_broker_create, REF(WITH(server_options(), it.path = task.path)));
    EXPECT_OK(kvmem_broker_publish(broker, "kv", sample.share, NULL, &request.token, ERR));
    memcpy(request.path, task.path, sizeof(request.path));
    frame_send(socket, TAG_OPEN, &request, sizeof(request));
    frame_await(socket, TAG_FORK);
    child_start(socket, task.by_clone != 0);
    frame_send(socket, TAG_FORKED, NULL, 0);
    pause();
}

static peer start_broker(const char *path, bool by_clone, fetch_request *request) {
    task task = {.by_clone = by_clone};
    CHECK(strlen(path) < sizeof(task.path));
    strcpy(task.path, path);
    const peer broker = peer_start("forking_broker");
    frame_send(broker.socket, TAG_TASK, &task, sizeof(task));
    frame_expect_into(broker.socket, TAG_OPEN, request, sizeof(*request));
    return broker;
}

/* Makes the broker fork, and kills the broker. The child lives until the returned file descriptor is
   closed. */
static int fork_and_kill(peer *broker) {
    frame_send(broker->socket, TAG_FORK, NULL, 0);
    frame_await(broker->socket, TAG_FORKED);
    const int child = fcntl(broker->socket, F_DUPFD_CLOEXEC, 0);
    CHECK(child >= 0);
    peer_kill(broker);
    return child;
}

static kvmem_status fetch(const fetch_request *request) {
    return TRIED(kvmem_share, kvmem_share_fetch, REF(request_options(request)), PATIENCE);
}

TEST(a_killed_broker_is_replaced_though_a_child_of_it_lives) {
    for (int by_clone = 0; by_clone < 2; by_clone++) {
        SCRATCH_FILE(path, "broker");
        fetch_request request;
        peer first = start_broker(path, by_clone != 0, &request);
        CHECK_EQ(fetch(&request), KVMEM_STATUS_OK);
        const int child = fork_and_kill(&first);
        EXPECT(KVMEM_STATUS_PEER_LOST, fetch(&request));
        peer second = start_broker(path, false, &request);
        CHECK_EQ(fetch(&request), KVMEM_STATUS_OK);
        close(child);
        peer_kill(&second);
        CHECK_EQ(unlink(path), 0);
    }
}

/* Role: another program that listens at a path, forks and ends; its child serves clients. */
ROLE(forking_program) {
    task task;
    frame_expect_into(socket, TAG_TASK, &task, sizeof(task));
    listen_raw(task.path);
    frame_send(socket, TAG_OPEN, NULL, 0);
    frame_await(socket, TAG_FORK);
    child_start(socket, task.by_clone != 0);
    frame_send(socket, TAG_FORKED, NULL, 0);
    pause();
}

TEST(a_program_that_listens_by_a_child_keeps_its_path) {
    SCRATCH_FILE(path, "program");
    task task = {0};
    CHECK(strlen(path) < sizeof(task.path));
    strcpy(task.path, path);
    peer program = peer_start("forking_program");
    frame_send(program.socket, TAG_TASK, &task, sizeof(task));
    frame_await(program.socket, TAG_OPEN);
    const int child = fork_and_kill(&program);
    REFUSE(KVMEM_STATUS_ALREADY_EXISTS, "a child of process", kvmem_broker_create,
           REF(WITH(server_options(), it.path = path)));
    close(connect_raw(path));
    close(child);
    CHECK_EQ(unlink(path), 0);
}

/* The child neither reads the clients' requests nor keeps their connections open. */
TEST(a_child_of_a_killed_broker_keeps_no_client_connected) {
    SCRATCH_FILE(path, "broker");
    fetch_request request;
    peer broker = start_broker(path, false, &request);
    const int client = connect_raw(path);
    CHECK_EQ(fetch(&request), KVMEM_STATUS_OK); /* proves that the client above was accepted */
    const int child = fork_and_kill(&broker);
    struct pollfd end = {.fd = client, .events = POLLIN};
    CHECK_EQ(poll(&end, 1, PATIENCE_MS), 1);
    char byte;
    const ssize_t received = recv(client, &byte, 1, 0);
    CHECK(received == 0 || (received < 0 && errno == ECONNRESET));
    close(client);
    close(child);
    CHECK_EQ(unlink(path), 0);
}
