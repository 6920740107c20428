// SPDX-License-Identifier: Apache-2.0
// Finding the real NIXL library, after other files were tried in vain, and that it is never exchanged.
#include "harness.h"

#include <libgen.h>

static void fail_to_load(const char *path, const char *part) {
    EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_NIXL, part, kvmem_nixl_load(path, ERR));
    CHECK_HAS(test_last_message(), path);
}

/* First in the table: nothing is loaded before it. */
TEST(failures_do_not_spoil_the_good_library) {
    char path[4096] = "untouched";
    size_t size = 0;
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_nixl_get_path(path, sizeof(path), &size, ERR));
    CHECK_STR(path, "untouched");
    scratch directory = scratch_create(temporary_directory());
    const char *text = scratch_file(&directory, "libnixl_capi.so");
    fail_to_load(text, "missing");
    write_file(text, "not a library\n", 14);
    fail_to_load(text, "broken");
    fail_to_load(KVMEM_TEST_TOO_OLD_LIBRARY, "too old");
    scratch_remove(&directory);
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    kvmem_agent *agent = NULL;
    EXPECT_OK(kvmem_agent_create("after_failures", NULL, &agent, ERR));
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    kvmem_blob *metadata = NULL;
    EXPECT_OK(kvmem_agent_get_local_metadata(agent, &metadata, ERR));
    kvmem_blob_destroy(metadata);
    kvmem_agent_destroy(agent);
}

TEST(the_path_is_answered_in_two_calls) {
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    size_t size = 0;
    EXPECT_OK(kvmem_nixl_get_path(NULL, 0, &size, ERR));
    char *path = test_allocate(size);
    EXPECT_OK(kvmem_nixl_get_path(path, size, &size, ERR));
    CHECK_EQ(strlen(path) + 1, size);
    CHECK_HAS(path, "libnixl_capi.so");
    char small[4] = "abc";
    size_t needed = 0;
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_nixl_get_path(small, sizeof(small), &needed, ERR));
    CHECK_EQ(needed, size);
    CHECK_STR(small, "abc");
    free(path);
}

TEST(loading_again_is_fine_by_file_and_by_directory) {
    const char *named = getenv("KVMEM_NIXL_LIBRARY");
    CHECK(named != NULL);
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    EXPECT_OK(kvmem_nixl_load(named, ERR));
    char *copy = strdup(named);
    CHECK(copy != NULL);
    EXPECT_OK(kvmem_nixl_load(dirname(copy), ERR));
    free(copy);
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
}

TEST(another_library_is_refused_once_one_is_loaded) {
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_ALREADY_EXISTS, KVMEM_TEST_TOO_OLD_LIBRARY,
                   kvmem_nixl_load(KVMEM_TEST_TOO_OLD_LIBRARY, ERR));
    EXPECT(KVMEM_STATUS_ALREADY_EXISTS, kvmem_nixl_load("/nonexistent/libnixl_capi.so", ERR));
}
