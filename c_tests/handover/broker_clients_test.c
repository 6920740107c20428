// SPDX-License-Identifier: Apache-2.0
// Many concurrent clients of a broker, and clients and brokers that stall or are killed at any step.
#include "server.h"

CLIENT_ROLE

#define FETCHING_PROCESSES 8
#define THREADS_PER_PROCESS 25
#define BAD_CLIENTS 80

enum { TAG_REQUEST = 10, TAG_STEP, TAG_READY, TAG_GO_ON, TAG_TOKEN };

static fetch_request receive_request(int socket) {
    fetch_request request;
    frame_expect_into(socket, TAG_REQUEST, &request, sizeof(request));
    return request;
}

static peer start(const char *role, const fetch_request *request) {
    peer peer = peer_start(role);
    frame_send(peer.socket, TAG_REQUEST, request, sizeof(*request));
    return peer;
}

static fetch_request process_request;
static pthread_barrier_t start_barrier;

static void *fetch_after_barrier(void *unused) {
    (void)unused;
    pthread_barrier_wait(&start_barrier);
    OWN(kvmem_share, share, kvmem_share_fetch, REF(request_options(&process_request)), PATIENCE);
    OWNED(kvmem_region) region = sample_import(share);
    return NULL;
}

/* Role: many threads that fetch at the same time. */
ROLE(fetching_process) {
    process_request = receive_request(socket);
    threads threads;
    CHECK_EQ(pthread_barrier_init(&start_barrier, NULL, THREADS_PER_PROCESS + 1), 0);
    threads_start(&threads, THREADS_PER_PROCESS, fetch_after_barrier, NULL, 0);
    frame_send(socket, TAG_READY, NULL, 0);
    frame_await(socket, TAG_GO_ON);
    pthread_barrier_wait(&start_barrier);
    threads_join(&threads);
}

/* Clients that connect, send a part of a request or invalid bytes, and stay connected. */
static void connect_bad_clients(const server *server, int clients[BAD_CLIENTS]) {
    unsigned char request[REQUEST_SIZE("kv")];
    write_request(request, "kv", &server->token);
    for (size_t i = 0; i < BAD_CLIENTS; i++) {
        clients[i] = connect_raw(server->path);
        const size_t part = i % sizeof(request);
        request[0] = i % 2 == 0 ? 'K' : 'x';
        CHECK_EQ(send(clients[i], request, part, MSG_NOSIGNAL), (ssize_t)part);
    }
}

TEST(two_hundred_clients_at_once_are_served) {
    int bad_clients[BAD_CLIENTS];
    OPENED(server, server, NULL);
    const fetch_request request = request_of(&server);
    peer processes[FETCHING_PROCESSES];
    for (size_t i = 0; i < FETCHING_PROCESSES; i++) processes[i] = start("fetching_process", &request);
    for (size_t i = 0; i < FETCHING_PROCESSES; i++) free(frame_expect(processes[i].socket, TAG_READY).data);
    connect_bad_clients(&server, bad_clients);
    for (size_t i = 0; i < FETCHING_PROCESSES; i++) frame_send(processes[i].socket, TAG_GO_ON, NULL, 0);
    for (size_t i = 0; i < FETCHING_PROCESSES; i++) peer_finish(&processes[i]);
    CHECK_EQ(server_info(&server).granted, FETCHING_PROCESSES * THREADS_PER_PROCESS);
    for (size_t i = 0; i < BAD_CLIENTS; i++) close(bad_clients[i]);
    server_await_clients(&server, 0);
}

/* How many bytes a client has sent and read when it stops. */
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
    {"in the reply", REQUEST_SIZE("many"), 100},
};

/* Role: performs one step, and stops. */
ROLE(stopping_client) {
    const fetch_request request = receive_request(socket);
    step step;
    frame_expect_into(socket, TAG_STEP, &step, sizeof(step));
    const int client = ask_raw(request.path, "many", &request.token, step.sent);
    char reply[100];
    /* recv of 0 bytes would still wait for data. */
    CHECK(step.read == 0 || recv(client, reply, step.read, MSG_WAITALL) == (ssize_t)step.read);
    frame_send(socket, TAG_READY, NULL, 0);
    pause();
}

TEST(a_client_killed_at_any_step_is_disconnected) {
    KEEPS_FILES;
    OPENED(server, server, NULL);
    OPENED(large_share, many, 20);
    const fetch_request request = request_published(&server, "many", many.share);
    const size_t open = count_open_files();
    for (size_t i = 0; i < NUM(steps); i++) {
        peer peer = start("stopping_client", &request);
        frame_send(peer.socket, TAG_STEP, &steps[i], sizeof(steps[i]));
        frame_await(peer.socket, TAG_READY);
        server_check_service(&server);
        peer_kill(&peer);
        server_check_service(&server);
        server_await_clients(&server, 0);
        test_check_equal(__FILE__, __LINE__, steps[i].name, (long long)count_open_files(), (long long)open);
    }
}

TEST(an_importer_killed_after_its_fetch_is_not_counted) {
    OPENED(server, server, NULL);
    const fetch_request request = request_of(&server);
    fetch_result result;
    peer peer = client_start(&request, &result);
    CHECK_EQ(result.status, KVMEM_STATUS_OK);
    CHECK_EQ(region_holders(server.sample.region).importers, 1);
    peer_kill(&peer);
    CHECK_EQ(region_holders(server.sample.region).importers, 0);
}

/* The broker sends the reason before it closes the connection. */
static void expect_timed_out(int client) {
    char reply[2000];
    const ssize_t size = recv(client, reply, sizeof(reply), MSG_WAITALL);
    CHECK(size > 44);
    int32_t status = 0;
    memcpy(&status, reply + 40, sizeof(status));
    CHECK_EQ(status, KVMEM_STATUS_TIMED_OUT);
    close(client);
}

TEST(stalled_clients_time_out_while_others_are_served) {
    OPENED(server, server, REF(WITH(server_options(), it.client_timeout_ns = SECONDS(2))));
    int stalled[100];
    for (size_t i = 0; i < NUM(stalled); i++) stalled[i] = server_connect(&server, i % REQUEST_SIZE("kv"));
    for (int i = 0; i < 20; i++) server_check_service(&server);
    for (size_t i = 0; i < NUM(stalled); i++) expect_timed_out(stalled[i]);
    server_await_clients(&server, 0);
    CHECK_EQ(server_info(&server).refused, NUM(stalled));
}

TEST(invalid_requests_fail_and_the_broker_continues) {
    OPENED(server, server, NULL);
    unsigned seed = 4;
    for (int i = 0; i < 300; i++) {
        unsigned char invalid[400];
        size_t size = 40 + (size_t)rand_r(&seed) % 360;
        for (size_t j = 0; j < size; j++) invalid[j] = (unsigned char)rand_r(&seed);
        if (i % 2 == 0) {
            size = REQUEST_SIZE("kv");
            write_request(invalid, "kv", &server.token);
            invalid[(size_t)rand_r(&seed) % size] ^= (unsigned char)(1 + rand_r(&seed) % 255);
        }
        CLEANUP(test_close) const int client = connect_raw(server.path);
        CHECK_EQ(send(client, invalid, size, MSG_NOSIGNAL), (ssize_t)size);
        char reply[44];
        CHECK_EQ(recv(client, reply, sizeof(reply), MSG_WAITALL), (ssize_t)sizeof(reply));
        CHECK_EQ(reply[10], 3);
    }
    server_check_service(&server);
}

/* Role: a broker. */
ROLE(serve) {
    const fetch_request request = receive_request(socket);
    server server;
    sample_open(&server.sample);
    EXPECT_OK(kvmem_broker_create(REF(WITH(server_options(), it.path = request.path)), &server.broker, ERR));
    EXPECT_OK(kvmem_broker_publish(server.broker, "kv", server.sample.share, NULL, &server.token, ERR));
    frame_send(socket, TAG_TOKEN, &server.token, sizeof(server.token));
    pause();
}

TEST(fetched_shares_outlive_a_killed_broker) {
    SCRATCH(directory);
    fetch_request request = {.name = "kv"};
    snprintf(request.path, sizeof(request.path), "%s", scratch_file(&directory, "broker"));
    peer peer = start("serve", &request);
    frame_expect_into(peer.socket, TAG_TOKEN, &request.token, sizeof(request.token));
    const kvmem_fetch_options options = request_options(&request);
    GET(kvmem_share *, first, kvmem_share_fetch, &options, PATIENCE);
    GET(kvmem_share *, second, kvmem_share_fetch, &options, PATIENCE);
    kvmem_region *opened = sample_import(first);
    peer_kill(&peer);

    EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_region_check_owner(opened, ERR));
    sample_check(opened);
    kvmem_region_destroy(opened);
    /* A share that was fetched but not opened also keeps the memory. */
    opened = sample_import(second);
    EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_region_check_owner(opened, ERR));
    kvmem_region_destroy(opened);
    REFUSE(KVMEM_STATUS_PEER_LOST, "", kvmem_share_fetch, &options, PATIENCE);
    kvmem_share_destroy(first);
    kvmem_share_destroy(second);

    /* A new broker replaces the socket file of the killed one. */
    GET(kvmem_broker *, broker, kvmem_broker_create, REF(WITH(server_options(), it.path = request.path)));
    kvmem_broker_destroy(broker);
    CHECK_EQ(count_directory_entries(directory.path), 0);
}
