// SPDX-License-Identifier: Apache-2.0
#include "python_cases.h"

#include <libgen.h>

#define NUM_BLOCKS 8
#define BLOCK 4096
#define MEMORY (2 * NUM_BLOCKS * BLOCK)
#define CLIENT "nixl_cu1?/_api.py"

static const python_memory *const both = &python_memory_of_both;

const char *python_lacks_client(void) {
    const char *numpy = python_lacks("numpy"); /* NIXL's client imports it */
    if (numpy != NULL) return numpy;
    return python_package(CLIENT) == NULL ? "the Python client of NIXL" : python_lacks(both->package);
}

static void client_open(python *client) {
    char package[4096];
    snprintf(package, sizeof(package), "%s", python_package(CLIENT));
    const char *elsewhere = getenv("KVMEM_TEST_PYTHON_CLIENT");
    python_open(client, elsewhere != NULL ? elsewhere : KVMEM_TEST_PYTHON_CLIENT, dirname(package));
    CHECK_STR(python_send(client, "allocate %s", both->name), "allocated");
}

static size_t from_hex(const char *text, unsigned char *bytes, size_t capacity) {
    const size_t size = strlen(text) / 2;
    CHECK(size <= capacity);
    for (size_t i = 0; i < size; i++) {
        unsigned value = 0;
        CHECK_EQ(sscanf(text + 2 * i, "%2x", &value), 1);
        bytes[i] = (unsigned char)value;
    }
    return size;
}

static void list_blocks(kvmem_nixl_descriptor blocks[NUM_BLOCKS], uint64_t address) {
    for (size_t i = 0; i < NUM_BLOCKS; i++)
        blocks[i] = (kvmem_nixl_descriptor){
            .address = address + 2 * i * BLOCK, .size = BLOCK, .memory_type = both->type};
}

/* Each side has loaded the other's metadata. `ours` and `theirs` are the addresses of the memory of kvmem and
   of the client. */
typedef struct meeting {
    python client;
    kvmem_agent *agent;
    kvmem_region *region;
    kvmem_registration *registration;
    uint64_t ours;
    uint64_t theirs;
} meeting;

static void meeting_open(meeting *met) {
    client_open(&met->client);
    met->agent = agent_open("kvmem");
    EXPECT_OK(both->create(MEMORY, &met->region, ERR));
    EXPECT_OK(kvmem_region_register(met->region, met->agent, &met->registration, ERR));
    met->ours = region_info(met->region).address;
    char *text = strdup(python_send(&met->client, "metadata"));
    CHECK(text != NULL);
    char *end = strchr(text, ' ');
    CHECK(end != NULL);
    *end = '\0';
    met->theirs = strtoull(end + 1, NULL, 10);
    static unsigned char bytes[65536];
    const size_t size = from_hex(text, bytes, sizeof(bytes));
    free(text);
    OWN(kvmem_blob, name, kvmem_agent_load_remote_metadata, met->agent, bytes, size);
    CHECK_STR((const char *)kvmem_blob_data(name), "python");
    CLEANUP(message_free) message own = agent_metadata(met->agent);
    fprintf(met->client.commands, "load ");
    for (size_t i = 0; i < own.size; i++)
        fprintf(met->client.commands, "%02x", ((const unsigned char *)own.data)[i]);
    CHECK_STR(python_send(&met->client, "%s", ""), "kvmem");
}

static void meeting_close(meeting *met) {
    python_close(&met->client);
    kvmem_registration_destroy(met->registration);
    kvmem_region_destroy(met->region);
    kvmem_agent_destroy(met->agent);
}

static void fill(const meeting *met, uint32_t seed) {
    unsigned char bytes[MEMORY];
    kv_fill(bytes, MEMORY, seed);
    both->write(met->ours, bytes, MEMORY);
}

static void read_block(const meeting *met, size_t index, unsigned char *bytes) {
    both->read(bytes, met->ours + 2 * index * BLOCK, BLOCK);
}

static void check_filled(const meeting *met, unsigned char value) {
    for (size_t i = 0; i < NUM_BLOCKS; i++) {
        unsigned char bytes[BLOCK];
        read_block(met, i, bytes);
        CHECK_FILLED(bytes, value, BLOCK);
    }
}

/* Block `theirs` of the client has the bytes of block `ours` here. */
static void check_block(meeting *met, size_t ours, size_t theirs) {
    unsigned char expected[BLOCK];
    read_block(met, ours, expected);
    unsigned char bytes[BLOCK];
    CHECK_EQ(from_hex(python_send(&met->client, "block %zu", theirs), bytes, sizeof(bytes)), BLOCK);
    CHECK_BYTES(bytes, expected, BLOCK);
}

/* kvmem posts: by two lists, then by prepared lists in another order, with notifications. */
TEST(kvmem_writes_to_and_reads_from_the_python_client) {
    OPENED(meeting, met);
    fill(&met, 1);
    kvmem_nixl_descriptor here[NUM_BLOCKS], there[NUM_BLOCKS];
    list_blocks(here, met.ours);
    list_blocks(there, met.theirs);
    EXPECT_OK(kvmem_agent_connect(met.agent, "python", NULL, KVMEM_TIMEOUT_FOREVER, ERR));
    const kvmem_nixl_options options = OPTIONS(kvmem_nixl_options, it.notification = "wrote",
                                               it.notification_size = 5);
    OWN(kvmem_request, write, kvmem_request_create, met.agent, KVMEM_REQUEST_WRITE, here, "python", there,
        NUM_BLOCKS, &options);
    EXPECT_OK(kvmem_request_post(write, NULL, 0, ERR));
    EXPECT_OK(kvmem_request_wait(write, PATIENCE, ERR));
    CHECK_STR(python_send(&met.client, "expect kvmem"), "77726f7465"); /* "wrote" */
    for (size_t i = 0; i < NUM_BLOCKS; i++) check_block(&met, i, i);

    fill(&met, 2);
    OWN(kvmem_prepared, local, kvmem_prepared_create, met.agent, NULL, ARRAY(here), NULL);
    OWN(kvmem_prepared, remote, kvmem_prepared_create, met.agent, "python", ARRAY(there), NULL);
    const uint32_t ours[] = {6, 1};
    const uint32_t theirs[] = {0, 5};
    OWN(kvmem_request, some, kvmem_request_make, KVMEM_REQUEST_WRITE, local, ours, remote, theirs, 2, NULL);
    EXPECT_OK(kvmem_request_post(some, "twice", 5, ERR));
    EXPECT_OK(kvmem_request_wait(some, PATIENCE, ERR));
    CHECK_STR(python_send(&met.client, "expect kvmem"), "7477696365"); /* "twice" */
    check_block(&met, 6, 0);
    check_block(&met, 1, 5);

    CHECK_STR(python_send(&met.client, "fill 90"), "filled");
    OWN(kvmem_request, read, kvmem_request_create, met.agent, KVMEM_REQUEST_READ, here, "python", there,
        NUM_BLOCKS, NULL);
    EXPECT_OK(kvmem_request_post(read, NULL, 0, ERR));
    EXPECT_OK(kvmem_request_wait(read, PATIENCE, ERR));
    check_filled(&met, 90);
}

/* The client posts, with prepared lists in opposite order, and a queue reports its notifications. */
TEST(the_python_client_reads_from_and_writes_to_kvmem) {
    OPENED(meeting, met);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    EXPECT_OK(kvmem_agent_report_notifications(met.agent, queue, 9, ERR));
    fill(&met, 3);
    CHECK_STR(python_send(&met.client, "move read kvmem %llu read", (unsigned long long)met.ours),
              "DONE");
    CHECK_EQ(next_completion(queue).user_data, 9);
    EXPECT_OK(kvmem_agent_report_notifications(met.agent, NULL, 0, ERR));
    agent_expect_notification(met.agent, "python", "read", 4);
    for (size_t i = 0; i < NUM_BLOCKS; i++) check_block(&met, NUM_BLOCKS - 1 - i, i);
    CHECK_STR(python_send(&met.client, "fill 17"), "filled");
    CHECK_STR(python_send(&met.client, "move write kvmem %llu wrote", (unsigned long long)met.ours),
              "DONE");
    agent_expect_notification(met.agent, "python", "wrote", 5);
    check_filled(&met, 17);
    CHECK_STR(python_send(&met.client, "notify kvmem alone"), "notified");
    agent_expect_notification(met.agent, "python", "alone", 5);
    EXPECT_OK(kvmem_agent_notify(met.agent, "python", "hi", 2, ERR));
    CHECK_STR(python_send(&met.client, "expect kvmem"), "6869");
}
