// SPDX-License-Identifier: Apache-2.0
// A process publishes its cache with a broker; another one of the machine maps it by name. On another machine the same calls
// access it by NIXL.
#include <kvmem.h>
#include <kvmem/directory.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t patience_ns = 30ull * 1000 * 1000 * 1000;

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

static kvmem_agent *start_agent(const char *name, kvmem_error **error)
{
    kvmem_agent *agent;
    check(kvmem_agent_create(name, NULL, &agent, error), error);
    check(kvmem_agent_create_backend(agent, "UCX", NULL, 0, error), error);
    return agent;
}

// Memory that other processes can map.
static kvmem_layout *build_cache(kvmem_agent *agent, kvmem_error **error)
{
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = 16, .num_layers = 4,
        .outer_dim = 2, .page_size = 16, .inner_dim = 8 * 128, .dtype_width = 2,
        .order = KVMEM_ORDER_FULLY_CONTIGUOUS};
    kvmem_system_options memory = {.struct_size = sizeof memory, .flags = KVMEM_SYSTEM_SHAREABLE};
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &config,
        .source = KVMEM_LAYOUT_ALLOCATE, .system = &memory, .agent = agent};
    kvmem_layout *layout;
    check(kvmem_layout_build(&options, &layout, error), error);
    return layout;
}

static kvmem_directory *open_folder(const char *folder, kvmem_error **error)
{
    kvmem_directory_options options = {.struct_size = sizeof options, .folder = folder};
    kvmem_directory *directory;
    check(kvmem_directory_create(&options, &directory, error), error);
    return directory;
}

static kvmem_broker *start_broker(const char *path, kvmem_error **error)
{
    kvmem_broker_options options = {.struct_size = sizeof options, .path = path};
    kvmem_broker *broker;
    check(kvmem_broker_create(&options, &broker, error), error);
    return broker;
}

// Publishes, and waits until the other process closes its end of the pipe.
static void own(const char *folder, const char *socket, int closed)
{
    kvmem_error *error = NULL;
    kvmem_directory *directory = open_folder(folder, &error);
    kvmem_broker *broker = start_broker(socket, &error);
    kvmem_agent *agent = start_agent("prefill-0", &error);
    kvmem_layout *cache = build_cache(agent, &error);
    kvmem_block block;
    check(kvmem_layout_get_block(cache, 3, 0, 0, &block, &error), &error);
    strcpy((char *)block.address, "the keys of prefill-0");

    const kvmem_named_layout layouts[] = {{.name = "cache", .layout = cache, .broker = broker}};
    check(kvmem_directory_publish(directory, agent, layouts, 1, patience_ns, &error), &error);

    char none;
    if (read(closed, &none, 1) < 0) perror("read");
    kvmem_directory_destroy(directory);
    kvmem_broker_destroy(broker);
    kvmem_layout_destroy(cache);
    kvmem_agent_destroy(agent);
}

static void find(const char *folder)
{
    kvmem_error *error = NULL;
    kvmem_directory *directory = open_folder(folder, &error);
    kvmem_agent *agent = start_agent("decode-0", &error);
    kvmem_directory_entry *entry;
    kvmem_layout *layout;
    kvmem_open_options options = {.struct_size = sizeof options, .agent = agent};
    check(kvmem_directory_connect(directory, NULL, "prefill-0", patience_ns, &entry, &error), &error);
    check(kvmem_directory_entry_open_layout(entry, "cache", &options, patience_ns, &layout, &error), &error);

    kvmem_layout_info info;
    check(kvmem_layout_get_info(layout, &info, &error), &error);
    kvmem_block block;
    check(kvmem_layout_get_block(layout, 3, 0, 0, &block, &error), &error);
    printf("%s: block 3 has %s\n", info.locality == KVMEM_LOCALITY_MAPPED ? "mapped" : "remote",
           info.locality == KVMEM_LOCALITY_MAPPED ? (char *)block.address : "to be moved");

    kvmem_layout_destroy(layout);
    kvmem_directory_entry_destroy(entry);
    kvmem_agent_destroy(agent);
    kvmem_directory_destroy(directory);
}

int main(void)
{
    char folder[] = "/tmp/kvmem-mapped-XXXXXX", entries[64], socket[64];
    int ends[2];
    if (!mkdtemp(folder) || pipe(ends) != 0) return perror("mkdtemp or pipe"), EXIT_FAILURE;
    snprintf(entries, sizeof entries, "%s/agents", folder);
    snprintf(socket, sizeof socket, "%s/broker", folder);
    // fork comes before the first call of kvmem: neither NIXL nor kvmem's handles work in a forked child.
    pid_t child = fork();
    if (child < 0) return perror("fork"), EXIT_FAILURE;
    alarm(60);
    close(ends[child == 0]); // the owner reads, the other one keeps its end open
    if (child == 0) {
        own(entries, socket, ends[0]);
        return EXIT_SUCCESS;
    }
    find(entries);
    close(ends[1]);
    int status;
    waitpid(child, &status, 0);
    rmdir(entries);
    rmdir(folder);
    return status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
