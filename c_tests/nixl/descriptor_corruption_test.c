// SPDX-License-Identifier: Apache-2.0
// Invalid layout descriptors: truncated, with one bit flipped, too long, or random. None is accepted.
#include "harness.h"

typedef struct fixture {
    kvmem_agent *near;
    kvmem_agent *far;
    kv_side side;
    message descriptor;
} fixture;

static void fixture_open(fixture *fixture) {
    fixture->near = agent_open("near");
    fixture->far = agent_open("far");
    kv_side_open(&fixture->side, REF(kv_config(&kv_kinds[1])), fixture->far, 1);
    agents_introduce(fixture->near, fixture->far);
    fixture->descriptor = layout_descriptor(fixture->side.layout);
}

static void fixture_close(fixture *fixture) {
    kv_side_close(&fixture->side);
    free(fixture->descriptor.data);
    kvmem_agent_destroy(fixture->near);
    kvmem_agent_destroy(fixture->far);
}

/* Expects CORRUPT; `how` describes the damage in the failure message. The bytes are located at the very end
   of an allocation, so that a sanitizer detects a read past them. */
static void refuse(kvmem_agent *agent, const void *bytes, size_t size, const char *how, size_t at) {
    unsigned char *exact = malloc(size ? size : 1);
    CHECK(exact != NULL);
    memcpy(exact, bytes, size);
    kvmem_layout *layout = (kvmem_layout *)exact;
    const kvmem_status status = kvmem_layout_import(agent, exact, size, &layout, ERR);
    free(exact);
    if (status != KVMEM_STATUS_CORRUPT && status != KVMEM_STATUS_VERSION_MISMATCH)
        FAIL("%s at %zu: %s: %s", how, at, kvmem_status_name(status), test_last_message());
    CHECK(layout == NULL);
}

TEST(every_truncation_fails) {
    OPENED(fixture, fixture);
    for (size_t size = 1; size < fixture.descriptor.size; size++)
        refuse(fixture.near, fixture.descriptor.data, size, "cut", size);
}

TEST(every_flipped_bit_fails) {
    OPENED(fixture, fixture);
    for (size_t bit = 0; bit < 8 * fixture.descriptor.size; bit++) {
        fixture.descriptor.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        refuse(fixture.near, fixture.descriptor.data, fixture.descriptor.size, "flipped bit", bit);
        fixture.descriptor.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    OWNED(kvmem_layout) layout = NULL; /* restored, it is accepted again */
    const message *whole = &fixture.descriptor;
    EXPECT_OK(kvmem_layout_import(fixture.near, whole->data, whole->size, &layout, ERR));
}

TEST(bytes_after_the_end_fail) {
    OPENED(fixture, fixture);
    CLEANUP(test_free) unsigned char *longer = test_allocate(fixture.descriptor.size + 64);
    memcpy(longer, fixture.descriptor.data, fixture.descriptor.size);
    refuse(fixture.near, longer, fixture.descriptor.size + 1, "one more byte", fixture.descriptor.size);
    refuse(fixture.near, longer, fixture.descriptor.size + 64, "64 more bytes", fixture.descriptor.size);
}

TEST(random_bytes_fail) {
    OPENED(fixture, fixture);
    unsigned char garbage[512];
    for (uint32_t seed = 0; seed < 2000; seed++) {
        kv_fill(garbage, sizeof(garbage), seed);
        refuse(fixture.near, garbage, 1 + seed % sizeof(garbage), "garbage", seed);
    }
    memset(garbage, 0, sizeof(garbage));
    refuse(fixture.near, garbage, sizeof(garbage), "zeroes", 0);
    memset(garbage, 0xFF, sizeof(garbage));
    refuse(fixture.near, garbage, sizeof(garbage), "ones", 0);
}

/* The first bytes, see docs/layout-descriptor.md. */
#define VERSION_AT 8
#define NEWEST_VERSION 5
#define CHECKSUM_AT 16
#define BODY_AT 20

/* Computes the checksum of the changed bytes. */
static void sign(message *descriptor) {
    const uint32_t header = crc_append(0, descriptor->data, CHECKSUM_AT);
    const uint32_t crc = crc_append(header, descriptor->data + BODY_AT, descriptor->size - BODY_AT);
    for (int i = 0; i < 4; i++) descriptor->data[CHECKSUM_AT + i] = (unsigned char)(crc >> 8 * i);
}

TEST(a_newer_version_fails_with_its_number) {
    OPENED(fixture, fixture);
    const message *descriptor = &fixture.descriptor;
    sign(&fixture.descriptor); /* changes nothing, which proves that sign is correct */
    EXPECT_OK(TRIED(kvmem_layout, kvmem_layout_import, fixture.near, descriptor->data, descriptor->size));
    fixture.descriptor.data[VERSION_AT] = NEWEST_VERSION + 1;
    sign(&fixture.descriptor);
    REFUSE(KVMEM_STATUS_VERSION_MISMATCH, "has version 6", kvmem_layout_import, fixture.near,
           descriptor->data, descriptor->size);
}

/* Whether all of a range is in memory that the far agent registered. */
static bool is_registered(const kv_side *side, uint64_t address, uint64_t size) {
    for (size_t i = 0; i < side->num_regions; i++) {
        const uint64_t start = (uintptr_t)side->memory + side->starts[i];
        if (address >= start && size <= kv_region_size(&side->config) &&
            address - start <= kv_region_size(&side->config) - size) {
            return true;
        }
    }
    return false;
}

static void check_every_block_is_registered(const kvmem_layout *layout, const kv_side *side) {
    GET(kvmem_layout_info, info, kvmem_layout_get_info, layout);
    for (uint64_t block = 0; block < info.num_blocks; block++) {
        for (uint64_t layer = 0; layer < info.num_layers; layer++) {
            for (uint64_t outer = 0; outer < info.outer_dim; outer++) {
                GET(kvmem_block, piece, kvmem_layout_get_block, layout, block, layer, outer);
                CHECK(is_registered(side, piece.address, piece.size));
            }
        }
    }
}

/* An attacker can compute checksums. Such a descriptor may describe other blocks, but no memory outside the
   registered memory. */
TEST(a_forged_descriptor_reaches_no_other_memory) {
    OPENED(fixture, fixture);
    message *lie = &fixture.descriptor;
    size_t refused = 0;
    for (size_t bit = 8 * BODY_AT; bit < 8 * lie->size; bit++) {
        lie->data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        sign(lie);
        kvmem_layout *layout = NULL;
        if (kvmem_layout_import(fixture.near, lie->data, lie->size, &layout, ERR) == KVMEM_STATUS_OK) {
            check_every_block_is_registered(layout, &fixture.side);
            kvmem_layout_destroy(layout);
        } else {
            CHECK(layout == NULL);
            refused++;
        }
        lie->data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    CHECK(refused > 0);
}
