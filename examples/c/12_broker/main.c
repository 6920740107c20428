// SPDX-License-Identifier: Apache-2.0
// A KV cache is published by name. Another process that has the token fetches and maps it.
#include "../two_processes.h"

#include <kvmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

static kvmem_layout *build_cache(kvmem_error **error)
{
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = 16, .num_layers = 4,
        .outer_dim = 2, .page_size = 16, .inner_dim = 8 * 128, .dtype_width = 2,
        .order = KVMEM_ORDER_FULLY_CONTIGUOUS};
    kvmem_system_options memory = {.struct_size = sizeof memory, .flags = KVMEM_SYSTEM_SHAREABLE};
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &config,
        .source = KVMEM_LAYOUT_ALLOCATE, .system = &memory};
    kvmem_layout *layout;
    kvmem_block block;
    check(kvmem_layout_build(&options, &layout, error), error);
    check(kvmem_layout_get_block(layout, 3, 0, 0, &block, error), error);
    strcpy((char *)(uintptr_t)block.address, "the owner's keys");
    return layout;
}

static const uint64_t patience_ns = 30ull * 1000 * 1000 * 1000;

/* Where the broker of a process listens. */
static const char *socket_path(pid_t owner)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/kvmem-broker-%d", (int)owner);
    return path;
}

/* Publishes the cache until the other process has fetched it and closed its end of the channel. */
static void publish(int channel)
{
    kvmem_error *error = NULL;
    kvmem_layout *layout = build_cache(&error);
    kvmem_broker_options service = {.struct_size = sizeof service, .path = socket_path(getpid())};
    kvmem_publish_options once = {
        .struct_size = sizeof once, .flags = KVMEM_PUBLISH_READ_ONLY, .max_uses = 1};
    kvmem_share *share;
    kvmem_broker *broker;
    kvmem_token token;
    char closed;

    check(kvmem_share_create_layout(layout, NULL, &share, &error), &error);
    check(kvmem_broker_create(&service, &broker, &error), &error);
    check(kvmem_broker_publish(broker, "cache", share, &once, &token, &error), &error);
    if (send(channel, &token, sizeof token, MSG_NOSIGNAL) != (ssize_t)sizeof token) fail("send");
    if (recv(channel, &closed, 1, 0) != 0) fail("receive");

    kvmem_broker_destroy(broker);
    kvmem_share_destroy(share);
    kvmem_layout_destroy(layout);
}

static void fetch(int channel)
{
    kvmem_token token;
    kvmem_fetch_options request = {.struct_size = sizeof request, .path = socket_path(getppid()),
        .name = "cache", .token = &token};
    kvmem_share *share;
    kvmem_layout *layout;
    kvmem_block block;
    kvmem_error *error = NULL;

    if (recv(channel, &token, sizeof token, MSG_WAITALL) != (ssize_t)sizeof token) fail("receive");
    check(kvmem_share_fetch(&request, patience_ns, &share, &error), &error);
    check(kvmem_share_open_layout(share, NULL, &layout, &error), &error);
    kvmem_share_destroy(share);

    check(kvmem_layout_get_block(layout, 3, 0, 0, &block, &error), &error);
    printf("block 3 of the fetched cache has %s\n", (const char *)(uintptr_t)block.address);
    kvmem_layout_destroy(layout);
}

int main(int argc, char **argv) { return run_two_processes(argc, argv, publish, fetch); }
