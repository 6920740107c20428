// SPDX-License-Identifier: Apache-2.0
// Blocks of a KV cache are offloaded to objects of an S3-compatible store, and restored to other blocks with
// their checksums: objects ENDPOINT BUCKET. NIXL's plugin finds the access keys as the tools of AWS do, for
// example in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
#include <kvmem.h>
#include <kvmem/nixl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS 4
#define OUTERS 2 /* keys and values */
#define TOKENS 16
#define ELEMENTS (8 * 128) /* heads x dim */
#define WIDTH 2
#define NUM_MOVED 3

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

/* An agent with access to a bucket. The last two parameters are for servers other than that of AWS. */
static kvmem_agent *open_store(const char *endpoint, const char *bucket, kvmem_error **error)
{
    const kvmem_parameter store[] = {
        {"bucket", bucket},
        {"endpoint_override", endpoint},
        {"scheme", strncmp(endpoint, "https:", 6) == 0 ? "https" : "http"},
        {"region", "us-east-1"},
        {"num_threads", "8"},
        {"use_virtual_addressing", "false"},
        {"req_checksum", "required"},
    };
    kvmem_agent *agent;
    check(kvmem_agent_create("objects", NULL, &agent, error), error);
    check(kvmem_agent_create_backend(agent, "OBJ", store, sizeof store / sizeof store[0], error), error);
    return agent;
}

/* One object per block: the objects have the size of a block, and blocks are contiguous in them. */
static kvmem_layout *describe_objects(kvmem_layout_config config, kvmem_agent *agent, kvmem_error **error)
{
    config.order = KVMEM_ORDER_FULLY_CONTIGUOUS;
    /* With the shape in the prefix, a process with another one finds no objects, rather than wrong bytes. */
    char prefix[100];
    snprintf(prefix, sizeof prefix, "model-7b/rank0/BLONC-%dx%dx%dx%dx%d/", LAYERS, OUTERS, TOKENS,
        ELEMENTS, WIDTH);
    kvmem_object_options names = {.struct_size = sizeof names, .key_prefix = prefix,
        .object_size = LAYERS * OUTERS * TOKENS * ELEMENTS * WIDTH, .count = config.num_blocks};
    kvmem_region *region;
    kvmem_layout *objects;
    check(kvmem_region_create_object(&names, &region, error), error);
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &config,
        .source = KVMEM_LAYOUT_REGIONS, .regions = &region, .count = 1, .agent = agent};
    check(kvmem_layout_build(&options, &objects, error), error);
    kvmem_region_destroy(region);
    return objects;
}

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
    if (argc != 3) {
        fprintf(stderr, "usage: %s ENDPOINT BUCKET, for example http://127.0.0.1:9000 kv\n", argv[0]);
        return 2;
    }
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = 32, .num_layers = LAYERS,
        .outer_dim = OUTERS, .page_size = TOKENS, .inner_dim = ELEMENTS, .dtype_width = WIDTH,
        .order = KVMEM_ORDER_LAYER_SEPARATE};
    kvmem_error *error = NULL;
    kvmem_agent *agent = open_store(argv[1], argv[2], &error);
    kvmem_layout *cache = allocate_cache(&config, agent, &error);
    kvmem_layout *objects = describe_objects(config, agent, &error);

    const uint32_t blocks[NUM_MOVED] = {7, 3, 21};
    uint32_t checksums[NUM_MOVED];
    for (int i = 0; i < NUM_MOVED; i++) {
        snprintf(keys_of(cache, blocks[i], &error), 32, "the keys of block %u", blocks[i]);
    }
    check(kvmem_layout_checksum(cache, blocks, NUM_MOVED, KVMEM_TIMEOUT_FOREVER, checksums, &error), &error);
    const kvmem_block_pair out[NUM_MOVED] = {{7, 0}, {3, 1}, {21, 2}};
    move(cache, objects, out, NULL, &error);
    kvmem_layout_destroy(objects);
    kvmem_layout_destroy(cache);

    /* Later, perhaps in another process: the same prefix and shape name the same objects. */
    cache = allocate_cache(&config, agent, &error);
    objects = describe_objects(config, agent, &error);
    const kvmem_block_pair back[NUM_MOVED] = {{0, 10}, {1, 11}, {2, 12}};
    move(objects, cache, back, checksums, &error);
    printf("block 12 has %s\n", keys_of(cache, 12, &error));

    kvmem_layout_destroy(objects);
    kvmem_layout_destroy(cache);
    kvmem_agent_destroy(agent);
}
