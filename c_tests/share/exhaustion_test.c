// SPDX-License-Identifier: Apache-2.0
// Too few file descriptors at every step of sharing and opening: the call reports it and leaks nothing.
#include "driver.h"
#include "kinds.h"
#include "offer.h"
#include "opened.h"

HOLDER_ROLE

/* More than any step needs. */
#define TOO_MANY 64

static struct rlimit before;

/* Allows `more` file descriptors in addition to those that are open. */
static void allow(size_t open_files, size_t more) {
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit few = {open_files + more, before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
}

static void allow_all(void) { CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0); }

/* Drivers that open several descriptors at once may fail while some are left, and do not report the reason.
   The stand-in does this when it imports a fabric handle. */
static bool may_be_driver_limit(memory_kind kind, size_t more) {
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
    if (!is_right && (status != KVMEM_STATUS_CUDA || !may_be_driver_limit(kind, more)))
        FAIL("%s with %zu file descriptors: %s: %s", memory_names[kind], more, kvmem_status_name(status),
             test_last_message());
}

/* The first share of a region creates its control block, so each attempt needs a new region. */
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

TEST(sharing_without_file_descriptors_fails) {
    for EACH_KIND(kind) {
        /* warm-up: creates per-process state */
        CHECK_EQ(share_with(kind, TOO_MANY), KVMEM_STATUS_OK);
        const size_t files = count_open_files();
        kvmem_status status = KVMEM_STATUS_OUT_OF_MEMORY;
        size_t more = 0;
        for (; status != KVMEM_STATUS_OK; more++) {
            CHECK(more < TOO_MANY);
            status = share_with(kind, more);
            if (kind == MEMORY_ADOPTED || kind == MEMORY_MAPPED) {
                continue; /* allocations of the engine are never freed, and have files with the stand-in */
            }
            AWAIT(count_open_files() == files); /* a driver may close some later */
            if (status != KVMEM_STATUS_OK) check_refused(status, kind, more);
        }
        CHECK(more > 1);
    }
}

#define REPEATS 32

/* The first share of a region creates a control block, and maps it before the last file descriptor is
   created. */
TEST(a_failed_share_leaks_no_mapping) {
    for EACH_KIND(kind) {
        if (kind == MEMORY_ADOPTED || kind == MEMORY_MAPPED) {
            continue; /* allocations of the engine are never freed, and are mapped with the stand-in */
        }
        for (size_t more = 0; more < 6; more++) {
            share_with(kind, more); /* warm-up: creates per-process state */
            const size_t mappings = count_file_mappings();
            for (size_t i = 0; i < REPEATS; i++) share_with(kind, more);
            CHECK_EQ(count_file_mappings(), mappings);
        }
    }
}

static void open_with_increasing_limits(const parcel *parcel, memory_kind kind, uint64_t flags) {
    CHECK_EQ(try_parcel(parcel, flags), KVMEM_STATUS_OK); /* warm-up: creates per-process state */
    const size_t files = count_open_files();
    kvmem_status status = KVMEM_STATUS_OUT_OF_MEMORY;
    size_t more = 0;
    for (; status != KVMEM_STATUS_OK; more++) {
        CHECK(more < TOO_MANY);
        allow(files, more);
        status = try_parcel(parcel, flags);
        allow_all();
        AWAIT(count_open_files() == files); /* a driver may close some later */
        if (status != KVMEM_STATUS_OK) check_refused(status, kind, more);
    }
    CHECK(more > 1);
}

TEST_EACH_KIND(opening_without_file_descriptors_fails) {
    OPENED(offer, offer, kind, NULL);
    open_with_increasing_limits(&offer.parcel, kind, 0);
    open_with_increasing_limits(&offer.parcel, kind, KVMEM_OPEN_READ_ONLY);
    CHECK_EQ(offer_importers(&offer), 0);
}

/* A share created with the last free descriptors is complete. It identifies its owner. */
TEST_EACH_KIND(a_share_of_the_last_descriptors_is_complete) {
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

/* Checking an owner needs file descriptors too. Without any, a live owner must not be reported as lost. */
TEST_EACH_KIND(an_owner_that_cannot_be_checked_is_not_lost) {
    OPENED(offer, offer, kind, NULL);
    OWNED(kvmem_region) region = open_parcel(&offer.parcel, 0);
    const size_t files = count_open_files();
    for (size_t more = 0; more < 4; more++) {
        allow(files, more);
        EXPECT_OK(kvmem_region_check_owner(region, ERR));
        allow_all();
    }
}
