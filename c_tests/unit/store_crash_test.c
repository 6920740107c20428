// SPDX-License-Identifier: Apache-2.0
// A writer of a store is killed at any moment: what it had reported as stored is there with its bytes, and nothing else is wrong.
// Readers beside it get no wrong bytes; a writer that is stopped keeps others away, and one that has ended is followed by another one.
#include "harness.h"

#include <signal.h>
#include <stdlib.h>

#define SLOTS 64
enum { OPEN = 1, STORED };

/* Blocks of a layout in host memory; block b is filled with its number, and the number of the key. */
static kvmem_layout_config config(void) {
    return WITH(kv_aligned_config(&kv_kinds[0]), it.num_blocks = SLOTS);
}

static kvmem_store *open_store(const char *path) {
    store_setup setup;
    store_setup_init(&setup, path, REF(config()));
    return MADE(kvmem_store, kvmem_store_open, &setup.options, PATIENCE);
}

static kvmem_store *open_to_read(const char *path) {
    store_setup setup;
    store_setup_init(&setup, path, REF(config()));
    setup.options.flags = KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_READ_ONLY;
    return MADE(kvmem_store, kvmem_store_open, &setup.options, PATIENCE);
}

static unsigned char *block_of(const kvmem_layout *layout, uint32_t block, uint64_t *stride) {
    GET(kvmem_layout_info, info, kvmem_layout_get_info, layout);
    OWN(kvmem_region, region, kvmem_layout_get_region, layout, 0);
    *stride = info.block_stride;
    return (unsigned char *)(uintptr_t)region_info(region).address + block * info.block_stride;
}

/* Fills a block with what belongs to a number. */
static void fill(const kvmem_layout *layout, uint32_t block, uint64_t number) {
    uint64_t stride = 0;
    unsigned char *bytes = block_of(layout, block, &stride);
    for (uint64_t i = 0; i < stride / sizeof(number); i++) memcpy(bytes + i * sizeof(number), &number, sizeof(number));
}

/* Puts blocks without an end, more than the store has slots for, and reports each number that is stored. */
ROLE(writer) {
    CLEANUP(message_free) message path = frame_expect(socket, OPEN);
    OWNED(kvmem_layout) layout = layout_allocate_system(REF(config()));
    OWNED(kvmem_store) store = open_store((const char *)path.data);
    for (uint64_t number = 0;; number++) {
        uint64_t next = number;
        while (store_has(store, next)) next++;
        number = next;
        fill(layout, 0, number);
        size_t moved = 0;
        EXPECT_OK(store_put(store, layout, number, (uint32_t[]){0}, 1, &moved));
        if (moved == 1) frame_send(socket, STORED, &number, sizeof(number));
    }
}

static void check_bytes(const kvmem_layout *layout, uint64_t number) {
    uint64_t stride = 0;
    const unsigned char *bytes = block_of(layout, 1, &stride);
    for (uint64_t i = 0; i < stride; i += sizeof(number)) CHECK_EQ(memcmp(bytes + i, &number, sizeof(number)), 0);
}

/* Opens what a killed writer has left. The last number that it has reported is stored, and so are those before it that
   cannot have been evicted; each key has its bytes. */
static void check(const char *path, uint64_t last) {
    OWNED(kvmem_store) store = open_store(path);
    OWNED(kvmem_layout) layout = layout_allocate_system(REF(config()));
    uint64_t damaged = 99;
    EXPECT_OK(kvmem_store_verify(store, PATIENCE, &damaged, ERR));
    CHECK_EQ(damaged, 0);
    CHECK(store_has(store, last));
    for (uint64_t number = 0; number <= last + 1; number++) {
        if (!store_has(store, number)) continue;
        size_t found = 0;
        EXPECT_OK(store_get(store, layout, number, (uint32_t[]){1}, 1, &found));
        check_bytes(layout, number);
    }
}

/* On record: KVMEM_TEST_KILLS=10000. */
TEST(a_killed_writer_loses_nothing_that_it_reported) {
    SCRATCH_FILE(path, "store");
    const char *wanted = getenv("KVMEM_TEST_KILLS");
    const int kills = wanted != NULL ? atoi(wanted) : 12;
    for (int i = 0; i < kills; i++) {
        peer child = peer_start("writer");
        frame_send(child.socket, OPEN, path, strlen(path) + 1);
        uint64_t last = 0;
        for (int reports = 1 + i * 7 % 40; reports > 0; reports--) {
            CLEANUP(message_free) message stored = frame_expect(child.socket, STORED);
            memcpy(&last, stored.data, sizeof(last));
        }
        peer_kill(&child);
        check(path, last);
    }
}

/* A get of a reader: its block, a miss, or one that the writer has replaced meanwhile. Returns whether it has the block. */
static bool get_beside(kvmem_store *reader, const kvmem_layout *layout, uint64_t number) {
    size_t found = 0;
    const kvmem_status status = store_get(reader, layout, number, (uint32_t[]){1}, 1, &found);
    if (status == KVMEM_STATUS_CORRUPT) {
        CHECK_HAS(test_last_message(), "blocks were replaced");
        return false;
    }
    CHECK_EQ(status, KVMEM_STATUS_OK);
    if (found == 1) check_bytes(layout, number);
    return found == 1;
}

TEST(readers_get_no_wrong_bytes_beside_a_writer_that_is_stopped_and_killed) {
    SCRATCH_FILE(path, "store");
    OWNED(kvmem_layout) layout = layout_allocate_system(REF(config()));
    peer child = peer_start("writer");
    frame_send(child.socket, OPEN, path, strlen(path) + 1);
    message_free(REF(frame_expect(child.socket, STORED)));
    OWNED(kvmem_store) reader = open_to_read(path);
    OWNED(kvmem_store) other = open_to_read(path);
    uint64_t last = 0, right = 0;
    for (int i = 0; i < 400; i++) {
        CLEANUP(message_free) message stored = frame_expect(child.socket, STORED);
        memcpy(&last, stored.data, sizeof(last));
        for (uint64_t back = 0; back < 3; back++)
            right += get_beside(i % 2 == 0 ? reader : other, layout, last - (back * 29 < last ? back * 29 : 0));
    }
    CHECK(right > 0); /* the writer may have replaced the others before the reader looked */
    CHECK_EQ(kill(child.pid, SIGSTOP), 0);
    store_setup setup;
    store_setup_init(&setup, path, REF(config()));
    REFUSE(KVMEM_STATUS_BUSY, TEXT("process %d", (int)child.pid), kvmem_store_open, &setup.options, PATIENCE);
    (void)get_beside(reader, layout, last);
    peer_kill(&child);
    {
        OWNED(kvmem_store) next = open_store(path);
        fill(layout, 0, 1000000);
        size_t moved = 0;
        EXPECT_OK(store_put(next, layout, 1000000, (uint32_t[]){0}, 1, &moved));
        CHECK(get_beside(reader, layout, 1000000) && get_beside(other, layout, 1000000));
        EXPECT_MESSAGE(KVMEM_STATUS_PERMISSION_DENIED, "open for reading",
                       store_put(reader, layout, 1000001, (uint32_t[]){0}, 1, &moved));
    }
    CHECK(get_beside(reader, layout, 1000000)); /* there is no writer */
}
