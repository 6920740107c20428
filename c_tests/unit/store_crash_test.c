// SPDX-License-Identifier: Apache-2.0
// A writer of a store is killed at any moment: what it had reported as stored is there with its bytes, and nothing else is wrong.
#include "harness.h"

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

/* Opens what a killed writer has left. The last number that it has reported is stored, and so are those before it that
   cannot have been evicted; each key has its bytes. */
static void check(const char *path, uint64_t last) {
    OWNED(kvmem_store) store = open_store(path);
    OWNED(kvmem_layout) layout = layout_allocate_system(REF(config()));
    uint64_t damaged = 99;
    EXPECT_OK(kvmem_store_verify(store, PATIENCE, &damaged, ERR));
    CHECK_EQ(damaged, 0);
    CHECK(store_has(store, last));
    uint64_t stride = 0;
    for (uint64_t number = 0; number <= last + 1; number++) {
        if (!store_has(store, number)) continue;
        size_t found = 0;
        EXPECT_OK(store_get(store, layout, number, (uint32_t[]){1}, 1, &found));
        const unsigned char *bytes = block_of(layout, 1, &stride);
        for (uint64_t i = 0; i < stride; i += sizeof(number)) CHECK_EQ(memcmp(bytes + i, &number, sizeof(number)), 0);
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
