// SPDX-License-Identifier: Apache-2.0
// A process serves its cache in GPU memory to a peer without a GPU: its GPU gathers what the peer reads.
#include "../two_processes.h"
#include <kvmem.h>
#include <kvmem/nixl.h>
#include <string.h>

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

static void send_blob(int socket, const kvmem_blob *blob)
{
    size_t size = kvmem_blob_size(blob);
    if (send(socket, &size, sizeof size, MSG_NOSIGNAL) != (ssize_t)sizeof size) fail("send");
    if (send(socket, kvmem_blob_data(blob), size, MSG_NOSIGNAL) != (ssize_t)size) fail("send");
}

static void *receive_bytes(int socket, size_t *size)
{
    if (recv(socket, size, sizeof *size, MSG_WAITALL) != (ssize_t)sizeof *size) fail("receive");
    void *bytes = malloc(*size);
    if (bytes == NULL || recv(socket, bytes, *size, MSG_WAITALL) != (ssize_t)*size) fail("receive");
    return bytes;
}

static kvmem_agent *start_agent(const char *name, kvmem_error **error)
{
    kvmem_agent *agent;
    check(kvmem_agent_create(name, NULL, &agent, error), error);
    check(kvmem_agent_create_backend(agent, "UCX", NULL, 0, error), error);
    return agent;
}

/* In the GPU's memory, or in this process's if there are no options for the GPU. */
static kvmem_layout *build_cache(kvmem_agent *agent, const char *order, const kvmem_device_options *gpu,
    kvmem_error **error)
{
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = 16, .num_layers = 4,
        .outer_dim = 2, .page_size = 16, .inner_dim = 8 * 128, .dtype_width = 2, .order = order};
    kvmem_system_options memory = {.struct_size = sizeof memory};
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &config,
        .source = KVMEM_LAYOUT_ALLOCATE, .system = gpu != NULL ? NULL : &memory, .device = gpu,
        .agent = agent};
    kvmem_layout *layout;
    check(kvmem_layout_build(&options, &layout, error), error);
    return layout;
}

/* Writes block 3 of a layout in GPU memory, as a kernel of the engine would. */
static void fill(kvmem_layout *cache, kvmem_error **error)
{
    kvmem_layout *host = build_cache(NULL, KVMEM_ORDER_FULLY_CONTIGUOUS, NULL, error);
    kvmem_block block;
    check(kvmem_layout_get_block(host, 3, 0, 0, &block, error), error);
    strcpy((char *)(uintptr_t)block.address, "the owner's keys");
    kvmem_block_pair pair = {.source = 3, .destination = 3};
    kvmem_submit_options blocks = {.struct_size = sizeof blocks, .pairs = &pair, .num_pairs = 1};
    kvmem_transfer *transfer;
    check(kvmem_transfer_start(host, cache, NULL, &blocks, &transfer, error), error);
    check(kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, error), error);
    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(host);
}

static void own(int socket)
{
    kvmem_error *error = NULL;
    kvmem_agent *agent = start_agent("owner", &error);
    kvmem_device_options gpu = {.struct_size = sizeof gpu, .device = 0};
    kvmem_layout *cache = build_cache(agent, KVMEM_ORDER_FULLY_CONTIGUOUS, &gpu, &error);
    fill(cache, &error);

    /* The GPU gathers rows in page-locked host memory, which peers without a GPU can read. */
    kvmem_serve_options slots = {.struct_size = sizeof slots, .flags = KVMEM_SERVE_FROM_HOST};
    check(kvmem_layout_serve(cache, &slots, &error), &error);

    kvmem_blob *metadata, *descriptor;
    check(kvmem_agent_get_local_metadata(agent, &metadata, &error), &error);
    check(kvmem_layout_export(cache, &descriptor, &error), &error);
    send_blob(socket, metadata);
    send_blob(socket, descriptor);

    /* No call serves a request: the agent's thread does, until the layout is destroyed. */
    kvmem_notifications *done;
    check(kvmem_agent_take_notifications(agent, KVMEM_TIMEOUT_FOREVER, &done, &error), &error);
    kvmem_notifications_destroy(done);
    kvmem_blob_destroy(descriptor);
    kvmem_blob_destroy(metadata);
    kvmem_layout_destroy(cache);
    kvmem_agent_destroy(agent);
}

static void use(int socket)
{
    kvmem_error *error = NULL;
    kvmem_agent *agent = start_agent("reader", &error);
    kvmem_layout *local = build_cache(agent, KVMEM_ORDER_LAYER_SEPARATE, NULL, &error);
    size_t metadata_size, descriptor_size;
    void *metadata = receive_bytes(socket, &metadata_size);
    void *descriptor = receive_bytes(socket, &descriptor_size);
    kvmem_layout *remote;
    check(kvmem_agent_load_remote_metadata(agent, metadata, metadata_size, NULL, &error), &error);
    check(kvmem_layout_import(agent, descriptor, descriptor_size, &remote, &error), &error);

    /* Without the path kvmem chooses the fastest one; this one fails if the owner does not serve. */
    kvmem_block_pair pair = {.source = 3, .destination = 11};
    kvmem_transfer_options options = {.struct_size = sizeof options, .method = KVMEM_METHOD_NIXL_SERVED};
    kvmem_submit_options blocks = {.struct_size = sizeof blocks, .pairs = &pair, .num_pairs = 1,
        .notification = "done", .notification_size = 4};
    kvmem_transfer *transfer;
    check(kvmem_transfer_start(remote, local, &options, &blocks, &transfer, &error), &error);
    check(kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, &error), &error);
    kvmem_block block;
    check(kvmem_layout_get_block(local, 11, 0, 0, &block, &error), &error);
    printf("block 11 of the reader has %s\n", (char *)(uintptr_t)block.address);

    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(remote);
    kvmem_layout_destroy(local);
    kvmem_agent_destroy(agent);
    free(descriptor);
    free(metadata);
}

int main(int argc, char **argv)
{
    return run_two_processes(argc, argv, own, use);
}
