// SPDX-License-Identifier: Apache-2.0
// Out of file descriptors at every step of sharing and opening: told so, with nothing left behind and nothing
// forgotten.
#include "driver.h"
#include "kinds.h"
#include "offer.h"
#include "opened.h"

HOLDER_ROLE

/* More than any step needs. */
#define TOO_MANY 64

static struct rlimit before;

/* Allows so many file descriptors beside those that are open. */
static void allow(size_t open_files, size_t more) {
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit few = {open_files + more, before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
}

static void allow_all(void) { CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0); }

/* A driver that opens several at once may fail with some left: then nothing tells why it did. The stand-in
 * does where it takes a fabric handle. */
static bool may_be_the_drivers(memory_kind kind, size_t more) {
    kvmem_error_cause cause = {0};
    kvmem_error_get_cause(test_last_error(), &cause);
    const bool has_gpu = memory_tier(kind) == KVMEM_TIER_DEVICE || memory_tier(kind) == KVMEM_TIER_ELASTIC;
    const bool opens_several = driver_symbol("sim_fail") == NULL || kind == MEMORY_FABRIC;
    return has_gpu && opens_several && more > 0 && cause.domain == KVMEM_DOMAIN_CUDA;
}

static void check_refused(kvmem_status status, memory_kind kind, size_t more) {
    const char *message = test_last_message();
    const bool is_said =
        strstr(message, "EMFILE") != NULL || strstr(message, "no free file descriptors") != NULL;
    const bool is_right = status == KVMEM_STATUS_OUT_OF_MEMORY && is_said;
    if (!is_right && (status != KVMEM_STATUS_CUDA || !may_be_the_drivers(kind, more)))
        FAIL("%s with %zu file descriptors: %s: %s", memory_names[kind], more, kvmem_status_name(status),
             test_last_message());
}

/* The first share of a region makes its control block: each try has a region of its own. */
static kvmem_status share_with(memory_kind kind, size_t more) {
    SCRATCH(directory);
    OWNED(kvmem_region) region = memory_create(kind, MEMORY_SIZE, scratch_file(&directory, "region"));
    OWNED(kvmem_share) share = NULL;
    allow(count_open_files(), more);
    const kvmem_status status = kvmem_share_create_region(region, NULL, &share, ERR);
    allow_all();
    CHECK((share == NULL) == (status != KVMEM_STATUS_OK));
    return status;
}

TEST(sharing_says_when_there_are_none) {
    for EACH_KIND(kind) {
        CHECK_EQ(share_with(kind, TOO_MANY), KVMEM_STATUS_OK); /* what stays for good is there now */
        const size_t files = count_open_files();
        kvmem_status status = KVMEM_STATUS_OUT_OF_MEMORY;
        size_t more = 0;
        for (; status != KVMEM_STATUS_OK; more++) {
            CHECK(more < TOO_MANY);
            status = share_with(kind, more);
            if (kind == MEMORY_ADOPTED || kind == MEMORY_MAPPED) {
                continue; /* the engine's allocations stay, and their files with them under the stand-in */
            }
            CHECK_EQ(count_open_files(), files);
            if (status != KVMEM_STATUS_OK) check_refused(status, kind, more);
        }
        CHECK(more > 1);
    }
}

#define REPEATS 32

/* The first share of a region makes a control block, which is mapped before the last of its file
 * descriptors is made. */
TEST(sharing_that_fails_leaves_no_mapping) {
    for EACH_KIND(kind) {
        if (kind == MEMORY_ADOPTED || kind == MEMORY_MAPPED) {
            continue; /* the engine's allocations stay, and are mapped under the stand-in */
        }
        for (size_t more = 0; more < 6; more++) {
            share_with(kind, more); /* what stays for good is there now */
            const size_t mappings = count_file_mappings();
            for (size_t i = 0; i < REPEATS; i++) share_with(kind, more);
            CHECK_EQ(count_file_mappings(), mappings);
        }
    }
}

static void open_with_ever_more(const parcel *parcel, memory_kind kind, uint64_t flags) {
    CHECK_EQ(try_parcel(parcel, flags), KVMEM_STATUS_OK); /* what stays for good is there now */
    const size_t files = count_open_files();
    kvmem_status status = KVMEM_STATUS_OUT_OF_MEMORY;
    size_t more = 0;
    for (; status != KVMEM_STATUS_OK; more++) {
        CHECK(more < TOO_MANY);
        allow(files, more);
        status = try_parcel(parcel, flags);
        allow_all();
        CHECK_EQ(count_open_files(), files);
        if (status != KVMEM_STATUS_OK) check_refused(status, kind, more);
    }
    CHECK(more > 1);
}

TEST_EACH_KIND(opening_says_when_there_are_none) {
    OPENED(offer, offer, kind, NULL);
    open_with_ever_more(&offer.parcel, kind, 0);
    open_with_ever_more(&offer.parcel, kind, KVMEM_OPEN_READ_ONLY);
    CHECK_EQ(offer_importers(&offer), 0);
}

/* A share that was made of the last file descriptors is as good as any: who made it is in it. */
TEST_EACH_KIND(a_share_of_the_last_ones_is_whole) {
    SCRATCH(directory);
    OWNED(kvmem_region) region = memory_create(kind, MEMORY_SIZE, scratch_file(&directory, "region"));
    memory_fill(region, 1);
    const size_t files = count_open_files();
    OWNED(kvmem_share) share = NULL;
    for (size_t more = 0; share == NULL; more++) {
        CHECK(more < TOO_MANY);
        allow(files, more);
        kvmem_share_create_region(region, NULL, &share, NULL);
        allow_all();
    }
    CLEANUP(parcel_close) parcel parcel = parcel_of(share);
    CLEANUP(peer_finish) peer importer = holder_start();
    CHECK_EQ(holder_open(&importer, &parcel, 0), KVMEM_STATUS_OK);
    holder_check(&importer, HOLDING_OPENED, 1);
    CHECK_EQ(holder_check_owner(&importer), KVMEM_STATUS_OK);
}

/* Asking needs file descriptors too: without any, the living are not called dead. */
TEST_EACH_KIND(an_owner_that_cannot_be_looked_for_is_not_lost) {
    OPENED(offer, offer, kind, NULL);
    OWNED(kvmem_region) region = open_parcel(&offer.parcel, 0);
    const size_t files = count_open_files();
    for (size_t more = 0; more < 4; more++) {
        allow(files, more);
        EXPECT_OK(kvmem_region_check_owner(region, ERR));
        allow_all();
    }
}
