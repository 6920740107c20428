// SPDX-License-Identifier: Apache-2.0
// One process maps another's KV cache and reads a block in place: nothing is copied, NIXL is not needed.
#include "../two_processes.h"

#include <kvmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t patience_ns = 30ull * 1000 * 1000 * 1000;

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

static void give(int socket)
{
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = 16, .num_layers = 4,
        .outer_dim = 2, .page_size = 16, .inner_dim = 8 * 128, .dtype_width = 2,
        .order = KVMEM_ORDER_FULLY_CONTIGUOUS};
    kvmem_system_options memory = {.struct_size = sizeof memory, .flags = KVMEM_SYSTEM_SHAREABLE};
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &config,
        .source = KVMEM_LAYOUT_ALLOCATE, .system = &memory};
    kvmem_share_options grant = {.struct_size = sizeof grant, .flags = KVMEM_SHARE_READ_ONLY};
    kvmem_layout *layout;
    kvmem_block block;
    kvmem_share *share;
    kvmem_error *error = NULL;

    check(kvmem_layout_build(&options, &layout, &error), &error);
    check(kvmem_layout_get_block(layout, 3, 0, 0, &block, &error), &error);
    strcpy((char *)block.address, "the owner's keys");

    // Once it is sent, the file descriptors on the socket keep the memory.
    check(kvmem_share_create_layout(layout, &grant, &share, &error), &error);
    check(kvmem_share_send(share, socket, patience_ns, &error), &error);
    kvmem_share_destroy(share);
    kvmem_layout_destroy(layout);
}

static void take(int socket)
{
    kvmem_share *share;
    kvmem_layout *layout;
    kvmem_block block;
    kvmem_error *error = NULL;

    check(kvmem_share_receive(socket, patience_ns, &share, &error), &error);
    check(kvmem_share_open_layout(share, NULL, &layout, &error), &error);
    kvmem_share_destroy(share);

    check(kvmem_layout_get_block(layout, 3, 0, 0, &block, &error), &error);
    printf("block 3 of the mapped cache has %s\n", (const char *)block.address);
    kvmem_layout_destroy(layout);
}

int main(int argc, char **argv) { return run_two_processes(argc, argv, give, take); }
