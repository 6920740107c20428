// SPDX-License-Identifier: Apache-2.0
// A broker that sends invalid bytes, a truncated or damaged reply, or nothing, or that is killed at any step.
// A fetch from it fails within its timeout and leaks nothing.
#include "server.h"

enum { TAG_STEP = 10, TAG_LISTENING, TAG_THERE };

static void read_request(int client, size_t size) {
    char request[REQUEST_SIZE("kv")];
    CHECK(size <= sizeof(request));
    CHECK(size == 0 || recv(client, request, size, MSG_WAITALL) == (ssize_t)size);
}

/* The broker's side in this process: a thread that serves one client after the other. */
typedef struct fixture {
    scratch directory;
    char path[160];
    int listener;
    sample sample;
    wire reply;
    size_t files;
} fixture;

static void fixture_open(fixture *fixture) {
    fixture->directory = scratch_create(temporary_directory());
    snprintf(fixture->path, sizeof(fixture->path), "%s", scratch_file(&fixture->directory, "broker"));
    fixture->listener = listen_raw(fixture->path);
    sample_open(&fixture->sample);
    fixture->reply = wire_capture(fixture->sample.share);
    fixture->files = count_open_files();
}

static void fixture_close(fixture *fixture) {
    CHECK_EQ(count_open_files(), fixture->files);
    wire_close(&fixture->reply);
    sample_close(&fixture->sample);
    close(fixture->listener);
    CHECK_EQ(unlink(fixture->path), 0);
    scratch_remove(&fixture->directory);
}

/* What one client is sent. */
typedef struct served {
    int listener;
    const wire *reply;
    size_t size;
    size_t num_fds;
} served;

static void *serve_one(void *argument) {
    const served *served = argument;
    CLEANUP(test_close) const int client = accept4(served->listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(client >= 0);
    read_request(client, REQUEST_SIZE("kv"));
    if (served->size > 0) wire_send(client, served->reply, served->size, served->num_fds);
    return NULL;
}

static kvmem_status fetch(const char *path, uint64_t timeout_ns) {
    static const kvmem_token token;
    const kvmem_fetch_options options = OPTIONS(kvmem_fetch_options, it.path = path, it.name = "kv",
                                                it.token = &token);
    OWNED(kvmem_share) share = (kvmem_share *)&options;
    const kvmem_status status = kvmem_share_fetch(&options, timeout_ns, &share, ERR);
    CHECK((share != NULL) == (status == KVMEM_STATUS_OK));
    return status;
}

static kvmem_status fetch_reply(const fixture *fixture, const wire *reply, size_t size, size_t num_fds) {
    served served = {fixture->listener, reply, size, num_fds};
    threads broker;
    threads_start(&broker, 1, serve_one, &served, sizeof(served));
    const kvmem_status status = fetch(fixture->path, PATIENCE);
    threads_join(&broker);
    return status;
}

static void expect_error(kvmem_status status, const char *what, size_t which) {
    const bool is_right = status == KVMEM_STATUS_CORRUPT || status == KVMEM_STATUS_VERSION_MISMATCH ||
                          status == KVMEM_STATUS_PEER_LOST;
    if (!is_right) FAIL("%s %zu: got %s: %s", what, which, kvmem_status_name(status), test_last_message());
}

TEST(a_valid_reply_is_accepted) {
    OPENED(fixture, fixture);
    const wire *reply = &fixture.reply;
    CHECK_EQ(fetch_reply(&fixture, reply, reply->size, reply->num_fds), KVMEM_STATUS_OK);
}

TEST(random_bytes_fail) {
    OPENED(fixture, fixture);
    unsigned seed = 7;
    for (size_t i = 0; i < 300; i++) {
        CLEANUP(wire_free_copy) wire random = wire_copy(&fixture.reply);
        for (size_t j = i % 3 == 0 ? 8 : 0; j < random.size; j++)
            random.bytes[j] = (unsigned char)rand_r(&seed);
        const size_t size = 1 + (size_t)rand_r(&seed) % random.size;
        expect_error(fetch_reply(&fixture, &random, size, i % 2 * random.num_fds), "random", i);
    }
}

TEST(a_truncated_reply_fails) {
    OPENED(fixture, fixture);
    const wire *reply = &fixture.reply;
    for (size_t size = 0; size < reply->size; size++)
        expect_error(fetch_reply(&fixture, reply, size, size > 0 ? reply->num_fds : 0), "cut at", size);
    expect_error(fetch_reply(&fixture, reply, reply->size, 0), "without descriptors, of", reply->size);
}

TEST(a_reply_with_a_flipped_bit_fails) {
    OPENED(fixture, fixture);
    for (size_t i = 0; i < fixture.reply.size; i++) {
        CLEANUP(wire_free_copy) wire flipped = wire_copy(&fixture.reply);
        flipped.bytes[i] ^= (unsigned char)(1 << i % 8);
        expect_error(fetch_reply(&fixture, &flipped, flipped.size, flipped.num_fds), "flipped at", i);
    }
}

TEST(a_request_is_not_accepted_as_a_reply) {
    OPENED(fixture, fixture);
    CLEANUP(wire_free_copy) wire request = wire_copy(&fixture.reply);
    static const kvmem_token token;
    write_request(request.bytes, "kv", &token);
    CHECK_EQ(fetch_reply(&fixture, &request, REQUEST_SIZE("kv"), 0), KVMEM_STATUS_CORRUPT);
    CHECK_HAS(test_last_message(), "request");
}

TEST(a_fetch_from_a_silent_broker_times_out) {
    OPENED(fixture, fixture);
    const int64_t times[] = {0, 1, INT64_C(50000000)};
    for (size_t i = 0; i < NUM(times); i++) {
        CHECK_EQ(fetch(fixture.path, times[i]), KVMEM_STATUS_TIMED_OUT);
        const int client = accept4(fixture.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        CHECK(client < 0 || close(client) == 0);
    }
}

/* How many bytes a broker reads and sends before it is killed. */
typedef struct step {
    char path[160];
    bool reads;
    size_t sends; /* bytes of its reply; SIZE_MAX: all but the last */
} step;
static const step steps[] = {
    {.reads = false}, {.reads = true}, {"", true, WIRE_HEADER / 2}, {"", true, WIRE_HEADER}, {"", true,
                                                                                              SIZE_MAX},
};

/* Role: a broker that performs one step and is killed. */
ROLE(dying_broker) {
    step step;
    frame_expect_into(socket, TAG_STEP, &step, sizeof(step));
    const int listener = listen_raw(step.path);
    sample sample;
    sample_open(&sample);
    const wire reply = wire_capture(sample.share);
    frame_send(socket, TAG_LISTENING, NULL, 0);
    const int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(client >= 0);
    read_request(client, step.reads ? REQUEST_SIZE("kv") : 0);
    if (step.sends > 0) {
        const size_t size = step.sends == SIZE_MAX ? reply.size - 1 : step.sends;
        wire_send(client, &reply, size, reply.num_fds);
    }
    frame_send(socket, TAG_THERE, NULL, 0);
    pause();
}

typedef struct fetching {
    const char *path;
    kvmem_status status;
} fetching;

static void *fetch_without_timeout(void *argument) {
    fetching *fetching = argument;
    fetching->status = fetch(fetching->path, PATIENCE);
    test_forget_error();
    return NULL;
}

TEST(a_fetch_from_a_broker_killed_at_any_step_fails) {
    for (size_t i = 0; i < NUM(steps); i++) {
        KEEPS_FILES;
        step step = steps[i];
        SCRATCH_FILE(path, "broker");
        strcpy(step.path, path);
        peer broker = peer_start("dying_broker");
        frame_send(broker.socket, TAG_STEP, &step, sizeof(step));
        frame_await(broker.socket, TAG_LISTENING);
        fetching fetching = {.path = path};
        threads client;
        threads_start(&client, 1, fetch_without_timeout, &fetching, sizeof(fetching));
        frame_await(broker.socket, TAG_THERE);
        peer_kill(&broker);
        threads_join(&client);
        CHECK_EQ(fetching.status, KVMEM_STATUS_PEER_LOST);
        CHECK_EQ(unlink(path), 0);
    }
}
