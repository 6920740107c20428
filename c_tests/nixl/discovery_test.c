// SPDX-License-Identifier: Apache-2.0
// Plugins and backends: which exist, which load and why others do not, and connections that are made before
// the first transfer.
#include "harness.h"

#include <dlfcn.h>

/* A plugin of a list, by its name. */
static kvmem_plugin find(const kvmem_plugins *plugins, const char *name) {
    for (size_t i = 0; i < plugins->count; i++) {
        const kvmem_plugin plugin = plugins->items[i];
        if (strcmp(plugin.name, name) == 0) return plugin;
    }
    FAIL("there is no %s", name);
}

static const char *parameter_of(const kvmem_plugin *plugin, const char *key) {
    for (size_t i = 0; i < plugin->parameter_count; i++) {
        if (strcmp(plugin->parameters[i].key, key) == 0) return plugin->parameters[i].value;
    }
    return "";
}

static const uint32_t dram = 1u << KVMEM_MEMORY_DRAM;
static const uint32_t vram = 1u << KVMEM_MEMORY_VRAM;
static const uint32_t file = 1u << KVMEM_MEMORY_FILE;

TEST(plugins_are_listed_with_their_parameters_and_memory_types) {
    OWN(kvmem_agent, agent, kvmem_agent_create, "looking", NULL);
    OWN(kvmem_plugins, plugins, kvmem_agent_get_plugins, agent);
    const kvmem_plugin ucx = find(plugins, "UCX");
    CHECK(ucx.failure == NULL);
    CHECK_EQ(ucx.memory_types & (dram | vram), dram | vram);
    CHECK(ucx.parameter_count > 0);
    CHECK_STR(parameter_of(&ucx, "ucx_error_handling_mode"), "peer");
    const kvmem_plugin posix = find(plugins, "POSIX");
    CHECK(posix.failure == NULL);
    CHECK_EQ(posix.memory_types & file, file);
}

/* Each plugin loads, or has the loader's reason. */
TEST(a_plugin_that_does_not_load_has_the_reason) {
    OWN(kvmem_agent, agent, kvmem_agent_create, "looking", NULL);
    OWN(kvmem_plugins, plugins, kvmem_agent_get_plugins, agent);
    CHECK(plugins->count > 2);
    for (size_t i = 0; i < plugins->count; i++) {
        const kvmem_plugin plugin = plugins->items[i];
        printf("%s: %s\n", plugin.name, plugin.failure != NULL ? plugin.failure : "loads");
        CHECK_EQ(plugin.failure != NULL, plugin.memory_types == 0);
        if (plugin.failure != NULL) {
            CHECK_HAS(plugin.failure, ".so"); /* the missing library, by name */
        }
    }
    const kvmem_plugin gds = find(plugins, "GDS_MT");
    void *cufile = dlopen("libcufile.so.0", RTLD_NOW);
    if (cufile != NULL) {
        dlclose(cufile);
        SKIP("a machine without cuFile");
    }
    CHECK_HAS(gds.failure, "cannot open shared object file");
    CHECK_HAS(gds.failure, "libcu");
    CHECK_EQ(gds.parameter_count, 0);
}

TEST(backends_are_listed_in_the_order_of_creation) {
    OWN(kvmem_agent, agent, kvmem_agent_create, "having", NULL);
    OWN(kvmem_plugins, none, kvmem_agent_get_backends, agent);
    CHECK_EQ(none->count, 0);
    const kvmem_parameter chosen[] = {{"num_workers", "2"}, {"engine_config", "USE_MT_MUTEX=n"}};
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", chosen, NUM(chosen), ERR));
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    OWN(kvmem_plugins, both, kvmem_agent_get_backends, agent);
    CHECK_EQ(both->count, 2);
    const kvmem_plugin first = both->items[0];
    CHECK_STR(first.name, "POSIX");
    const kvmem_plugin ucx = find(both, "UCX");
    CHECK_STR(parameter_of(&ucx, "num_workers"), "2");
    /* After that of kvmem, so the caller's holds. */
    CHECK_STR(parameter_of(&ucx, "engine_config"), 
              "USE_MT_MUTEX=y,CUDA_IPC_ENABLE_GET_ZCOPY=on,USE_MT_MUTEX=n");
    CHECK_EQ(ucx.memory_types & dram, dram);
    CHECK_EQ(find(both, "POSIX").memory_types & file, file);
}

TEST(agents_connect_before_the_first_transfer) {
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("far");
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "far", kvmem_agent_connect(near, "far", NULL, KVMEM_TIMEOUT_FOREVER, ERR));
    agents_introduce(near, far);
    EXPECT_OK(kvmem_agent_connect(near, "far", NULL, KVMEM_TIMEOUT_FOREVER, ERR));
    EXPECT_OK(kvmem_agent_connect(near, "far", NULL, KVMEM_TIMEOUT_FOREVER, ERR)); /* it is already connected */
    const char *backends[] = {"UCX"};
    kvmem_nixl_options options = OPTIONS(kvmem_nixl_options, it.backends = backends, it.backend_count = 1);
    EXPECT_OK(kvmem_agent_connect(near, "far", &options, KVMEM_TIMEOUT_FOREVER, ERR));
    backends[0] = "POSIX";
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "has no POSIX backend; it has UCX",
                   kvmem_agent_connect(near, "far", &options, KVMEM_TIMEOUT_FOREVER, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "itself", kvmem_agent_connect(near, "near", NULL, KVMEM_TIMEOUT_FOREVER, ERR));
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(near, "far", NULL, ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_agent_connect(near, "far", NULL, KVMEM_TIMEOUT_FOREVER, ERR));
}

TEST(options_that_a_call_does_not_use_fail) {
    OWNED(kvmem_agent) near = agent_open("near");
    OWN(kvmem_queue, queue, kvmem_queue_create);
    const kvmem_nixl_options wrong[] = {
        OPTIONS(kvmem_nixl_options, it.flags = KVMEM_NIXL_NOTIFY),
        OPTIONS(kvmem_nixl_options, it.notification = "x", it.notification_size = 1),
        OPTIONS(kvmem_nixl_options, it.queue = queue),
        OPTIONS(kvmem_nixl_options, it.user_data = 1),
    };
    for (size_t i = 0; i < NUM(wrong); i++)
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "only requests use it",
                       kvmem_agent_connect(near, "far", &wrong[i], KVMEM_TIMEOUT_FOREVER, ERR));
}

TEST(a_query_of_a_backend_without_storage_names_those_with_storage) {
    static unsigned char memory[64];
    OWNED(kvmem_agent) agent = agent_open("asking");
    const kvmem_nixl_descriptor asked = memory_at(memory, sizeof(memory));
    const char *const ucx = "UCX";
    const kvmem_nixl_options by_ucx = OPTIONS(kvmem_nixl_options, it.backends = &ucx, it.backend_count = 1);
    REFUSE(KVMEM_STATUS_NIXL, "none of the backends of agent 'asking', UCX, has storage", kvmem_agent_query,
           agent, &asked,
           1, &by_ucx, KVMEM_TIMEOUT_FOREVER);
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    REFUSE(KVMEM_STATUS_NIXL, "of the backends of agent 'asking', POSIX has storage", kvmem_agent_query,
           agent, &asked,
           1, &by_ucx, KVMEM_TIMEOUT_FOREVER);
}
