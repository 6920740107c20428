// SPDX-License-Identifier: Apache-2.0
// A NIXL library that is named but unusable: missing, broken and too old give three different messages.
#include "harness.h"

#include <fcntl.h>
#include <libgen.h>
#include <sys/auxv.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

/* The result is the same whether the environment or an argument names it, and for an agent; the environment is named. */
static void expect_unavailable(const char *path, const char *part, char *message, size_t capacity) {
    EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_NIXL, part, kvmem_nixl_load(path, ERR));
    CHECK_HAS(test_last_message(), path);
    CHECK(strlen(test_last_message()) < capacity);
    strcpy(message, test_last_message());
    CHECK_EQ(setenv("KVMEM_NIXL_LIBRARY", path, 1), 0);
    EXPECT(KVMEM_STATUS_UNAVAILABLE_NIXL, kvmem_nixl_load(NULL, ERR));
    CHECK_HAS(test_last_message(), message);
    CHECK_HAS(test_last_message(), "the environment variable KVMEM_NIXL_LIBRARY names it");
    REFUSE(KVMEM_STATUS_UNAVAILABLE_NIXL, part, kvmem_agent_create, "unavailable", NULL);
    CHECK_EQ(unsetenv("KVMEM_NIXL_LIBRARY"), 0);
}

TEST(missing_broken_and_too_old_have_different_messages) {
    char missing[1024];
    char broken[1024];
    char too_old[1024];
    SCRATCH(directory);
    const char *path = scratch_file(&directory, "libnixl_capi.so");
    expect_unavailable(path, "missing", missing, sizeof(missing));
    write_file(path, "this is text, not a shared library\n", 35);
    expect_unavailable(path, "broken", broken, sizeof(broken));
    expect_unavailable(KVMEM_TEST_TOO_OLD_LIBRARY, "too old", too_old, sizeof(too_old));
    CHECK_HAS(too_old, "nixl_capi_"); /* the name of a missing function */
    CHECK(strcmp(missing, broken) != 0);
    CHECK(strcmp(broken, too_old) != 0);
    CHECK(strcmp(missing, too_old) != 0);
}

/* The SONAME says that its functions may have other parameters, so none is called: this one would abort. */
TEST(another_version_of_the_c_api_fails_with_both_versions) {
    char other[1024];
    expect_unavailable(KVMEM_TEST_OTHER_API, "SONAME", other, sizeof(other));
    CHECK_HAS(other, "libnixl_capi.so.0");
    CHECK_HAS(other, "NIXL 1.5");
    char *copy = strdup(KVMEM_TEST_OTHER_API);
    CHECK(copy != NULL);
    const char *directory = dirname(copy); /* it is found by this name, too */
    EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_NIXL, "libnixl_capi.so.0", kvmem_nixl_load(directory, ERR));
    free(copy);
}

TEST(a_directory_without_it_is_missing) {
    SCRATCH(directory);
    EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_NIXL, "missing", kvmem_nixl_load(directory.path, ERR));
    CHECK_HAS(test_last_message(), directory.path);
}

TEST(failures_leak_no_file) {
    KEEPS_FILES;
    for (int i = 0; i < 10; i++)
        EXPECT(KVMEM_STATUS_UNAVAILABLE_NIXL, kvmem_nixl_load(KVMEM_TEST_TOO_OLD_LIBRARY, ERR));
}

TEST(unusual_paths_are_missing_too) {
    EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_NIXL, "missing", kvmem_nixl_load("/not/\xFF/utf-8", ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_NIXL, "missing", kvmem_nixl_load("", ERR));
}

/* The role of a set-user-ID copy of this program. */
#define PRIVILEGED "--privileged"

/* The environment is that of the user who started the program. */
__attribute__((constructor)) static void be_privileged(int count, char **arguments) {
    if (count != 2 || strcmp(arguments[1], PRIVILEGED) != 0) return;
    if (getauxval(AT_SECURE) == 0) _exit(EXIT_SKIPPED);
    kvmem_error *error = NULL;
    setenv("KVMEM_NIXL_LIBRARY", "/chosen/by/the/user.so", 1);
    bool is_right = kvmem_nixl_load(NULL, &error) == KVMEM_STATUS_UNAVAILABLE_NIXL &&
                    strstr(kvmem_error_message(error, NULL), "/chosen/by") == NULL;
    kvmem_error_destroy(error);
    setenv("NIXL_PLUGIN_DIR", "/chosen/by/the/user", 1);
    is_right &= kvmem_nixl_load(NULL, &error) == KVMEM_STATUS_PERMISSION_DENIED &&
                strstr(kvmem_error_message(error, NULL), "NIXL_PLUGIN_DIR") != NULL;
    kvmem_error_destroy(error);
    _exit(is_right ? EXIT_SUCCESS : EXIT_FAILURE);
}

TEST(a_privileged_process_loads_no_library_that_its_environment_names) {
    if (geteuid() != 0) SKIP("root: a set-user-ID program of another user");
    SCRATCH(directory);
    const char *path = scratch_file(&directory, "privileged");
    const int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    const int to = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    struct stat size;
    CHECK(from >= 0 && to >= 0 && fstat(from, &size) == 0);
    for (off_t copied = 0; copied < size.st_size;)
        CHECK(sendfile(to, from, &copied, (size_t)size.st_size) > 0);
    CHECK_EQ(fchown(to, NOBODY_UID, NOBODY_UID), 0);
    CHECK_EQ(fchmod(to, 04755), 0);
    close(from);
    close(to);
    CHECK_EQ(chmod(directory.path, 0755), 0);
    const pid_t child = fork();
    if (child == 0) {
        execl(path, path, PRIVILEGED, (char *)NULL);
        _exit(EXIT_FAILURE);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) == EXIT_SKIPPED)
        SKIP("a file system with set-user-ID programs: %s", directory.path);
    CHECK_EQ(WEXITSTATUS(status), EXIT_SUCCESS);
}
