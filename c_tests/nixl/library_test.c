// SPDX-License-Identifier: Apache-2.0
// Finding the real NIXL library after attempts with other files; a loaded library is never replaced.
#include "harness.h"

#include <libgen.h>

static void fail_to_load(const char *path, const char *part) {
    EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_NIXL, part, kvmem_nixl_load(path, ERR));
    CHECK_HAS(test_last_message(), path);
}

/* This is the first case, so nothing is loaded before it. */
TEST(the_library_loads_after_failed_attempts) {
    REFUSE(KVMEM_STATUS_INVALID_STATE, "", kvmem_nixl_get_path);
    scratch directory = scratch_create(temporary_directory());
    const char *text = scratch_file(&directory, "libnixl_capi.so");
    fail_to_load(text, "missing");
    write_file(text, "not a library\n", 14);
    fail_to_load(text, "broken");
    fail_to_load(KVMEM_TEST_TOO_OLD_LIBRARY, "too old");
    fail_to_load(KVMEM_TEST_OTHER_API, "SONAME");
    scratch_remove(&directory);
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    OWN(kvmem_agent, agent, kvmem_agent_create, "after_failures", NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    OWN(kvmem_blob, metadata, kvmem_agent_get_local_metadata, agent);
}

TEST(the_path_is_returned_as_text) {
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    OWN(kvmem_blob, path, kvmem_nixl_get_path);
    const char *text = kvmem_blob_data(path);
    CHECK_EQ(strlen(text), kvmem_blob_size(path));
    CHECK_HAS(text, "libnixl_capi.so");
}

TEST(loading_again_succeeds_by_file_and_by_directory) {
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

TEST(a_second_library_fails_once_one_is_loaded) {
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_ALREADY_EXISTS, KVMEM_TEST_TOO_OLD_LIBRARY,
                   kvmem_nixl_load(KVMEM_TEST_TOO_OLD_LIBRARY, ERR));
    EXPECT(KVMEM_STATUS_ALREADY_EXISTS, kvmem_nixl_load("/nonexistent/libnixl_capi.so", ERR));
}
