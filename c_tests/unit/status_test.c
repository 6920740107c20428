// SPDX-License-Identifier: Apache-2.0
// Versions, statuses and their names, and error objects with their native cause.
#include "harness.h"

TEST(version_is_the_headers) {
    char text[32];
    snprintf(text, sizeof(text), "%d.%d.%d", KVMEM_VERSION_MAJOR, KVMEM_VERSION_MINOR, KVMEM_VERSION_PATCH);
    CHECK_STR(kvmem_version_string(), text);
    CHECK_EQ(kvmem_abi_version(), KVMEM_ABI_VERSION);
}

#define NAMED(name) {KVMEM_STATUS_##name, "KVMEM_STATUS_" #name}
static const struct {
    kvmem_status status;
    const char *name;
} statuses[] = {
    NAMED(OK),
    NAMED(IN_PROGRESS),
    NAMED(INVALID_ARGUMENT),
    NAMED(OUT_OF_MEMORY),
    NAMED(OUT_OF_RANGE),
    NAMED(NOT_FOUND),
    NAMED(ALREADY_EXISTS),
    NAMED(INVALID_STATE),
    NAMED(BUSY),
    NAMED(TIMED_OUT),
    NAMED(CANCELLED),
    NAMED(UNSUPPORTED),
    NAMED(PERMISSION_DENIED),
    NAMED(UNAVAILABLE_CUDA),
    NAMED(UNAVAILABLE_NIXL),
    NAMED(CUDA),
    NAMED(NIXL),
    NAMED(IO),
    NAMED(PEER_LOST),
    NAMED(STALE),
    NAMED(CORRUPT),
    NAMED(VERSION_MISMATCH),
    NAMED(PANIC),
};

TEST(every_status_has_a_name_and_a_sentence) {
    for (size_t i = 0; i < NUM(statuses); i++) {
        CHECK_STR(kvmem_status_name(statuses[i].status), statuses[i].name);
        CHECK(strlen(kvmem_status_message(statuses[i].status)) > 1);
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(kvmem_status_message(statuses[i].status),
                         kvmem_status_message(statuses[j].status)) != 0);
    }
}

TEST(unknown_statuses_have_a_text) {
    const kvmem_status unknown[] = {
        INT32_MIN,
        KVMEM_STATUS_PANIC - 1,
        KVMEM_STATUS_IN_PROGRESS + 1,
        INT32_MAX,
    };
    for (size_t i = 0; i < NUM(unknown); i++) {
        CHECK_STR(kvmem_status_name(unknown[i]), "KVMEM_STATUS_UNKNOWN");
        CHECK(strlen(kvmem_status_message(unknown[i])) > 1);
    }
}

static kvmem_status create_in(const char *directory, kvmem_error **error) {
    kvmem_disk_options options = OPTIONS(kvmem_disk_options, it.size = 4096, it.directory = directory);
    OWNED(kvmem_region) region = NULL;
    return kvmem_region_create_disk(&options, &region, error);
}

TEST(errors_carry_the_native_cause) {
    const kvmem_status status = create_in("/nonexistent/directory", ERR);
    CHECK(status < 0);
    CHECK_HAS(test_last_message(), "/nonexistent/directory");
    kvmem_error_cause cause;
    EXPECT_OK(kvmem_error_get_cause(test_last_error(), &cause));
    CHECK_EQ(cause.domain, KVMEM_DOMAIN_ERRNO);
    CHECK_EQ(cause.code, ENOENT);
    CHECK_STR(cause.name, "ENOENT");
}

TEST(errors_without_a_native_cause_have_none) {
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "", kvmem_region_create_system, REF(OPTIONS(kvmem_system_options)));
    kvmem_error_cause cause;
    EXPECT_OK(kvmem_error_get_cause(test_last_error(), &cause));
    CHECK_EQ(cause.domain, KVMEM_DOMAIN_NONE);
    CHECK_EQ(cause.code, 0);
}

TEST(a_null_error_reads_as_ok) {
    size_t length = 77;
    CHECK_EQ(kvmem_error_status(NULL), KVMEM_STATUS_OK);
    CHECK_STR(kvmem_error_message(NULL, &length), "");
    CHECK_EQ(length, 0);
    CHECK_STR(kvmem_error_message(NULL, NULL), "");
    kvmem_error_destroy(NULL);
}

TEST(errors_outlive_the_next_call) {
    kvmem_error *first = NULL;
    OWNED(kvmem_error) second = NULL;
    CHECK(create_in("/nonexistent/first", &first) < 0);
    CHECK(create_in("/nonexistent/second", &second) < 0);
    CHECK_HAS(kvmem_error_message(first, NULL), "/nonexistent/first");
    CHECK_HAS(kvmem_error_message(second, NULL), "/nonexistent/second");
    kvmem_error_destroy(first);
    CHECK_HAS(kvmem_error_message(second, NULL), "/nonexistent/second");
}
