// SPDX-License-Identifier: Apache-2.0
// A block is stored on disk, and its checksum, which the run returns, is kept. When the block is loaded, it is compared before the load
// completes: other bytes are an error, never data.
#include <kvmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

static kvmem_status move(kvmem_layout *from, kvmem_layout *to, const kvmem_submit_options *blocks,
    uint32_t *checksum, kvmem_error **error)
{
    kvmem_transfer *transfer;
    size_t count;
    check(kvmem_transfer_start(from, to, NULL, blocks, &transfer, error), error);
    kvmem_status status = kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, error);
    if (checksum) check(kvmem_transfer_get_checksums(transfer, checksum, 1, &count, error), error);
    kvmem_transfer_destroy(transfer);
    return status;
}

static uint32_t store(kvmem_layout *cache, uint32_t block, kvmem_layout *disk, uint32_t slot,
    kvmem_error **error)
{
    kvmem_block_pair pair = {.source = block, .destination = slot};
    kvmem_submit_options out = {.struct_size = sizeof out, .pairs = &pair, .num_pairs = 1,
        .flags = KVMEM_SUBMIT_CHECKSUM};
    uint32_t checksum;
    check(move(cache, disk, &out, &checksum, error), error);
    return checksum;
}

static kvmem_status load(kvmem_layout *disk, uint32_t slot, kvmem_layout *cache, uint32_t block,
    uint32_t checksum, kvmem_error **error)
{
    kvmem_block_pair pair = {.source = slot, .destination = block};
    kvmem_submit_options in = {.struct_size = sizeof in, .pairs = &pair, .num_pairs = 1,
        .checksums = &checksum};
    return move(disk, cache, &in, NULL, error); /* KVMEM_STATUS_CORRUPT: compute the block again */
}

int main(void)
{
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = 16, .num_layers = 32,
        .outer_dim = 2, .page_size = 16, .inner_dim = 8 * 128, .dtype_width = 2,
        .order = KVMEM_ORDER_LAYER_SEPARATE};
    kvmem_system_options memory = {.struct_size = sizeof memory};
    kvmem_disk_options file = {.struct_size = sizeof file};
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &config,
        .source = KVMEM_LAYOUT_ALLOCATE, .system = &memory};
    kvmem_layout *cache, *disk;
    kvmem_block keys;
    kvmem_error *error = NULL;

    check(kvmem_layout_build(&options, &cache, &error), &error);
    options.system = NULL;
    options.disk = &file;
    check(kvmem_layout_build(&options, &disk, &error), &error);

    check(kvmem_layout_get_block(cache, 3, 31, 1, &keys, &error), &error);
    memset((void *)keys.address, 7, keys.size);
    uint32_t checksum = store(cache, 3, disk, 5, &error);
    check(load(disk, 5, cache, 9, checksum, &error), &error);
    printf("block 9 has the checksum of block 3\n");

    store(cache, 2, disk, 5, &error); /* another block overwrites the slot */
    if (load(disk, 5, cache, 9, checksum, &error) != KVMEM_STATUS_CORRUPT) return EXIT_FAILURE;
    printf("other bytes are detected: %s\n", kvmem_error_message(error, NULL));

    kvmem_error_destroy(error);
    kvmem_layout_destroy(disk);
    kvmem_layout_destroy(cache);
}
