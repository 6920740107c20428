// SPDX-License-Identifier: Apache-2.0
// An engine keeps its KV cache in a memory file of its own. kvmem adopts it, and another process maps it.
#include "../two_processes.h"

#include <kvmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCKS 16
#define BLOCK_BYTES (4 * 2 * 16 * 8 * 128 * 2)

static const uint64_t patience_ns = 30ull * 1000 * 1000 * 1000;

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

/* The engine's own allocation: block after block, in a memory file. */
static char *allocate(size_t size, int *fd)
{
    *fd = memfd_create("kv", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0 || ftruncate(*fd, (off_t)size) != 0 || fchmod(*fd, 0600) != 0) fail("create a memory file");
    void *address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (address == MAP_FAILED) fail("mmap");
    return (char *)address;
}

/* A layout over the engine's memory, which can be shared. */
static kvmem_layout *adopt(char *memory, size_t size, int fd, kvmem_error **error)
{
    kvmem_adopt_memfd_options file = {.struct_size = sizeof file, .fd = fd, .size = size,
        .address = memory};
    kvmem_region *region;
    check(kvmem_region_adopt_memfd(&file, &region, error), error);

    kvmem_layout *layout;
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = BLOCKS, .num_layers = 4,
        .outer_dim = 2, .page_size = 16, .inner_dim = 8 * 128, .dtype_width = 2,
        .order = KVMEM_ORDER_FULLY_CONTIGUOUS};
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &config,
        .source = KVMEM_LAYOUT_REGIONS, .regions = &region, .count = 1};
    check(kvmem_layout_build(&options, &layout, error), error);
    kvmem_region_destroy(region);
    return layout;
}

static void give(int socket)
{
    const size_t size = (size_t)BLOCKS * BLOCK_BYTES;
    kvmem_share *share;
    kvmem_error *error = NULL;
    int fd;
    char *memory = allocate(size, &fd);
    kvmem_layout *layout = adopt(memory, size, fd, &error);

    strcpy(memory + 3 * BLOCK_BYTES, "the engine's keys");
    check(kvmem_share_create_layout(layout, NULL, &share, &error), &error);
    check(kvmem_share_send(share, socket, patience_ns, &error), &error);
    kvmem_share_destroy(share);
    kvmem_layout_destroy(layout);
    close(fd);
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
    printf("block 3 of the mapped cache has %s\n", (const char *)(uintptr_t)block.address);
    kvmem_layout_destroy(layout);
}

int main(int argc, char **argv) { return run_two_processes(argc, argv, give, take); }
