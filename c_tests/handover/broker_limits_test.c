// SPDX-License-Identifier: Apache-2.0
// Limits on the clients of a broker, and what clients receive when a share is unpublished or the broker is
// destroyed.
#include "server.h"

CLIENT_ROLE

#define THREADS 16
#define ROUNDS 30

/* A client that has requested a large share, and whose socket buffer is full. */
static int start_reading(const server *server, const kvmem_token *token) {
    const int client = ask_raw(server->path, "large", token, WHOLE_REQUEST);
    struct pollfd readable = {.fd = client, .events = POLLIN};
    CHECK_EQ(poll(&readable, 1, PATIENCE_MS), 1);
    return client;
}

static void publish_large(const server *server, large_share *large, kvmem_token *token) {
    large_share_open_parts(large);
    EXPECT_OK(kvmem_broker_publish(server->broker, "large", large->share, NULL, token, ERR));
}

TEST(the_number_of_clients_of_a_user_is_limited) {
    const uint32_t users[] = {(uint32_t)geteuid(), NOBODY_UID};
    kvmem_broker_options options = WITH(server_options(), it.users = users, it.num_users = NUM(users),
                                        it.mode = 0666);
    options.max_clients = 4; /* two per user */
    OPENED(server, server, &options);
    const int stalled[] = {connect_raw(server.path), connect_raw(server.path)};
    server_await_clients(&server, NUM(stalled));
    fetch_request request = request_of(&server);
    client_expect(&request, KVMEM_STATUS_BUSY, "2 clients");
    if (can_test_other_users("the part of another user")) { /* each user has a limit of its own */
        request.user = NOBODY_UID;
        request.flags = KVMEM_FETCH_BROKER_USER;
        client_expect(&request, KVMEM_STATUS_OK, "");
    }
    close(stalled[0]);
    server_await_clients(&server, 1);
    server_check_service(&server);
    close(stalled[1]);
}

TEST(the_bytes_in_flight_to_a_user_are_limited) {
    OPENED(server, server, REF(WITH(server_options(), it.max_bytes_per_user = 1)));
    kvmem_token token;
    CLEANUP(large_share_close) large_share large;
    publish_large(&server, &large, &token);
    const int reader = start_reading(&server, &token); /* one reply is sent whatever its size */
    fetch_request request = request_of(&server);
    kvmem_publish_options once = {.struct_size = sizeof(once), .max_uses = 1};
    EXPECT_OK(kvmem_broker_grant(server.broker, "kv", &once, &request.token, ERR));
    client_expect(&request, KVMEM_STATUS_BUSY, "bytes");
    close(reader);
    server_await_clients(&server, 0);
    client_expect(&request, KVMEM_STATUS_OK, ""); /* BUSY has not used the token */
}

TEST(clients_of_a_full_broker_wait) {
    OPENED(server, server, REF(WITH(server_options(), it.max_clients = 2)));
    const int stalled[] = {connect_raw(server.path), connect_raw(server.path)};
    server_await_clients(&server, NUM(stalled));
    const fetch_request request = request_of(&server);
    const kvmem_fetch_options fetch = request_options(&request);
    kvmem_share *share = NULL;
    for (int i = 0; i < 8; i++) { /* first in the kernel's queue, then not even connected */
        EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_share_fetch(&fetch, MILLISECONDS(10), &share, ERR));
        CHECK(share == NULL);
    }
    close(stalled[0]);
    close(stalled[1]);
    server_check_service(&server);
}

/* The kernel keeps what they were sent, and the broker their connections. */
TEST(clients_that_do_not_read_count_until_their_time_ends) {
    kvmem_broker_options options = WITH(server_options(), it.max_clients = 2);
    options.client_timeout_ns = SECONDS(1);
    OPENED(server, server, &options);
    const int unread[] = {ask_raw(server.path, "kv", &server.token, WHOLE_REQUEST),
                          ask_raw(server.path, "kv", &server.token, WHOLE_REQUEST)};
    while (server_info(&server).granted < NUM(unread)) sched_yield();
    CHECK_EQ(server_info(&server).clients, NUM(unread));
    server_check_service(&server); /* waits until it is accepted */
    CHECK(server_info(&server).clients >= NUM(unread));
    close(unread[0]);
    close(unread[1]);
    server_await_clients(&server, 0);
}

static atomic_int failed_waits;
static void count_failed_waits(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level, (void)target, (void)user_data;
    failed_waits += strstr(message, "cannot wait for its clients") != NULL;
}

/* The kernel refuses to wait for more files than the process may open now. */
TEST(a_broker_that_cannot_wait_for_its_clients_tries_again) {
    OPENED(server, server, REF(server_options()));
    int clients[8];
    for (size_t i = 0; i < NUM(clients); i++) clients[i] = connect_raw(server.path);
    server_await_clients(&server, NUM(clients));
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_WARN, count_failed_waits, NULL, ERR));
    struct rlimit before;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit few = {.rlim_cur = NUM(clients), .rlim_max = before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    CHECK_EQ(write(clients[0], "K", 1), 1);
    while (failed_waits == 0) sched_yield();
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (size_t i = 0; i < NUM(clients); i++) close(clients[i]);
    server_check_service(&server);
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    server_await_clients(&server, 0);
}

TEST(a_share_unpublished_while_it_is_sent_still_arrives) {
    KEEPS_FILES;
    OPENED(server, server, NULL);
    large_share large;
    fetch_request request = request_of(&server);
    strcpy(request.name, "large");
    publish_large(&server, &large, &request.token);
    const int reader = start_reading(&server, &request.token);
    EXPECT_OK(kvmem_broker_unpublish(server.broker, "large", ERR));
    client_expect(&request, KVMEM_STATUS_PERMISSION_DENIED, "not published");
    /* Only the reply to the client holds the share now. */
    large_share_close(&large);
    GET(kvmem_share *, share, kvmem_share_receive, reader, PATIENCE);
    CHECK_EQ(share_info(share).object, KVMEM_SHARED_LAYOUT);
    kvmem_share_destroy(share);
    close(reader);
    server_await_clients(&server, 0);
}

static fetch_request thread_request;
static atomic_int outcomes[2]; /* successful, denied */

static void *fetch_once(void *unused) {
    (void)unused;
    OWNED(kvmem_share) share = NULL;
    const kvmem_status status = kvmem_share_fetch(REF(request_options(&thread_request)), PATIENCE, &share, NULL);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_PERMISSION_DENIED);
    atomic_fetch_add(&outcomes[status != KVMEM_STATUS_OK], 1);
    return NULL;
}

static void start_fetching(threads *threads) {
    atomic_store(&outcomes[0], 0);
    atomic_store(&outcomes[1], 0);
    threads_start(threads, THREADS, fetch_once, NULL, 0);
}

static void end_fetching(threads *threads) {
    threads_join(threads);
    CHECK_EQ(outcomes[0] + outcomes[1], THREADS);
}

TEST(concurrent_fetches_do_not_exceed_the_uses_of_a_token) {
    OPENED(server, server, NULL);
    thread_request = request_of(&server);
    const kvmem_publish_options thrice = {.struct_size = sizeof(thrice), .max_uses = 3};
    EXPECT_OK(kvmem_broker_grant(server.broker, "kv", &thrice, &thread_request.token, ERR));
    threads threads;
    start_fetching(&threads);
    end_fetching(&threads);
    CHECK_EQ(outcomes[0], 3);
}

TEST(unpublish_runs_concurrently_with_fetches) {
    KEEPS_FILES;
    OPENED(server, server, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        threads threads;
        thread_request = request_published(&server, "fleeting", server.sample.share);
        start_fetching(&threads);
        EXPECT_OK(kvmem_broker_unpublish(server.broker, "fleeting", ERR));
        end_fetching(&threads);
    }
    CHECK_EQ(region_holders(server.sample.region).shares, 1);
    server_check_service(&server);
}

static void *fetch_until_lost(void *unused) {
    (void)unused;
    kvmem_share *share = NULL;
    const kvmem_status status = kvmem_share_fetch(REF(request_options(&thread_request)), PATIENCE, &share, NULL);
    /* PEER_LOST: it was connected. NOT_FOUND: the path was already removed. */
    CHECK(status == KVMEM_STATUS_PEER_LOST || status == KVMEM_STATUS_NOT_FOUND);
    CHECK(share == NULL);
    return NULL;
}

/* Reads to the end of the stream. A client whose request was not read gets ECONNRESET. */
static void expect_end(int client) {
    char rest[4096];
    ssize_t size = 1;
    while (size > 0) size = recv(client, rest, sizeof(rest), 0);
    CHECK(size == 0 || errno == ECONNRESET);
    close(client);
}

TEST(destroying_a_broker_disconnects_its_clients) {
    KEEPS_FILES;
    OPENED(server, server, REF(WITH(server_options(), it.max_clients = 4)));
    large_share large;
    kvmem_token token;
    publish_large(&server, &large, &token);
    const int clients[] = {start_reading(&server, &token), connect_raw(server.path),
                           server_connect(&server, 20),
                           server_connect(&server, 60)};
    server_await_clients(&server, NUM(clients));
    /* The broker has no slot for these clients, so they wait. */
    thread_request = request_of(&server);
    threads waiting;
    threads_start(&waiting, 3, fetch_until_lost, NULL, 0);
    const int queued = connect_raw(server.path);
    large_share_close(&large);
    DESTROYED(kvmem_broker, server.broker);
    threads_join(&waiting);
    for (size_t i = 0; i < NUM(clients); i++) expect_end(clients[i]);
    expect_end(queued);
}
