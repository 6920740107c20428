// SPDX-License-Identifier: Apache-2.0
// Blocks of a KV cache are offloaded to a device, and restored to other blocks with their checksums:
// block_storage FILE. The device is a file here, which NIXL's plugin GUSLI needs no server for.
#include <kvmem.h>
#include <kvmem/nixl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUM_MOVED 3
#define DEVICE_SIZE (16 * 1024 * 1024)

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

/* The device must exist and have its size. */
static void create_device(const char *path)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL || fseek(file, DEVICE_SIZE - 1, SEEK_SET) != 0 || fputc(0, file) != 0 ||
        fclose(file) != 0) {
        perror(path);
        exit(EXIT_FAILURE);
    }
}

/* An agent has one device of GUSLI, with the number 0. */
static kvmem_agent *open_device(const char *path, kvmem_error **error)
{
    char config[600];
    snprintf(config, sizeof config, "# Config file\nversion=1\n0 F W N %s sec=0x3\n", path);
    const kvmem_parameter device[] = {
        {"client_name", "kvmem"},
        {"max_num_simultaneous_requests", "64"},
        {"config_file", config},
    };
    kvmem_agent *agent;
    check(kvmem_agent_create("storage", NULL, &agent, error), error);
    check(kvmem_agent_create_backend(agent, "GUSLI", device, sizeof device / sizeof device[0], error), error);
    return agent;
}

/* The layout of the blocks in the device, from its first byte on. */
static kvmem_layout *describe_storage(const kvmem_layout_config *config, kvmem_agent *agent,
    kvmem_error **error)
{
    kvmem_layout_requirements needs;
    check(kvmem_layout_get_requirements(config, &needs, error), error);
    kvmem_block_options part = {.struct_size = sizeof part, .device_id = 0, .size = needs.region_size,
        .alignment = 4096, .metadata = "sec=0x3", .metadata_size = strlen("sec=0x3")};
    kvmem_region *region;
    kvmem_layout *storage;
    check(kvmem_region_create_block(&part, &region, error), error);
    kvmem_layout_options options = {.struct_size = sizeof options, .config = config,
        .source = KVMEM_LAYOUT_REGIONS, .regions = &region, .count = 1, .agent = agent};
    check(kvmem_layout_build(&options, &storage, error), error);
    kvmem_region_destroy(region);
    return storage;
}

/* kvmem allocates whole pages, which GUSLI needs. Registration clears them, so the cache is filled later. */
static kvmem_layout *allocate_cache(const kvmem_layout_config *config, kvmem_agent *agent,
    kvmem_error **error)
{
    kvmem_system_options memory = {.struct_size = sizeof memory};
    kvmem_layout_options options = {.struct_size = sizeof options, .config = config,
        .source = KVMEM_LAYOUT_ALLOCATE, .system = &memory, .agent = agent};
    kvmem_layout *cache;
    check(kvmem_layout_build(&options, &cache, error), error);
    return cache;
}

/* Moves blocks within ten seconds. With checksums, the destination is compared with them before the end. */
static void move(kvmem_layout *from, kvmem_layout *to, const kvmem_block_pair *pairs,
    const uint32_t *checksums, kvmem_error **error)
{
    kvmem_submit_options blocks = {.struct_size = sizeof blocks, .pairs = pairs, .num_pairs = NUM_MOVED,
        .run_timeout_ns = 10000000000, .checksums = checksums};
    kvmem_transfer *transfer;
    check(kvmem_transfer_start(from, to, NULL, &blocks, &transfer, error), error);
    check(kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, error), error);
    kvmem_transfer_destroy(transfer);
}

static char *keys_of(kvmem_layout *cache, uint64_t block, kvmem_error **error)
{
    kvmem_block keys;
    check(kvmem_layout_get_block(cache, block, 0, 0, &keys, error), error);
    return (char *)keys.address;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE, which is overwritten\n", argv[0]);
        return 2;
    }
    /* Pieces of 32 KiB: I/O of the device is aligned to 4096 bytes. */
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = 32, .num_layers = 4,
        .outer_dim = 2, .page_size = 16, .inner_dim = 1024, .dtype_width = 2, .order = KVMEM_ORDER_FULLY_CONTIGUOUS,
        .alignment = 4096};
    kvmem_error *error = NULL;
    create_device(argv[1]);
    kvmem_agent *agent = open_device(argv[1], &error);
    kvmem_layout *storage = describe_storage(&config, agent, &error);
    kvmem_layout *cache = allocate_cache(&config, agent, &error);

    const uint32_t blocks[NUM_MOVED] = {7, 3, 21};
    uint32_t checksums[NUM_MOVED];
    for (int i = 0; i < NUM_MOVED; i++) {
        snprintf(keys_of(cache, blocks[i], &error), 32, "the keys of block %u", blocks[i]);
    }
    check(kvmem_layout_checksum(cache, blocks, NUM_MOVED, KVMEM_TIMEOUT_FOREVER, checksums, &error), &error);
    const kvmem_block_pair out[NUM_MOVED] = {{7, 0}, {3, 1}, {21, 2}};
    move(cache, storage, out, NULL, &error);
    kvmem_layout_destroy(cache);

    /* The blocks are in the device. Another process restores them with the same file, order and shape. */
    cache = allocate_cache(&config, agent, &error);
    const kvmem_block_pair back[NUM_MOVED] = {{0, 10}, {1, 11}, {2, 12}};
    move(storage, cache, back, checksums, &error);
    printf("block 12 has %s\n", keys_of(cache, 12, &error));

    kvmem_layout_destroy(storage);
    kvmem_layout_destroy(cache);
    kvmem_agent_destroy(agent);
}
