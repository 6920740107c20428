// SPDX-License-Identifier: Apache-2.0
// One process reads a KV block from another's memory by NIXL, with the fewest calls that two peers need.
#include <kvmem.h>
#include <kvmem/nixl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t patience_ns = 30ull * 1000 * 1000 * 1000;

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

static void fail(const char *what)
{
    perror(what);
    exit(EXIT_FAILURE);
}

static void send_bytes(int socket, const void *bytes, size_t size)
{
    if (send(socket, &size, sizeof size, MSG_NOSIGNAL) != (ssize_t)sizeof size) fail("send");
    for (const char *next = (const char *)bytes; size > 0;) {
        ssize_t sent = send(socket, next, size, MSG_NOSIGNAL);
        if (sent <= 0) fail("send");
        next += sent;
        size -= (size_t)sent;
    }
}

static void *receive_bytes(int socket, size_t *size)
{
    if (recv(socket, size, sizeof *size, MSG_WAITALL) != (ssize_t)sizeof *size) fail("receive");
    void *bytes = malloc(*size);
    if (!bytes || recv(socket, bytes, *size, MSG_WAITALL) != (ssize_t)*size) fail("receive");
    return bytes;
}

static kvmem_agent *start_agent(const char *name, kvmem_error **error)
{
    kvmem_agent *agent;
    check(kvmem_nixl_load(NULL, error), error);
    check(kvmem_agent_create(name, NULL, &agent, error), error);
    check(kvmem_agent_create_backend(agent, "UCX", NULL, 0, error), error);
    return agent;
}

// System memory, allocated by the layout and registered with the agent.
static kvmem_layout *build_cache(kvmem_agent *agent, const char *order, kvmem_error **error)
{
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = 16, .num_layers = 4,
        .outer_dim = 2, .page_size = 16, .inner_dim = 8 * 128, .dtype_width = 2, .order = order};
    kvmem_system_options memory = {.struct_size = sizeof memory};
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &config,
        .source = KVMEM_LAYOUT_ALLOCATE, .system = &memory, .agent = agent};
    kvmem_layout *layout;
    check(kvmem_layout_build(&options, &layout, error), error);
    return layout;
}

static void own(int socket)
{
    kvmem_error *error = NULL;
    kvmem_agent *agent = start_agent("owner", &error);
    kvmem_layout *layout = build_cache(agent, KVMEM_ORDER_FULLY_CONTIGUOUS, &error);
    kvmem_block block;
    check(kvmem_layout_get_block(layout, 3, 0, 0, &block, &error), &error);
    strcpy((char *)block.address, "the owner's keys");

    // Optional: this process gathers rows for peers whose layout has another order.
    check(kvmem_layout_serve(layout, NULL, &error), &error);

    // Two blobs make blocks readable by a peer: the metadata of this agent, and the descriptor of the layout.
    kvmem_blob *metadata, *descriptor;
    check(kvmem_agent_get_local_metadata(agent, &metadata, &error), &error);
    check(kvmem_layout_export(layout, &descriptor, &error), &error);
    send_bytes(socket, kvmem_blob_data(metadata), kvmem_blob_size(metadata));
    send_bytes(socket, kvmem_blob_data(descriptor), kvmem_blob_size(descriptor));

    // The memory must exist until the reader has reported that it has read it.
    kvmem_notifications *notifications;
    check(kvmem_agent_take_notifications(agent, patience_ns, &notifications, &error), &error);

    kvmem_notifications_destroy(notifications);
    kvmem_blob_destroy(descriptor);
    kvmem_blob_destroy(metadata);
    kvmem_layout_destroy(layout);
    kvmem_agent_destroy(agent);
}

static void pull(int socket)
{
    kvmem_error *error = NULL;
    kvmem_agent *agent = start_agent("reader", &error);
    kvmem_layout *local = build_cache(agent, KVMEM_ORDER_LAYER_SEPARATE, &error);

    size_t metadata_size, descriptor_size;
    void *metadata = receive_bytes(socket, &metadata_size);
    void *descriptor = receive_bytes(socket, &descriptor_size);
    kvmem_layout *remote;
    check(kvmem_agent_load_remote_metadata(agent, metadata, metadata_size, NULL, &error), &error);
    check(kvmem_layout_import(agent, descriptor, descriptor_size, &remote, &error), &error);

    kvmem_block_pair pair = {.source = 3, .destination = 11};
    kvmem_submit_options blocks = {.struct_size = sizeof blocks, .pairs = &pair, .num_pairs = 1,
        .notification = "done", .notification_size = 4};
    kvmem_transfer *transfer;
    check(kvmem_transfer_start(remote, local, NULL, &blocks, &transfer, &error), &error);
    check(kvmem_transfer_wait(transfer, patience_ns, &error), &error);

    kvmem_block block;
    check(kvmem_layout_get_block(local, 11, 0, 0, &block, &error), &error);
    printf("block 11 of the reader has %s\n", (char *)block.address);

    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(remote);
    kvmem_layout_destroy(local);
    kvmem_agent_destroy(agent);
    free(descriptor);
    free(metadata);
}

int main(void)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) fail("socketpair");
    // fork comes before the first call of kvmem: neither NIXL nor kvmem's handles work in a forked child.
    pid_t child = fork();
    if (child < 0) fail("fork");
    close(ends[child != 0]);
    alarm(60);
    if (child == 0) {
        own(ends[1]);
        return EXIT_SUCCESS;
    }
    pull(ends[0]);
    int status;
    return waitpid(child, &status, 0) == child && status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
