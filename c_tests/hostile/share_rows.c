// SPDX-License-Identifier: Apache-2.0
// Senders of shares, and brokers. The victim receives from the hostile peer and fetches from it in turn, opens what has arrived, and
// fetches from the broker of the healthy one meanwhile.
#include "published.h"

#include "forged.h"
#include "sample.h"
#include "server.h"

#include <pthread.h>
#include <sys/socket.h>

HOSTILE_CASES

#define LIMIT MILLISECONDS(10)

/* ---- the healthy broker ---- */

static void open_broker(void) {
    published_open(OPTIONS(kvmem_broker_options));
}

/* ---- the victim ---- */

static kvmem_status fetch_from(const char *path, uint64_t timeout, kvmem_share **share) {
    return kvmem_share_fetch(REF(OPTIONS(kvmem_fetch_options, it.path = path, it.name = "kv", it.token = &token)), timeout, share, ERR);
}

static void fetch(void) {
    OWNED(kvmem_share) share = NULL;
    EXPECT_OK(fetch_from(hostile_path("broker"), PATIENCE, &share));
    OWNED(kvmem_region) region = sample_import(share);
}

static kvmem_status receive(kvmem_share **share) {
    CLEANUP(test_close) const int connection = try_connect_raw(hostile_path(hostile_name("socket")));
    return connection < 0 ? KVMEM_STATUS_PEER_LOST : kvmem_share_receive(connection, LIMIT, share, ERR);
}

/* All that can be done with a region of which nothing is known. */
static void use(kvmem_region *region) {
    volatile unsigned char sum = 0;
    const kvmem_region_info info = region_info(region);
    const unsigned char *bytes = (const unsigned char *)(uintptr_t)info.address;
    for (uint64_t i = 0; i < info.size; i += 512) sum ^= bytes[i];
    (void)kvmem_region_check_owner(region, NULL);
    kvmem_region_holders holders = {0};
    (void)kvmem_region_get_holders(region, &holders, NULL);
    OWNED(kvmem_region) view = NULL;
    (void)kvmem_region_create_view(region, 0, 4096, &view, NULL);
}

static void deal(void) {
    static unsigned number;
    OWNED(kvmem_share) share = NULL;
    const kvmem_status status = number++ % 2 == 0 ? fetch_from(hostile_path(hostile_name("socket")), LIMIT, &share) : receive(&share);
    CHECK((share != NULL) == (status == KVMEM_STATUS_OK));
    OWNED(kvmem_region) region = NULL;
    if (share != NULL && kvmem_share_open_region(share, NULL, &region, ERR) == KVMEM_STATUS_OK) use(region);
}

/* ---- the hostile sender ---- */

static int listener;
static sample own;
static wire whole; /* the message of its share */
/* The connections that it has left open. */
static int connections[32];
static size_t num_connections;

static void open_hostile(void) {
    listener = listen_raw(hostile_path(hostile_name("socket")));
    sample_open(&own);
    whole = wire_capture(own.share);
}

static int next_connection(void) {
    const int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(accepted >= 0);
    int *place = &connections[num_connections++ % NUM(connections)];
    if (num_connections > NUM(connections)) close(*place);
    return *place = accepted;
}

static void say_nothing(unsigned turn) {
    (void)turn;
    next_connection();
}

static void leave_at_once(unsigned turn) {
    (void)turn;
    shutdown(next_connection(), SHUT_RDWR);
}

static void send_in_part(unsigned turn) {
    (void)turn;
    const int connection = next_connection();
    (void)wire_try_send(connection, &whole, 1 + hostile_random() % (whole.size - 1), whole.num_fds);
}

/* Messages of a share of 64 MiB, until the victim has had enough. */
static void never_end(unsigned turn) {
    (void)turn;
    static unsigned char bytes[WIRE_HEADER + 32768];
    memcpy(bytes, whole.bytes, WIRE_HEADER);
    wire part = {.bytes = bytes, .size = sizeof(bytes)};
    wire_put(bytes + WIRE_TOTAL_BYTES, 64 << 20, 4);
    wire_put(bytes + WIRE_TOTAL_FDS, 0, 4);
    wire_put(bytes + WIRE_BYTES, 32768, 4);
    wire_put(bytes + WIRE_FDS, 0, 4);
    const int connection = next_connection();
    for (uint32_t number = 0;; number++) {
        wire_put(bytes + WIRE_NUMBER, number, 4);
        wire_seal(&part);
        if (!wire_try_send(connection, &part, part.size, 0)) return;
    }
}

/* Files without end: 65,536 are announced. */
static void send_files(unsigned turn) {
    (void)turn;
    static unsigned char bytes[WIRE_HEADER + 1];
    memcpy(bytes, whole.bytes, WIRE_HEADER);
    wire part = {.bytes = bytes, .size = sizeof(bytes), .num_fds = WIRE_MAX_FDS};
    for (size_t i = 0; i < WIRE_MAX_FDS; i++) part.fds[i] = whole.fds[i % whole.num_fds];
    wire_put(bytes + WIRE_TOTAL_BYTES, 65536, 4);
    wire_put(bytes + WIRE_TOTAL_FDS, 65536, 4);
    wire_put(bytes + WIRE_BYTES, 1, 4);
    wire_put(bytes + WIRE_FDS, WIRE_MAX_FDS, 4);
    const int connection = next_connection();
    for (uint32_t number = 0; number < 8; number++) {
        wire_put(bytes + WIRE_NUMBER, number, 4);
        wire_seal(&part);
        if (!wire_try_send(connection, &part, part.size, part.num_fds)) return;
    }
}

static void repeat_a_message(unsigned turn) {
    (void)turn;
    const int connection = next_connection();
    for (int i = 0; i < 4; i++)
        if (!wire_try_send(connection, &whole, whole.size, whole.num_fds)) return;
}

/* Headers with correct checksums. */
static void lie_about_sizes(unsigned turn) {
    static const size_t fields[] = {WIRE_TOTAL_BYTES, WIRE_TOTAL_FDS, WIRE_NUMBER, WIRE_BYTES, WIRE_FDS, WIRE_KIND, WIRE_VERSION};
    static const uint32_t lies[] = {0, 1, 3, 254, 32769, 65536, 64 << 20, UINT32_MAX};
    CLEANUP(wire_free_copy) wire lie = wire_copy(&whole);
    const size_t field = fields[turn % NUM(fields)];
    wire_put(lie.bytes + field, lies[turn / NUM(fields) % NUM(lies)], field < WIRE_TOTAL_BYTES ? 2 : 4);
    wire_seal(&lie);
    (void)wire_try_send(next_connection(), &lie, lie.size, lie.num_fds);
}

static void send_damaged(unsigned turn) {
    CLEANUP(wire_free_copy) wire damaged = wire_copy(&whole);
    const size_t at = hostile_random() % damaged.size;
    damaged.bytes[at] ^= (unsigned char)(1 + hostile_random() % 255);
    if (turn % 2 != 0) wire_seal(&damaged);
    (void)wire_try_send(next_connection(), &damaged, damaged.size, damaged.num_fds);
}

/* A manifest with a correct checksum. */
static void forge_a_manifest(unsigned turn) {
    static const uint64_t lies[] = {0, 1, 4096, UINT64_C(1) << 40, INT64_MAX, UINT64_MAX};
    CLEANUP(parcel_close) parcel forged = parcel_of(own.share);
    forge_integer(&forged, turn % 2 != 0 ? "size" : "offset", lies[turn / 2 % NUM(lies)]);
    CLEANUP(wire_free_copy) wire sent = wire_copy(&whole);
    memcpy(sent.bytes + WIRE_HEADER, forged.bytes.data, forged.bytes.size);
    sent.size = WIRE_HEADER + forged.bytes.size;
    wire_put(sent.bytes + WIRE_TOTAL_BYTES, (uint32_t)forged.bytes.size, 4);
    wire_put(sent.bytes + WIRE_BYTES, (uint32_t)forged.bytes.size, 4);
    wire_seal(&sent);
    (void)wire_try_send(next_connection(), &sent, sent.size, sent.num_fds);
}

/* Files of which the sender could take the memory away. */
static void send_files_that_shrink(unsigned turn) {
    CLEANUP(test_close) const int file = memfd_create("shrinks", MFD_CLOEXEC);
    CHECK_EQ(ftruncate(file, (off_t)SAMPLE_SIZE), 0);
    CLEANUP(wire_free_copy) wire sent = wire_copy(&whole);
    sent.fds[turn % sent.num_fds] = file;
    (void)wire_try_send(next_connection(), &sent, sent.size, sent.num_fds);
    CHECK_EQ(ftruncate(file, 0), 0);
}

/* Its own mapping of a file: no later one can be written. */
static uint64_t *mapping_of(int file, size_t *words) {
    struct stat stat;
    CHECK_EQ(fstat(file, &stat), 0);
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps != NULL);
    char line[512], rights[8];
    unsigned long long start = 0, end = 0, inode = 0, found = 0;
    while (found == 0 && fgets(line, sizeof(line), maps) != NULL)
        if (sscanf(line, "%llx-%llx %7s %*s %*s %llu", &start, &end, rights, &inode) == 4 && inode == stat.st_ino && rights[1] == 'w')
            found = start;
    fclose(maps);
    CHECK(found != 0);
    *words = (size_t)stat.st_size / sizeof(uint64_t);
    return (uint64_t *)(uintptr_t)found;
}

/* The first words: of a control block all of them. */
static void *change_shared_memory(void *nothing) {
    volatile uint64_t *words[WIRE_MAX_FDS];
    size_t sizes[WIRE_MAX_FDS];
    for (size_t i = 0; i < whole.num_fds; i++) words[i] = mapping_of(whole.fds[i], &sizes[i]);
    uint64_t random = 1;
    for (;; random = random * UINT64_C(6364136223846793005) + 1)
        for (size_t i = 0; i < whole.num_fds; i++) {
            volatile uint64_t *word = &words[i][(random >> 20) % (sizes[i] < 16 ? sizes[i] : 16)];
            const uint64_t before = *word;
            *word = random;
            if ((random & 1 << 13) != 0) *word = before;
        }
    return nothing;
}

static void change_memory(unsigned turn) {
    pthread_t thread;
    if (turn == 0) CHECK_EQ(pthread_create(&thread, NULL, change_shared_memory, NULL), 0);
    (void)wire_try_send(next_connection(), &whole, whole.size, whole.num_fds);
}

static const hostile_row rows[] = {
    {.does = "sends nothing", .act = say_nothing},
    {.does = "sends nothing, and stops", .act = say_nothing, .stops = true},
    {.does = "ends connections at once", .act = leave_at_once},
    {.does = "sends a part of a share", .act = send_in_part},
    {.does = "sends a part of a share, and stops", .act = send_in_part, .stops = true},
    {.does = "sends messages without end", .act = never_end},
    {.does = "sends files without end", .act = send_files},
    {.does = "repeats a message of a share", .act = repeat_a_message},
    {.does = "lies about sizes of a share", .act = lie_about_sizes, .turns = 56},
    {.does = "sends a damaged share", .act = send_damaged, .turns = 64},
    {.does = "forges a manifest", .act = forge_a_manifest},
    {.does = "sends files that it can truncate", .act = send_files_that_shrink},
    {.does = "changes shared memory while it is opened and read", .act = change_memory, .turns = 64},
};

const hostile_form hostile_form_here = {
    .victim = {.open = published_take_token, .round = fetch, .deal = deal},
    .healthy = {.open = open_broker, .close = published_close},
    .open_hostile = open_hostile,
    .files = 8 * WIRE_MAX_FDS + 16,
    .threads = 0,
    .bytes = 80 * MIB, /* a share of 64 MiB */
    .bounds = {.longest_ms = 500, .share = 0.02, .processors = 0.25},
    .rows = rows,
    .num_rows = NUM(rows),
};
