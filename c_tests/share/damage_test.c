// SPDX-License-Identifier: Apache-2.0
// Damaged and forged manifests: each fails with the status that fits, and leaks nothing.
#include "forged.h"
#include "target.h"

KEEPING_HOLDER_ROLE

/* Expects CORRUPT; `how` describes the damage in the failure message. The bytes are located at the very end
   of an allocation, so that a sanitizer detects a read past them. */
static void refuse_bytes(const parcel *parcel, const void *bytes, size_t size, const char *how, size_t at) {
    unsigned char *exact = malloc(size ? size : 1);
    CHECK(exact != NULL);
    memcpy(exact, bytes, size);
    kvmem_share *share = (kvmem_share *)exact;
    const kvmem_status status =
        kvmem_share_create_received(exact, size, parcel->fds, parcel->num_fds, &share, ERR);
    free(exact);
    if (status != KVMEM_STATUS_CORRUPT)
        FAIL("%s at %zu: %s: %s", how, at, kvmem_status_name(status), test_last_message());
    CHECK(share == NULL);
}

TEST_EACH_KIND(damaged_bytes_are_corrupt) {
    OPENED(target, fixture, kind, NULL);
    const message whole = fixture.parcel.bytes;
    CLEANUP(test_free) unsigned char *bytes = test_allocate(whole.size + 64);
    memcpy(bytes, whole.data, whole.size);
    for (size_t size = 1; size < whole.size; size++) refuse_bytes(&fixture.parcel, bytes, size, "cut", size);
    for (size_t more = 1; more <= 64; more++)
        refuse_bytes(&fixture.parcel, bytes, whole.size + more, "extended", more);
    for (size_t bit = 0; bit < whole.size * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        refuse_bytes(&fixture.parcel, bytes, whole.size, "bit flipped", bit);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

/* If the manifest opens, all of the region must be readable. */
static void open_and_read(const parcel *forged, const char *how, size_t at) {
    kvmem_share *share = NULL;
    OWNED(kvmem_region) region = NULL;
    kvmem_status status = parcel_read(forged, &share);
    THEN(status, kvmem_share_open_region(share, NULL, &region, ERR));
    kvmem_share_destroy(share);
    if (status == KVMEM_STATUS_OK) {
        const uint64_t size = region_info(region).size / 4096 * 4096; /* files are read in blocks */
        CLEANUP(test_free) unsigned char *bytes = test_allocate(size);
        memory_read(region, 0, bytes, size);
    } else if (status == KVMEM_STATUS_PANIC || status == KVMEM_STATUS_INVALID_ARGUMENT) {
        FAIL("%s at %zu: %s: %s", how, at, kvmem_status_name(status), test_last_message());
    }
}

/* Changes each byte of the fields, and recomputes the checksum, as an attacker would. */
TEST(a_changed_byte_gives_memory_or_an_error) {
    static const unsigned char changes[] = {0x01, 0x20, 0x80, 0xFF};
    for EACH_KIND(kind) {
        OPENED(target, fixture, kind, NULL);
        parcel forged = parcel_copy(&fixture.parcel);
        fixture.files = count_open_files();
        for (size_t at = FORGED_HEADER; at < forged.bytes.size; at++) {
            if (forged_is_of_handle(&fixture.parcel.bytes, at)) continue;
            for (size_t i = 0; i < NUM(changes); i++) {
                forged.bytes.data[at] ^= changes[i];
                forge_seal(&forged);
                open_and_read(&forged, memory_names[kind], at);
                forged.bytes.data[at] ^= changes[i];
            }
        }
        target_check(&fixture);
        parcel_close(&forged);
        fixture.files = count_open_files();
    }
}

typedef void (*forge)(parcel *parcel);
/* Defines a forgery that makes these calls. */
#define FORGE(name, ...)                                                                             \
    static void name(parcel *parcel) {                                                               \
        __VA_ARGS__;                                                                                 \
    }

static void refuse_forged(const target *fixture, forge forge, kvmem_status status, const char *part) {
    parcel forged = parcel_copy(&fixture->parcel);
    forge(&forged);
    refuse_parcel(&forged, 0, status, part);
    parcel_close(&forged);
    target_check(fixture);
}

FORGE(of_another_boot, forge_text(parcel, "boot_id", "another"))
FORGE(of_another_id, forge_bytes(parcel, "id"))
FORGE(of_an_older_version, parcel->bytes.data[8] = 5, forge_seal(parcel))
FORGE(of_a_newer_version, parcel->bytes.data[8] = 7, forge_seal(parcel))
FORGE(of_unknown_flags, parcel->bytes.data[10] = 1, forge_seal(parcel))
FORGE(of_no_size, forge_integer(parcel, "size", 0))
FORGE(of_endless_size, forge_integer(parcel, "size", UINT64_MAX))

static void of_another_tier(parcel *parcel) {
    const unsigned char *bytes = parcel->bytes.data;
    const bool is_disk = memmem(bytes, parcel->bytes.size, "dDisk", 5) != NULL;
    forge_text(parcel, "tier", is_disk ? "System" : "Disk");
}

FORGE(past_its_region, forge_integer(parcel, "offset", UINT64_MAX))
FORGE(of_no_process, forge_integer(parcel, "pid", UINT64_MAX))

typedef struct forgery {
    forge forge;
    kvmem_status status;
    const char *part;
} forgery;

/* Applies each of these forgeries to a share of a region of that kind. */
static void expect_refused_forgeries(memory_kind kind, const forgery *lies, size_t count) {
    OPENED(target, fixture, kind, NULL);
    for (size_t i = 0; i < count; i++) {
        refuse_forged(&fixture, lies[i].forge, lies[i].status, lies[i].part);
    }
}

TEST(forged_manifests_fail) {
    static const forgery lies[] = {
        {of_another_boot, KVMEM_STATUS_UNSUPPORTED, "another machine"},
        {of_another_id, KVMEM_STATUS_CORRUPT, "another region"},
        {of_an_older_version, KVMEM_STATUS_VERSION_MISMATCH, "has version 5"},
        {of_a_newer_version, KVMEM_STATUS_VERSION_MISMATCH, "has version 7"},
        {of_unknown_flags, KVMEM_STATUS_VERSION_MISMATCH, "version"},
        {of_no_size, KVMEM_STATUS_CORRUPT, "0 bytes"},
        {of_endless_size, KVMEM_STATUS_CORRUPT, ""},
        {of_another_tier, KVMEM_STATUS_CORRUPT, "this type of handle is invalid"},
        {past_its_region, KVMEM_STATUS_CORRUPT, ""},
        {of_no_process, KVMEM_STATUS_CORRUPT, ""},
    };
    for EACH_KIND(kind) expect_refused_forgeries(kind, lies, NUM(lies));
}

/* Larger than the memory, but still a plausible size. */
static void larger_than_its_memory(parcel *parcel) {
    const uint64_t extent = MEMORY_EXTENT;
    forge_integer(parcel, "size", MEMORY_SIZE + extent);
}

TEST_EACH_KIND(sizes_are_checked_against_the_memory) {
    OPENED(target, fixture, kind, NULL);
    refuse_forged(&fixture, larger_than_its_memory, KVMEM_STATUS_CORRUPT, "");
}

#ifndef KVMEM_TEST_SHARE_GPU
FORGE(to_be_written, forge_text(parcel, "access", "ReadWrite"))

TEST(a_forged_access_right_fails) {
    const kvmem_share_options to_be_read = {.struct_size = sizeof(to_be_read),
                                            .flags = KVMEM_SHARE_READ_ONLY};
    for EACH_KIND(kind) {
        OPENED(target, fixture, kind, &to_be_read);
        refuse_forged(&fixture, to_be_written, KVMEM_STATUS_PERMISSION_DENIED, "");
    }
}
#else
FORGE(of_an_unknown_gpu, memset(forged_bytes(parcel, "device", 16), 0xA5, 16), forge_seal(parcel))
FORGE(of_another_size_of_extents, forge_integer(parcel, "extent_size", 2 * MEMORY_EXTENT))
FORGE(of_small_extents, forge_integer(parcel, "extent_size", 1))
FORGE(of_another_allocation, forge_integer(parcel, "base_size", forged_integer(parcel, "base_size") + 4096))
FORGE(of_no_allocation, memset(forged_bytes(parcel, "handle", 64), 0xA5, 64), forge_seal(parcel))

/* The first "size" is the region's, the next ones are the mappings'. */
static void of_a_smaller_mapping(parcel *parcel) {
    const unsigned char *mappings = memmem(parcel->bytes.data, parcel->bytes.size, "hmappings", 9);
    CHECK(mappings != NULL);
    const size_t before = (size_t)(mappings - parcel->bytes.data);
    unsigned char *size = memmem(mappings, parcel->bytes.size - before, "dsize", 5);
    CHECK(size != NULL);
    CHECK_EQ(size[5], 0x1a); /* an integer of four bytes follows */
    size[5 + 2] ^= 0x30;     /* of 2 MiB */
    forge_seal(parcel);
}

FORGE(of_nowhere_in_its_mappings, forge_integer(parcel, "offset", MEMORY_EXTENT))

TEST(forged_sizes_of_mappings_are_detected_by_the_driver) {
    static const forgery of_mapped[] = {
        {of_an_unknown_gpu, KVMEM_STATUS_NOT_FOUND, "GPU"},
        {of_a_smaller_mapping, KVMEM_STATUS_CORRUPT, "does not match the share"},
        {of_nowhere_in_its_mappings, KVMEM_STATUS_CORRUPT, "mappings"},
    };
    static const forgery of_fabric[] = {
        {of_an_unknown_gpu, KVMEM_STATUS_NOT_FOUND, "GPU"},
        {of_another_size_of_extents, KVMEM_STATUS_CORRUPT, ""},
        {of_no_allocation, KVMEM_STATUS_CORRUPT, "not a fabric handle"},
    };
    expect_refused_forgeries(MEMORY_MAPPED, of_mapped, NUM(of_mapped));
    if (memory_end_of_kinds() > MEMORY_FABRIC)
        expect_refused_forgeries(MEMORY_FABRIC, of_fabric, NUM(of_fabric));
}

TEST(forged_gpu_memory_is_detected_by_the_driver) {
    static const forgery of_device[] = {
        {of_an_unknown_gpu, KVMEM_STATUS_NOT_FOUND, "GPU"},
        {of_another_allocation, KVMEM_STATUS_STALE, ""},
        {of_no_allocation, KVMEM_STATUS_CORRUPT, ""},
    };
    static const forgery of_elastic[] = {
        {of_another_size_of_extents, KVMEM_STATUS_CORRUPT, ""},
        {of_small_extents, KVMEM_STATUS_CORRUPT, ""},
    };
    expect_refused_forgeries(MEMORY_DEVICE, of_device, NUM(of_device));
    expect_refused_forgeries(MEMORY_ELASTIC, of_elastic, NUM(of_elastic));
}

TEST(memory_of_another_gpu_is_corrupt) {
    OPENED(target, fixture, MEMORY_ELASTIC, NULL);
    if (driver_devices() > 1) {
        GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, 1);
        CLEANUP(parcel_close) parcel forged = parcel_copy(&fixture.parcel);
        memcpy(forged_bytes(&forged, "device", 16), info.uuid, 16);
        forge_seal(&forged);
        refuse_parcel(&forged, 0, KVMEM_STATUS_CORRUPT, "does not match the share");
    } else {
        refuse_forged(&fixture, of_an_unknown_gpu, KVMEM_STATUS_NOT_FOUND, "GPU");
    }
}
#endif
