// SPDX-License-Identifier: Apache-2.0
// A process publishes its cache under a name; another one finds it by that name, reads a block, and notices when it
// ends.
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
    check(kvmem_nixl_load(NULL, error), error);
    check(kvmem_agent_create(name, NULL, &agent, error), error);
    check(kvmem_agent_create_backend(agent, "UCX", NULL, 0, error), error);
    return agent;
}

static kvmem_layout *build_cache(kvmem_agent *agent, kvmem_error **error)
{
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = 16, .num_layers = 4,
        .outer_dim = 2, .page_size = 16, .inner_dim = 8 * 128, .dtype_width = 2,
        .order = KVMEM_ORDER_FULLY_CONTIGUOUS};
    kvmem_system_options memory = {.struct_size = sizeof memory};
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

static kvmem_directory *open_cluster(const char *password, kvmem_error **error)
{
    const char *endpoints[] = {"https://etcd-0:2379", "https://etcd-1:2379", "https://etcd-2:2379"};
    kvmem_directory_options options = {.struct_size = sizeof options, .endpoints = endpoints,
        .endpoint_count = 3, .prefix = "clusters/a", .lease_seconds = 30, .user = "engine",
        .password = password, .ca_file = "/etc/kvmem/ca.pem", .certificate_file = "/etc/kvmem/node.pem",
        .key_file = "/etc/kvmem/node.key"};
    kvmem_directory *directory;
    check(kvmem_directory_create(&options, &directory, error), error);
    return directory;
}

// In a folder, or in the etcd of a cluster if its password is in the environment.
static kvmem_directory *open_directory(const char *folder, kvmem_error **error)
{
    const char *password = getenv("CLUSTER_PASSWORD");
    return password ? open_cluster(password, error) : open_folder(folder, error);
}

// Waits until something happens to an agent.
static uint32_t next_change(kvmem_directory *directory, kvmem_error **error)
{
    kvmem_directory_events *events;
    check(kvmem_directory_take_events(directory, patience_ns, &events, error), error);
    const uint32_t kind = events->items->kind;
    kvmem_directory_events_destroy(events);
    return kind;
}

static void own(const char *folder)
{
    kvmem_error *error = NULL;
    kvmem_directory *directory = open_directory(folder, &error);
    kvmem_agent *agent = start_agent("prefill-0", &error);
    kvmem_layout *cache = build_cache(agent, &error);
    kvmem_block block;
    check(kvmem_layout_get_block(cache, 3, 0, 0, &block, &error), &error);
    strcpy((char *)block.address, "the keys of prefill-0");

    const kvmem_named_layout layouts[] = {{.name = "cache", .layout = cache}};
    check(kvmem_directory_publish(directory, agent, layouts, 1, patience_ns, &error), &error);

    // The memory must exist until the reader has reported that it has read it.
    kvmem_notifications *notifications;
    check(kvmem_agent_take_notifications(agent, patience_ns, &notifications, &error), &error);
    kvmem_notifications_destroy(notifications);
    kvmem_directory_destroy(directory); // withdraws the entry
    kvmem_layout_destroy(cache);
    kvmem_agent_destroy(agent);
}

static void find(const char *folder)
{
    kvmem_error *error = NULL;
    kvmem_directory *directory = open_directory(folder, &error);
    check(kvmem_directory_watch(directory, "prefill-0", patience_ns, &error), &error);
    while (next_change(directory, &error) != KVMEM_DIRECTORY_PUBLISHED) continue;

    kvmem_agent *agent = start_agent("decode-0", &error);
    kvmem_directory_entry *entry;
    kvmem_layout *remote;
    check(kvmem_directory_look_up(directory, "prefill-0", patience_ns, &entry, &error), &error);
    check(kvmem_directory_entry_load(entry, agent, &error), &error);
    const kvmem_open_options options = {
        .struct_size = sizeof options, .flags = KVMEM_OPEN_REMOTE, .agent = agent};
    check(kvmem_directory_entry_open_layout(entry, "cache", &options, patience_ns, &remote, &error), &error);

    kvmem_layout *local = build_cache(agent, &error);
    kvmem_block_pair pair = {.source = 3, .destination = 11};
    kvmem_submit_options blocks = {.struct_size = sizeof blocks, .pairs = &pair, .num_pairs = 1,
        .notification = "done", .notification_size = 4};
    kvmem_transfer *transfer;
    check(kvmem_transfer_start(remote, local, NULL, &blocks, &transfer, &error), &error);
    check(kvmem_transfer_wait(transfer, patience_ns, &error), &error);

    while (next_change(directory, &error) != KVMEM_DIRECTORY_WITHDRAWN) continue;
    kvmem_status status = kvmem_directory_check(directory, entry, patience_ns, NULL);
    kvmem_block block;
    check(kvmem_layout_get_block(local, 11, 0, 0, &block, &error), &error);
    printf("block 11 has %s; its entry is now %s\n", (char *)block.address, kvmem_status_name(status));

    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(local);
    kvmem_layout_destroy(remote);
    kvmem_directory_entry_destroy(entry);
    kvmem_agent_destroy(agent);
    kvmem_directory_destroy(directory);
}

int main(void)
{
    char folder[] = "/tmp/kvmem-directory-XXXXXX";
    if (!mkdtemp(folder)) return perror("mkdtemp"), EXIT_FAILURE;
    // fork comes before the first call of kvmem: neither NIXL nor kvmem's handles work in a forked child.
    pid_t child = fork();
    if (child < 0) return perror("fork"), EXIT_FAILURE;
    alarm(60);
    if (child == 0) {
        own(folder);
        return EXIT_SUCCESS;
    }
    find(folder);
    int status;
    waitpid(child, &status, 0);
    rmdir(folder);
    return status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
