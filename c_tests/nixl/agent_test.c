// SPDX-License-Identifier: Apache-2.0
// Agents with every option, and their backends.
#include "harness.h"

#include <dlfcn.h>

static kvmem_agent_options agent_options(void) {
    return OPTIONS(kvmem_agent_options);
}

/* An agent with these options must work: it can create a backend, and has metadata. */
static void expect_works(const kvmem_agent_options *options) {
    OWN(kvmem_agent, agent, kvmem_agent_create, "optioned", options);
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    CLEANUP(message_free) message metadata = agent_metadata(agent);
    CHECK(metadata.size > 0);
}

TEST(every_option_makes_a_working_agent) {
    const uint64_t flags[] = {0, KVMEM_AGENT_NO_PROGRESS_THREAD, KVMEM_AGENT_TELEMETRY};
    for (size_t i = 0; i < NUM(flags); i++) {
        kvmem_agent_options options = WITH(agent_options(), it.flags = flags[i],
                                           it.progress_delay_ns = MILLISECONDS(2) * i);
        expect_works(&options);
    }
    for (uint32_t mode = KVMEM_SYNC_DEFAULT; mode <= KVMEM_SYNC_RW; mode++) {
        kvmem_agent_options options = WITH(agent_options(), it.sync_mode = mode);
        expect_works(&options);
    }
    expect_works(NULL);
}

TEST(impossible_options_fail) {
    kvmem_agent_options options = WITH(agent_options(), it.listen_port = 65536,
                                       it.flags = KVMEM_AGENT_LISTEN_THREAD);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "65536", kvmem_agent_create, "a", &options);
    options = agent_options();
    options.listen_port = 7777;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "KVMEM_AGENT_LISTEN_THREAD", kvmem_agent_create, "a", &options);
    options = agent_options();
    options.listen_delay_ns = 1000000;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "listen_delay_ns is 1000000", kvmem_agent_create, "a", &options);
    options = agent_options();
    options.sync_mode = 4;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "sync_mode", kvmem_agent_create, "a", &options);
    options = agent_options();
    options.flags = UINT64_C(1) << 63;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "flags", kvmem_agent_create, "a", &options);
}

TEST(names_are_kept_and_checked) {
    char name[] = "caf\xC3\xA9 42";
    GET(kvmem_agent *, agent, kvmem_agent_create, name, NULL);
    memset(name, 'x', sizeof(name) - 1);
    CHECK_STR(kvmem_agent_name(agent), "caf\xC3\xA9 42");
    kvmem_agent_destroy(agent);
    CHECK(kvmem_agent_name(NULL) == NULL);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "name", kvmem_agent_create, "", NULL);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "UTF-8", kvmem_agent_create, "not \xFF utf-8", NULL);
}

TEST(two_agents_exist_at_the_same_time) {
    kvmem_agent *first = agent_open("first");
    OWNED(kvmem_agent) second = agent_open("second");
    CHECK_STR(kvmem_agent_name(first), "first");
    CHECK_STR(kvmem_agent_name(second), "second");
    kvmem_agent_destroy(first);
    CLEANUP(message_free) message metadata = agent_metadata(second);
}

TEST(backends_take_parameters) {
    const kvmem_parameter parameters[] = {{"num_workers", "2"}, {"ucx_error_handling_mode", "peer"}};
    OWN(kvmem_agent, agent, kvmem_agent_create, "parametrised", NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", parameters, NUM(parameters), ERR));
    CLEANUP(message_free) message metadata = agent_metadata(agent);
}

TEST(invalid_parameters_fail) {
    const kvmem_parameter no_key[] = {{NULL, "2"}};
    const kvmem_parameter no_value[] = {{"num_workers", NULL}};
    OWN(kvmem_agent, agent, kvmem_agent_create, "parametrised", NULL);
    const kvmem_status invalid = KVMEM_STATUS_INVALID_ARGUMENT;
    EXPECT(invalid, kvmem_agent_create_backend(agent, "UCX", no_key, 1, ERR));
    EXPECT(invalid, kvmem_agent_create_backend(agent, "UCX", no_value, 1, ERR));
    EXPECT(invalid, kvmem_agent_create_backend(agent, "UCX", NULL, 1, ERR));
    /* NIXL prints the reason only to stderr. The message does not contain the value, because it may be a
       password. */
    const kvmem_parameter no_number[] = {{"num_workers", "hidden"}};
    EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "the caller sets the parameters num_workers",
                   kvmem_agent_create_backend(agent, "UCX", no_number, 1, ERR));
    CHECK(strstr(test_last_message(), "hidden") == NULL);
    /* the failed call has created nothing */
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
}

TEST(a_backend_is_created_once) {
    OWNED(kvmem_agent) agent = agent_open("once");
    EXPECT_MESSAGE(KVMEM_STATUS_ALREADY_EXISTS, "UCX",
                   kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    EXPECT(KVMEM_STATUS_ALREADY_EXISTS, kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
}

TEST(the_error_of_an_unknown_plugin_lists_the_available_ones) {
    OWNED(kvmem_agent) agent = agent_open("unknown");
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "NO_SUCH_PLUGIN",
                   kvmem_agent_create_backend(agent, "NO_SUCH_PLUGIN", NULL, 0, ERR));
    CHECK_HAS(test_last_message(), "UCX");
    CHECK_HAS(test_last_message(), "POSIX");
}

/* The plugin for GPU storage needs libraries of CUDA. The error names the missing one. */
TEST(the_error_of_a_plugin_that_does_not_load_names_the_missing_library) {
    OWN(kvmem_agent, agent, kvmem_agent_create, "bare", NULL);
    const kvmem_status status = kvmem_agent_create_backend(agent, "GDS_MT", NULL, 0, ERR);
    void *cufile = dlopen("libcufile.so.0", RTLD_NOW);
    if (cufile == NULL) {
        CHECK_EQ(status, KVMEM_STATUS_NIXL);
        CHECK_HAS(test_last_message(), "load plugin GDS_MT (lib");
        CHECK_HAS(test_last_message(), "cannot open shared object file");
    } else {
        dlclose(cufile); /* then cuFile may fail to initialize */
        CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_NIXL);
    }
}

/* UCX reports the transports that were requested and those that it has. The error names the variable. */
TEST(the_error_of_a_backend_that_fails_has_the_reason) {
    OWN(kvmem_agent, agent, kvmem_agent_create, "transports", NULL);
    CHECK_EQ(setenv("UCX_TLS", "nonsense", 1), 0);
    const kvmem_status status = kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR);
    CHECK_EQ(unsetenv("UCX_TLS"), 0);
    CHECK_EQ(status, KVMEM_STATUS_NIXL);
    CHECK_HAS(test_last_message(), "create a UCX backend for agent 'transports'");
    CHECK_HAS(test_last_message(), "no usable transports/devices");
    CHECK_HAS(test_last_message(), "please use one or more of: ");
    CHECK_HAS(test_last_message(), "UCX_TLS=nonsense");
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
}

TEST(without_a_backend_there_is_no_metadata) {
    OWN(kvmem_agent, agent, kvmem_agent_create, "bare", NULL);
    OWNED(kvmem_blob) metadata = (kvmem_blob *)&agent;
    const kvmem_status status = kvmem_agent_get_local_metadata(agent, &metadata, ERR);
    if (status != KVMEM_STATUS_OK) { /* NIXL may return metadata without a backend */
        CHECK_HAS(test_last_message(), "bare");
        CHECK(metadata == NULL);
    }
}

/* A process whose user may have no more threads. */
ROLE(threadless) {
    (void)socket;
    OWN(kvmem_agent, agent, kvmem_agent_create, "threadless", NULL);
    CHECK_EQ(setgid(NOBODY_UID), 0);
    CHECK_EQ(setuid(NOBODY_UID), 0);
    const struct rlimit none = {.rlim_cur = 1, .rlim_max = 1};
    CHECK_EQ(setrlimit(RLIMIT_NPROC, &none), 0);
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_MEMORY, "the threads of a UCX backend",
                   kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    CHECK_HAS(test_last_message(), "RLIMIT_NPROC");
}

/* UCX and NIXL would end the process. */
TEST(a_backend_whose_threads_cannot_be_started_fails) {
    require_other_users("a user that may have no more threads");
    peer peer = peer_start("threadless");
    peer_finish(&peer);
}

/* NIXL reads its settings once per process, and returns one status for every failure. */
ROLE(cannot_read_the_settings) {
    char path[1024] = "";
    uint32_t tag = 0;
    CHECK(frame_next_into(socket, &tag, path, sizeof(path)));
    REFUSE(KVMEM_STATUS_NIXL, path, kvmem_agent_create, "unsettled", NULL);
    CHECK_HAS(test_last_message(), "settings");
}

static void expect_settings_are_named(const char *variable, const char *value, const char *file) {
    peer process = peer_start_with("cannot_read_the_settings", variable, value);
    char path[1024] = "";
    strcpy(path, file);
    frame_send(process.socket, 1, path, sizeof(path));
    peer_finish(&process);
}

TEST(settings_that_nixl_cannot_read_are_named) {
    SCRATCH(directory);
    const char *path = scratch_file(&directory, ".nixl.cfg");
    CHECK_EQ(unsetenv("NIXL_CONFIG_FILE"), 0);
    expect_settings_are_named("NIXL_CONFIG_FILE", path, path); /* missing */
    write_file(path, "this is [ not toml\n", 19);
    expect_settings_are_named("NIXL_CONFIG_FILE", path, path);
    expect_settings_are_named("HOME", directory.path, path);
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(symlink(path, path), 0); /* cannot be resolved */
    expect_settings_are_named("HOME", directory.path, path);
}
