// SPDX-License-Identifier: Apache-2.0
// A broker that is not what it should be: it answers rubbish, cuts or damages its answer, says nothing, or is
// killed at any step. Who fetches from it gets an error, in the time given, and keeps nothing.
#include "shop.h"

enum { TAG_STEP = 10, TAG_LISTENING, TAG_THERE };

static void read_request(int client, size_t size) {
    char request[REQUEST_SIZE("kv")];
    CHECK(size <= sizeof(request));
    CHECK(size == 0 || recv(client, request, size, MSG_WAITALL) == (ssize_t)size);
}

/* The broker's side in this process: a thread that answers one client after the other. */
typedef struct fixture {
    scratch directory;
    char path[160];
    int listener;
    goods goods;
    wire answer;
    size_t files;
} fixture;

static void fixture_open(fixture *fixture) {
    fixture->directory = scratch_create(temporary_directory());
    snprintf(fixture->path, sizeof(fixture->path), "%s", scratch_file(&fixture->directory, "broker"));
    fixture->listener = listen_raw(fixture->path);
    goods_open(&fixture->goods);
    fixture->answer = wire_capture(fixture->goods.share);
    fixture->files = count_open_files();
}

static void fixture_close(fixture *fixture) {
    CHECK_EQ(count_open_files(), fixture->files);
    wire_close(&fixture->answer);
    goods_close(&fixture->goods);
    close(fixture->listener);
    CHECK_EQ(unlink(fixture->path), 0);
    scratch_remove(&fixture->directory);
}

/* What one client is answered. */
typedef struct served {
    int listener;
    const wire *answer;
    size_t size;
    size_t num_fds;
} served;

static void *serve_one(void *argument) {
    const served *served = argument;
    CLEANUP(test_close) const int client = accept4(served->listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(client >= 0);
    read_request(client, REQUEST_SIZE("kv"));
    if (served->size > 0) wire_send(client, served->answer, served->size, served->num_fds);
    return NULL;
}

static kvmem_status fetch(const char *path, int64_t timeout_ns) {
    static const kvmem_token token;
    const kvmem_fetch_options options = OPTIONS(kvmem_fetch_options, it.path = path, it.name = "kv",
                                                it.token = &token, it.timeout_ns = timeout_ns);
    OWNED(kvmem_share) share = (kvmem_share *)&options;
    const kvmem_status status = kvmem_share_fetch(&options, &share, ERR);
    CHECK((share != NULL) == (status == KVMEM_STATUS_OK));
    return status;
}

static kvmem_status fetch_answered(const fixture *fixture, const wire *answer, size_t size, size_t num_fds) {
    served served = {fixture->listener, answer, size, num_fds};
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

TEST(an_answer_as_it_must_be_is_taken) {
    OPENED(fixture, fixture);
    const wire *answer = &fixture.answer;
    CHECK_EQ(fetch_answered(&fixture, answer, answer->size, answer->num_fds), KVMEM_STATUS_OK);
}

TEST(rubbish_is_an_error) {
    OPENED(fixture, fixture);
    unsigned seed = 7;
    for (size_t i = 0; i < 300; i++) {
        CLEANUP(wire_free_copy) wire rubbish = wire_copy(&fixture.answer);
        for (size_t j = i % 3 == 0 ? 8 : 0; j < rubbish.size; j++)
            rubbish.bytes[j] = (unsigned char)rand_r(&seed);
        const size_t size = 1 + (size_t)rand_r(&seed) % rubbish.size;
        expect_error(fetch_answered(&fixture, &rubbish, size, i % 2 * rubbish.num_fds), "rubbish", i);
    }
}

TEST(an_answer_that_ends_early_is_an_error) {
    OPENED(fixture, fixture);
    const wire *answer = &fixture.answer;
    for (size_t size = 0; size < answer->size; size++)
        expect_error(fetch_answered(&fixture, answer, size, size > 0 ? answer->num_fds : 0), "cut at", size);
    expect_error(fetch_answered(&fixture, answer, answer->size, 0), "without descriptors, of", answer->size);
}

TEST(an_answer_with_a_bit_flipped_is_an_error) {
    OPENED(fixture, fixture);
    for (size_t i = 0; i < fixture.answer.size; i++) {
        CLEANUP(wire_free_copy) wire flipped = wire_copy(&fixture.answer);
        flipped.bytes[i] ^= (unsigned char)(1 << i % 8);
        expect_error(fetch_answered(&fixture, &flipped, flipped.size, flipped.num_fds), "flipped at", i);
    }
}

TEST(a_request_is_no_answer) {
    OPENED(fixture, fixture);
    CLEANUP(wire_free_copy) wire request = wire_copy(&fixture.answer);
    static const kvmem_token token;
    write_request(request.bytes, "kv", &token);
    CHECK_EQ(fetch_answered(&fixture, &request, REQUEST_SIZE("kv"), 0), KVMEM_STATUS_CORRUPT);
    CHECK_HAS(test_last_message(), "request");
}

TEST(silence_ends_with_the_time_given) {
    OPENED(fixture, fixture);
    const int64_t times[] = {0, 1, INT64_C(50000000)};
    for (size_t i = 0; i < NUM(times); i++) {
        CHECK_EQ(fetch(fixture.path, times[i]), KVMEM_STATUS_TIMED_OUT);
        const int client = accept4(fixture.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        CHECK(client < 0 || close(client) == 0);
    }
}

/* How far a broker gets before it is killed. */
typedef struct step {
    char path[160];
    bool reads;
    size_t sends; /* of its answer; SIZE_MAX stands for all but the last byte */
} step;
static const step steps[] = {
    {.reads = false}, {.reads = true}, {"", true, WIRE_HEADER / 2}, {"", true, WIRE_HEADER}, {"", true, SIZE_MAX},
};

/* Role: a broker that goes so far, and is killed there. */
ROLE(dying_broker) {
    step step;
    frame_expect_into(socket, TAG_STEP, &step, sizeof(step));
    const int listener = listen_raw(step.path);
    goods goods;
    goods_open(&goods);
    const wire answer = wire_capture(goods.share);
    frame_send(socket, TAG_LISTENING, NULL, 0);
    const int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(client >= 0);
    read_request(client, step.reads ? REQUEST_SIZE("kv") : 0);
    if (step.sends > 0) {
        const size_t size = step.sends == SIZE_MAX ? answer.size - 1 : step.sends;
        wire_send(client, &answer, size, answer.num_fds);
    }
    frame_send(socket, TAG_THERE, NULL, 0);
    pause();
}

typedef struct fetching {
    const char *path;
    kvmem_status status;
} fetching;

static void *fetch_patiently(void *argument) {
    fetching *fetching = argument;
    fetching->status = fetch(fetching->path, PATIENCE);
    test_forget_error();
    return NULL;
}

TEST(a_broker_killed_at_any_step_is_lost) {
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
        threads_start(&client, 1, fetch_patiently, &fetching, sizeof(fetching));
        frame_await(broker.socket, TAG_THERE);
        peer_kill(&broker);
        threads_join(&client);
        CHECK_EQ(fetching.status, KVMEM_STATUS_PEER_LOST);
        CHECK_EQ(unlink(path), 0);
    }
}
