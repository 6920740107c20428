// SPDX-License-Identifier: Apache-2.0
// Agents with every option, and their backends.
#include "harness.h"

#include <dlfcn.h>

static kvmem_agent_options agent_options(void) {
    kvmem_agent_options options;
    memset(&options, 0xEE, sizeof(options)); /* init must overwrite every byte */
    kvmem_agent_options_init(&options, sizeof(options));
    return options;
}

/* An agent made with these options must work: it gets a backend and answers its metadata. */
static void expect_works(const kvmem_agent_options *options) {
    kvmem_agent *agent = NULL;
    EXPECT_OK(kvmem_agent_create("optioned", options, &agent, ERR));
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    message metadata = agent_metadata(agent);
    CHECK(metadata.size > 0);
    free(metadata.data);
    kvmem_agent_destroy(agent);
}

static void refuse(const char *name, const kvmem_agent_options *options, const char *part) {
    kvmem_agent *agent = (kvmem_agent *)&agent;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, part, kvmem_agent_create(name, options, &agent, ERR));
    CHECK(agent == NULL);
}

TEST(every_option_makes_a_working_agent) {
    const uint64_t flags[] = {0, KVMEM_AGENT_NO_PROGRESS_THREAD, KVMEM_AGENT_TELEMETRY};
    for (size_t i = 0; i < NUM(flags); i++) {
        kvmem_agent_options options = agent_options();
        options.flags = flags[i];
        options.progress_delay_us = 2000 * i;
        expect_works(&options);
    }
    for (uint32_t mode = KVMEM_SYNC_DEFAULT; mode <= KVMEM_SYNC_RW; mode++) {
        kvmem_agent_options options = agent_options();
        options.sync_mode = mode;
        expect_works(&options);
    }
    expect_works(NULL);
}

TEST(impossible_options_are_refused) {
    kvmem_agent_options options = agent_options();
    options.listen_port = 65536;
    options.flags = KVMEM_AGENT_LISTEN_THREAD;
    refuse("a", &options, "65536");
    options = agent_options();
    options.listen_port = 7777;
    refuse("a", &options, "KVMEM_AGENT_LISTEN_THREAD");
    options = agent_options();
    options.listen_delay_us = 1000;
    refuse("a", &options, "listen_delay_us is 1000");
    options = agent_options();
    options.sync_mode = 4;
    refuse("a", &options, "sync_mode");
    options = agent_options();
    options.flags = UINT64_C(1) << 63;
    refuse("a", &options, "flags");
}

TEST(names_are_kept_and_checked) {
    kvmem_agent *agent = NULL;
    char name[] = "caf\xC3\xA9 42";
    EXPECT_OK(kvmem_agent_create(name, NULL, &agent, ERR));
    memset(name, 'x', sizeof(name) - 1);
    CHECK_STR(kvmem_agent_name(agent), "caf\xC3\xA9 42");
    kvmem_agent_destroy(agent);
    CHECK(kvmem_agent_name(NULL) == NULL);
    refuse("", NULL, "name");
    refuse("not \xFF utf-8", NULL, "UTF-8");
}

TEST(two_agents_live_side_by_side) {
    kvmem_agent *first = agent_open("first");
    kvmem_agent *second = agent_open("second");
    CHECK_STR(kvmem_agent_name(first), "first");
    CHECK_STR(kvmem_agent_name(second), "second");
    kvmem_agent_destroy(first);
    message metadata = agent_metadata(second);
    free(metadata.data);
    kvmem_agent_destroy(second);
}

TEST(backends_take_parameters) {
    const kvmem_parameter parameters[] = {{"num_workers", "2"}, {"ucx_error_handling_mode", "peer"}};
    kvmem_agent *agent = NULL;
    EXPECT_OK(kvmem_agent_create("parametrised", NULL, &agent, ERR));
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", parameters, NUM(parameters), ERR));
    message metadata = agent_metadata(agent);
    free(metadata.data);
    kvmem_agent_destroy(agent);
}

TEST(bad_parameters_are_refused) {
    const kvmem_parameter no_key[] = {{NULL, "2"}};
    const kvmem_parameter no_value[] = {{"num_workers", NULL}};
    kvmem_agent *agent = NULL;
    EXPECT_OK(kvmem_agent_create("parametrised", NULL, &agent, ERR));
    const kvmem_status invalid = KVMEM_STATUS_INVALID_ARGUMENT;
    EXPECT(invalid, kvmem_agent_create_backend(agent, "UCX", no_key, 1, ERR));
    EXPECT(invalid, kvmem_agent_create_backend(agent, "UCX", no_value, 1, ERR));
    EXPECT(invalid, kvmem_agent_create_backend(agent, "UCX", NULL, 1, ERR));
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR)); /* nothing was half made */
    kvmem_agent_destroy(agent);
}

TEST(a_backend_is_made_once) {
    kvmem_agent *agent = agent_open("once");
    EXPECT_MESSAGE(KVMEM_STATUS_ALREADY_EXISTS, "UCX",
                   kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    EXPECT(KVMEM_STATUS_ALREADY_EXISTS, kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    kvmem_agent_destroy(agent);
}

TEST(an_unknown_plugin_is_named_beside_those_there_are) {
    kvmem_agent *agent = agent_open("unknown");
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "NO_SUCH_PLUGIN",
                   kvmem_agent_create_backend(agent, "NO_SUCH_PLUGIN", NULL, 0, ERR));
    CHECK_HAS(test_last_message(), "UCX");
    CHECK_HAS(test_last_message(), "POSIX");
    kvmem_agent_destroy(agent);
}

/* The plugin for storage by GPUs needs libraries of CUDA's; the error names the one that is missing. */
TEST(a_plugin_that_does_not_load_names_what_it_lacks) {
    kvmem_agent *agent = NULL;
    EXPECT_OK(kvmem_agent_create("bare", NULL, &agent, ERR));
    const kvmem_status status = kvmem_agent_create_backend(agent, "GDS_MT", NULL, 0, ERR);
    void *cufile = dlopen("libcufile.so.0", RTLD_NOW);
    if (cufile == NULL) {
        CHECK_EQ(status, KVMEM_STATUS_NIXL);
        CHECK_HAS(test_last_message(), "load plugin GDS_MT (lib");
        CHECK_HAS(test_last_message(), "cannot open shared object file");
    } else {
        dlclose(cufile); /* then it may be cuFile that does not start */
        CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_NIXL);
    }
    kvmem_agent_destroy(agent);
}

/* UCX names the transports that it asked for and those that it has; the error names the variable. */
TEST(a_backend_that_can_not_be_created_says_why) {
    kvmem_agent *agent = NULL;
    EXPECT_OK(kvmem_agent_create("transports", NULL, &agent, ERR));
    CHECK_EQ(setenv("UCX_TLS", "nonsense", 1), 0);
    const kvmem_status status = kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR);
    CHECK_EQ(unsetenv("UCX_TLS"), 0);
    CHECK_EQ(status, KVMEM_STATUS_NIXL);
    CHECK_HAS(test_last_message(), "create a UCX backend for agent 'transports'");
    CHECK_HAS(test_last_message(), "no usable transports/devices");
    CHECK_HAS(test_last_message(), "please use one or more of: ");
    CHECK_HAS(test_last_message(), "UCX_TLS=nonsense");
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    kvmem_agent_destroy(agent);
}

TEST(without_a_backend_there_is_no_metadata) {
    kvmem_agent *agent = NULL;
    EXPECT_OK(kvmem_agent_create("bare", NULL, &agent, ERR));
    kvmem_blob *metadata = (kvmem_blob *)&agent;
    const kvmem_status status = kvmem_agent_get_local_metadata(agent, &metadata, ERR);
    if (status != KVMEM_STATUS_OK) { /* NIXL may answer metadata that names no backend */
        CHECK_HAS(test_last_message(), "bare");
        CHECK(metadata == NULL);
    }
    kvmem_blob_destroy(metadata);
    kvmem_agent_destroy(agent);
}
