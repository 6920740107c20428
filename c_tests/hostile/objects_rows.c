// SPDX-License-Identifier: Apache-2.0
// Servers of objects. The victim keeps blocks in objects of the hostile server and reads them, and does the same with a healthy one
// meanwhile.
#include "hostile.h"

#include "object_store.h"
#include "s3_wire.h"

#include <poll.h>

/* Of a run with the hostile server. */
#define LIMIT MILLISECONDS(40)

HOSTILE_CASES

/* Twice, it moves each block to its own place. */
static const kv_move all = KV_MOVE(3, {0, 6}, {1, 5}, {2, 4}, {3, 3}, {4, 2}, {5, 1}, {6, 0});

/* Objects of 12 KiB. */
static kvmem_layout_config config(void) { return WITH(kv_config(&kv_kinds[0]), it.inner_dim = 256); }

/* ---- servers ---- */

static void open_server(const char *name, s3_send *sends) {
    const char *endpoint = s3_serve(sends);
    hostile_put(name, endpoint, strlen(endpoint) + 1);
}

static void open_healthy(void) { open_server("healthy", s3_send_reply); }
static void open_hostile(void) { open_server(hostile_name("hostile"), s3_send_reply); }

/* ---- the victim ---- */

/* Objects of a server, with an agent of their own, and blocks that are written to them and read from them. */
typedef struct storage {
    kvmem_agent *agent;
    kvmem_layout *objects;
    kv_side written, read;
    kvmem_transfer *writes, *reads;
    uint32_t checksums[7]; /* of blocks that are read, in the order of the pairs */
} storage;

static storage healthy, hostile;

static void storage_open(storage *storage, const char *name) {
    const kvmem_layout_config blocks = config();
    CLEANUP(message_free) const message endpoint = hostile_take(name);
    storage->agent = MADE(kvmem_agent, kvmem_agent_create, name, NULL);
    object_store_create_backend_for(storage->agent, NULL, (const char *)endpoint.data);
    OWN(kvmem_region, region, kvmem_region_create_object,
        REF(OPTIONS(kvmem_object_options, it.key_prefix = TEXT("%s/", name), it.object_size = kv_block_stride(&blocks),
                    it.count = blocks.num_blocks)));
    storage->objects = regions_lay_out(&blocks, &region, 1, storage->agent);
    kv_side_open(&storage->written, &blocks, storage->agent, 7);
    kv_side_open(&storage->read, &blocks, storage->agent, 3);
    uint32_t ids[NUM(storage->checksums)];
    for (uint32_t i = 0; i < NUM(ids); i++) ids[i] = all.pairs[i].destination;
    EXPECT_OK(kvmem_layout_checksum(storage->written.layout, ids, NUM(ids), PATIENCE, storage->checksums, ERR));
    storage->writes = kv_transfer(storage->written.layout, storage->objects, &all);
    storage->reads = kv_transfer(storage->objects, storage->read.layout, &all);
}

static void storage_close(storage *storage) {
    kvmem_transfer_destroy(storage->writes);
    kvmem_transfer_destroy(storage->reads);
    kvmem_layout_destroy(storage->objects);
    kv_side_check(&storage->written); /* objects are read from it only */
    kv_side_close(&storage->written);
    kv_side_close(&storage->read);
    kvmem_agent_destroy(storage->agent);
}

/* NIXL's plugin repeats a request that has failed for 25 s, also after its run has ended. */
static void open_victim(void) {
    CHECK_EQ(setenv("AWS_RETRY_MODE", "standard", 1), 0);
    CHECK_EQ(setenv("AWS_MAX_ATTEMPTS", "1", 1), 0);
    storage_open(&healthy, "healthy");
}

static void close_victim(void) { storage_close(&healthy); }

static void check_read(const storage *storage) {
    CHECK_BYTES(kv_side_piece(&storage->read, 0, 0, 0), kv_side_piece(&storage->written, 0, 0, 0), kv_region_size(&storage->read.config));
}

static void write_and_read(void) {
    RUN(healthy.writes);
    RUN(healthy.reads);
    check_read(&healthy);
    kv_fill(kv_side_piece(&healthy.read, 0, 0, 0), kv_region_size(&healthy.read.config), 5);
}

static void meet(void) { storage_open(&hostile, hostile_name("hostile")); }

static kvmem_status run(kvmem_transfer *transfer, const uint32_t *checksums) {
    const kvmem_submit_options options = {.struct_size = sizeof(options), .pairs = all.pairs, .num_pairs = all.num_pairs,
                                          .run_timeout_ns = LIMIT, .checksums = checksums};
    kvmem_status status = kvmem_transfer_submit(transfer, &options, ERR);
    THEN(status, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    CHECK(status != KVMEM_STATUS_PANIC);
    if (status != KVMEM_STATUS_OK) CHECK(strlen(test_last_message()) > 0);
    return status;
}

static void deal(void) {
    (void)run(hostile.writes, NULL);
    /* Of any bytes that are not those of the blocks it says so. */
    if (run(hostile.reads, hostile.checksums) == KVMEM_STATUS_OK) check_read(&hostile);
    kv_side_check_guards(&hostile.read);
}

static void part(void) { storage_close(&hostile); }

/* ---- the hostile server ---- */

static bool send_slowly(int client, const s3_request *request, const s3_reply *reply) {
    (void)request;
    for (const char *at = reply->head; *at != '\0'; at++) {
        if (!s3_send_bytes(client, at, 1)) return false;
        (void)poll(NULL, 0, 1);
    }
    for (size_t at = 0; at < reply->size; at++) {
        if (!s3_send_bytes(client, reply->body + at, 1)) return false;
        (void)poll(NULL, 0, 1);
    }
    return true;
}

/* Until the client or the process ends. */
static bool say_nothing(int client, const s3_request *request, const s3_reply *reply) {
    (void)request, (void)reply;
    (void)poll(&(struct pollfd){.fd = client, .events = POLLRDHUP}, 1, -1);
    return false;
}

static bool stop_in_the_middle(int client, const s3_request *request, const s3_reply *reply) {
    if (!s3_send_text(client, reply->head) || !s3_send_bytes(client, reply->body, reply->size / 2)) return false;
    return reply->size == 0 || say_nothing(client, request, reply);
}

static bool close_at_once(int client, const s3_request *request, const s3_reply *reply) {
    (void)client, (void)request, (void)reply;
    return false;
}

static bool close_in_the_middle(int client, const s3_request *request, const s3_reply *reply) {
    (void)request;
    if (reply->size == 0) return s3_send_bytes(client, reply->head, strlen(reply->head) / 2) && false;
    return s3_send_text(client, reply->head) && s3_send_bytes(client, reply->body, reply->size / 2) && false;
}

static bool send_with(int client, const char *head, const unsigned char *body, size_t size) {
    return s3_send_text(client, head) && s3_send_bytes(client, body, size) && false;
}

static bool lie_about_sizes(int client, const s3_request *request, const s3_reply *reply) {
    static const char *const sizes[] = {"0", "1", "99999999", "9223372036854775807", "18446744073709551615", "-1", "none"};
    (void)request;
    char head[200];
    snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: %s\r\n\r\n", sizes[hostile_random() % NUM(sizes)]);
    return send_with(client, head, reply->body, reply->size);
}

/* Sends a chunk again and again. */
static bool send_chunks(int client, const char *head) {
    static unsigned char chunk[MIB];
    if (!s3_send_text(client, head)) return false;
    while (s3_send_text(client, "100000\r\n") && s3_send_bytes(client, chunk, sizeof(chunk)) && s3_send_text(client, "\r\n")) {
    }
    return false;
}

/* NIXL's plugin keeps the whole reply to a write: docs/reliability.md. */
static bool is_read(const s3_request *request) { return strcmp(request->method, "GET") == 0; }

/* More than was asked for, with a length that says so. */
static bool send_more(int client, const s3_request *request, const s3_reply *reply) {
    if (!is_read(request)) return s3_send_reply(client, request, reply);
    unsigned char *body = test_allocate(4 * MIB);
    memset(body, 'x', 4 * MIB);
    const bool goes_on = send_with(client, "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 4194304\r\n\r\n", body, 4 * MIB);
    free(body);
    return goes_on;
}

static bool send_without_end(int client, const s3_request *request, const s3_reply *reply) {
    if (!is_read(request)) return s3_send_reply(client, request, reply);
    return send_chunks(client, "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nTransfer-Encoding: chunked\r\n\r\n");
}

static bool send_headers_without_end(int client, const s3_request *request, const s3_reply *reply) {
    (void)request, (void)reply;
    if (!s3_send_text(client, "HTTP/1.1 200 OK\r\n")) return false;
    while (s3_send_text(client, "x-amz-meta-more: 0123456789012345678901234567890123456789\r\n")) {
    }
    return false;
}

/* Not an XML declaration alone, which ends the process: docs/reliability.md. */
static bool send_errors(int client, const s3_request *request, const s3_reply *reply) {
    static const char *const heads[] = {"400 Bad Request", "403 Forbidden", "404 Not Found", "409 Conflict", "416 Range Not Satisfiable",
                                        "429 Too Many Requests", "500 Internal Server Error", "503 Slow Down", "999 Other"};
    static const char *const bodies[] = {"", "no XML", "<Error><Code>SlowDown</Code></Error>", "<Error><Code>"};
    (void)request, (void)reply;
    const char *body = bodies[hostile_random() % NUM(bodies)];
    char head[200];
    snprintf(head, sizeof(head), "HTTP/1.1 %s\r\nContent-Type: application/xml\r\nContent-Length: %zu\r\n\r\n",
             heads[hostile_random() % NUM(heads)], strlen(body));
    return s3_send_text(client, head) && s3_send_text(client, body);
}

/* An error whose text does not end. */
static bool send_an_error_without_end(int client, const s3_request *request, const s3_reply *reply) {
    if (!is_read(request)) return s3_send_reply(client, request, reply);
    return send_chunks(client, "HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n");
}

/* After an error the victim asks whether the object exists. */
static bool say_nothing_of_failed_objects(int client, const s3_request *request, const s3_reply *reply) {
    return strcmp(request->method, "HEAD") == 0 ? say_nothing(client, request, reply) : send_errors(client, request, reply);
}

static bool redirect(int client, const s3_request *request, const s3_reply *reply) {
    (void)reply;
    char head[400];
    snprintf(head, sizeof(head), "HTTP/1.1 %s\r\nLocation: /blocks/%s\r\nContent-Length: 0\r\n\r\n",
             hostile_random() % 2 == 0 ? "301 Moved Permanently" : "307 Temporary Redirect", request->key);
    return s3_send_text(client, head);
}

static bool send_random_bytes(int client, const s3_request *request, const s3_reply *reply) {
    (void)request, (void)reply;
    unsigned char bytes[4096];
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = (unsigned char)hostile_random();
    return s3_send_bytes(client, bytes, sizeof(bytes)) && false;
}

/* The bytes are not those that were written. */
static bool send_other_bytes(int client, const s3_request *request, const s3_reply *reply) {
    for (size_t i = 0; i < reply->size; i += 100) reply->body[i] ^= 1;
    return s3_send_reply(client, request, reply);
}

static void behave(s3_send *sends) {
    s3_set_send(sends);
    (void)poll(NULL, 0, 1);
}

#define BEHAVIOUR(name) \
    static void do_##name(unsigned turn) { (void)turn, behave(name); }
BEHAVIOUR(send_slowly)
BEHAVIOUR(say_nothing)
BEHAVIOUR(stop_in_the_middle)
BEHAVIOUR(close_at_once)
BEHAVIOUR(close_in_the_middle)
BEHAVIOUR(lie_about_sizes)
BEHAVIOUR(send_more)
BEHAVIOUR(send_without_end)
BEHAVIOUR(send_headers_without_end)
BEHAVIOUR(send_errors)
BEHAVIOUR(say_nothing_of_failed_objects)
BEHAVIOUR(send_an_error_without_end)
BEHAVIOUR(redirect)
BEHAVIOUR(send_random_bytes)
BEHAVIOUR(send_other_bytes)
BEHAVIOUR(s3_send_reply)

static const hostile_row rows[] = {
    {.does = "sends slowly", .act = do_send_slowly},
    {.does = "says nothing", .act = do_say_nothing},
    {.does = "stops in the middle of objects", .act = do_stop_in_the_middle},
    {.does = "closes connections at once", .act = do_close_at_once},
    {.does = "closes connections in the middle of objects", .act = do_close_in_the_middle},
    {.does = "lies about sizes", .act = do_lie_about_sizes},
    {.does = "sends more than was asked for", .act = do_send_more},
    {.does = "sends objects without an end", .act = do_send_without_end},
    {.does = "sends headers without an end", .act = do_send_headers_without_end},
    {.does = "returns errors", .act = do_send_errors},
    {.does = "returns errors, and says nothing of the objects", .act = do_say_nothing_of_failed_objects},
    {.does = "returns an error without an end", .act = do_send_an_error_without_end},
    {.does = "redirects requests to itself", .act = do_redirect},
    {.does = "sends random bytes", .act = do_send_random_bytes},
    {.does = "sends other bytes", .act = do_send_other_bytes},
    {.does = "serves, and stops", .act = do_s3_send_reply, .stops = true},
};

const hostile_form hostile_form_here = {
    .victim = {.open = open_victim, .round = write_and_read, .meet = meet, .deal = deal, .part = part, .close = close_victim},
    .healthy = {.open = open_healthy},
    .open_hostile = open_hostile,
    .files = 16,
    .threads = 8,
    .bytes = 32 * MIB,
    .bounds = {.longest_ms = 5000, .share = 0.02, .processors = 2},
    .rows = rows,
    .num_rows = NUM(rows),
};
