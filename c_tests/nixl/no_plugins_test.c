// SPDX-License-Identifier: Apache-2.0
// NIXL without plugins: the directory that it searches is empty, or does not exist.
#include "harness.h"

/* The directory of this process, which NIXL reads once. */
static char directory[128];

TEST(an_agent_without_plugins_names_the_directory_that_was_searched) {
    OWN(kvmem_agent, agent, kvmem_agent_create, "bare", NULL);
    OWN(kvmem_plugins, plugins, kvmem_agent_get_plugins, agent);
    for (size_t i = 0; i < plugins->count; i++) { /* NIXL may contain some itself */
        const kvmem_plugin plugin = plugins->items[i];
        CHECK(strcmp(plugin.name, "UCX") != 0);
    }
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "NIXL has no plugin 'UCX'",
                   kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    CHECK_HAS(test_last_message(), directory);
    CHECK_HAS(test_last_message(), "NIXL_PLUGIN_DIR");
}

TEST(functions_without_a_backend_work) {
    OWN(kvmem_agent, agent, kvmem_agent_create, "bare", NULL);
    OWN(kvmem_plugins, backends, kvmem_agent_get_backends, agent);
    CHECK_EQ(backends->count, 0);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "no backend", kvmem_agent_take_notifications, agent, 0);
    OWN(kvmem_region, region, kvmem_region_create_system, REF(OPTIONS(kvmem_system_options, it.size = 4096)));
    REFUSE(KVMEM_STATUS_NIXL, "create a backend that accepts DRAM memory first, such as UCX",
           kvmem_region_register, region,
           agent);
}

int main(int argc, char **argv) {
    snprintf(directory, sizeof(directory), "%s/kvmem-no-plugins-XXXXXX", temporary_directory());
    if (mkdtemp(directory) == NULL) {
        perror(directory);
        return EXIT_FAILURE;
    }
    setenv("NIXL_PLUGIN_DIR", directory, 1); /* before NIXL is loaded */
    const int outcome = test_main(argc, argv, test_registered());
    rmdir(directory);
    return outcome;
}
