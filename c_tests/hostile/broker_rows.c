// SPDX-License-Identifier: Apache-2.0
// Clients of a broker. The victim is the broker, which serves two users; the healthy peer is another user than the hostile one.
#include "published.h"

#include "sample.h"
#include "server.h"

#include <sys/socket.h>

#define MAX_CLIENTS 16
/* Of the broker. Each user has half of it: files that were sent to a client, and not read, cannot be withdrawn. */
#define MAX_FILES 80

TEST(each_behaviour_is_survived) {
    require_other_users("a healthy client beside a hostile one");
    hostile_walk();
}

/* ---- the broker ---- */

static void open_broker(void) {
    const uint32_t users[] = {(uint32_t)geteuid(), NOBODY_UID};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, REF(((struct rlimit){MAX_FILES, MAX_FILES}))), 0);
    published_open(OPTIONS(kvmem_broker_options, it.users = users, it.num_users = NUM(users), it.mode = 0666, it.max_clients = MAX_CLIENTS,
                           it.client_timeout_ns = MILLISECONDS(500)));
}

/* ---- clients ---- */

static void open_client(void) {
    published_take_token();
    switch_user(NOBODY_UID);
}

static void fetch(void) {
    OWNED(kvmem_share) share = NULL;
    EXPECT_OK(kvmem_share_fetch(REF(OPTIONS(kvmem_fetch_options, it.path = hostile_path("broker"), it.name = "kv", it.token = &token,
                                            it.flags = KVMEM_FETCH_BROKER_USER)),
                                PATIENCE, &share, ERR));
    OWNED(kvmem_region) region = sample_import(share);
}

/* ---- the hostile client ---- */

/* The connections that it has left open. */
static int connections[64];
static size_t num_connections;

static int try_connect(void) { return try_connect_raw(hostile_path("broker")); }

static void keep(int connection) {
    if (connection < 0) return;
    int *place = &connections[num_connections++ % NUM(connections)];
    if (num_connections > NUM(connections)) close(*place);
    *place = connection;
}

/* Whatever of it the broker takes. */
static void say(int connection, const void *bytes, size_t size) {
    if (connection >= 0) (void)!send(connection, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void ask(unsigned char *request) { write_request(request, "kv", &token); }

static void say_nothing(unsigned turn) {
    (void)turn;
    keep(try_connect());
}

static void ask_in_part(unsigned turn) {
    unsigned char request[REQUEST_SIZE("kv")];
    ask(request);
    const int made = try_connect();
    say(made, request, turn % sizeof(request));
    keep(made);
}

/* One byte more on each connection in each turn. */
static void ask_slowly(unsigned turn) {
    unsigned char request[REQUEST_SIZE("kv")];
    ask(request);
    keep(try_connect());
    for (size_t i = 0; i < num_connections && i < NUM(connections); i++) say(connections[i], &request[turn % sizeof(request)], 1);
}

static void read_no_reply(unsigned turn) {
    (void)turn;
    unsigned char request[REQUEST_SIZE("kv")];
    ask(request);
    const int made = try_connect();
    say(made, request, sizeof(request));
    keep(made);
}

static void repeat_on_a_connection(unsigned turn) {
    (void)turn;
    unsigned char request[REQUEST_SIZE("kv")];
    ask(request);
    const int made = try_connect();
    for (int i = 0; i < 64; i++) say(made, request, sizeof(request));
    keep(made);
}

static void guess_tokens(unsigned turn) {
    (void)turn;
    for (int i = 0; i < 16; i++) {
        kvmem_token guessed = token;
        guessed.bytes[hostile_random() % sizeof(guessed.bytes)] ^= 1;
        unsigned char request[REQUEST_SIZE("kv")];
        write_request(request, "kv", &guessed);
        const int made = try_connect();
        say(made, request, sizeof(request));
        keep(made);
    }
}

static void connect_and_leave(unsigned turn) {
    unsigned char request[REQUEST_SIZE("kv")];
    ask(request);
    for (int i = 0; i < 32; i++) {
        const int made = try_connect();
        if (made < 0) continue;
        say(made, request, (turn + (unsigned)i) % (sizeof(request) + 1));
        close(made);
    }
}

/* Numbers of bytes and files that no request has, with correct checksums. */
static void lie_about_sizes(unsigned turn) {
    static const size_t fields[] = {WIRE_TOTAL_BYTES, WIRE_TOTAL_FDS, WIRE_NUMBER, WIRE_BYTES, WIRE_FDS, WIRE_KIND, WIRE_VERSION};
    static const uint32_t lies[] = {0, 1, 3, 254, 32769, 65536, 64 << 20, UINT32_MAX};
    unsigned char bytes[REQUEST_SIZE("kv")];
    ask(bytes);
    wire lie = {.bytes = bytes, .size = sizeof(bytes)};
    const size_t field = fields[turn % NUM(fields)];
    wire_put(bytes + field, lies[turn / NUM(fields) % NUM(lies)], field < WIRE_TOTAL_BYTES ? 2 : 4);
    wire_seal(&lie);
    const int made = try_connect();
    say(made, bytes, sizeof(bytes));
    keep(made);
}

static void send_files(unsigned turn) {
    (void)turn;
    unsigned char bytes[REQUEST_SIZE("kv")];
    ask(bytes);
    wire request = {.bytes = bytes, .size = sizeof(bytes), .num_fds = WIRE_MAX_FDS};
    wire_put(bytes + WIRE_TOTAL_FDS, WIRE_MAX_FDS, 4);
    wire_put(bytes + WIRE_FDS, WIRE_MAX_FDS, 4);
    wire_seal(&request);
    for (size_t i = 0; i < WIRE_MAX_FDS; i++) request.fds[i] = STDOUT_FILENO;
    const int made = try_connect();
    if (made < 0) return;
    (void)wire_try_send(made, &request, request.size, request.num_fds); /* the kernel limits files in flight */
    keep(made);
}

static void send_random_bytes(unsigned turn) {
    unsigned char bytes[512];
    ask(bytes);
    for (size_t i = turn % 2 == 0 ? 0 : 8; i < sizeof(bytes); i++) bytes[i] = (unsigned char)hostile_random();
    const int made = try_connect();
    say(made, bytes, sizeof(bytes));
    keep(made);
}

static const hostile_row rows[] = {
    {.does = "connects to a broker and says nothing", .act = say_nothing},
    {.does = "connects to a broker, and stops", .act = say_nothing, .stops = true},
    {.does = "asks a broker in part", .act = ask_in_part},
    {.does = "asks a broker byte by byte", .act = ask_slowly, .turns = 2 * REQUEST_SIZE("kv")},
    {.does = "reads no reply of a broker", .act = read_no_reply},
    {.does = "reads no reply of a broker, and stops", .act = read_no_reply, .stops = true},
    {.does = "repeats requests on a connection", .act = repeat_on_a_connection},
    {.does = "guesses tokens", .act = guess_tokens},
    {.does = "connects and leaves at any step", .act = connect_and_leave},
    {.does = "lies about sizes of a request for a share", .act = lie_about_sizes, .turns = 56},
    {.does = "sends files with requests", .act = send_files},
    {.does = "sends random bytes to a broker", .act = send_random_bytes},
};

const hostile_form hostile_form_here = {
    .victim = {.open = open_broker, .close = published_close},
    .healthy = {.open = open_client, .round = fetch},
    .open_hostile = published_take_token,
    .files = MAX_FILES / 2 + MAX_CLIENTS,
    .threads = 1,
    .bytes = 16 * MIB,
    .bounds = {.longest_ms = 500, .share = 0.02, .processors = 1},
    .rows = rows,
    .num_rows = NUM(rows),
};
