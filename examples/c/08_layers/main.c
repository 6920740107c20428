// SPDX-License-Identifier: Apache-2.0
// A block is restored from disk layer by layer: each layer is used as soon as it is complete, while the next ones
// are read. A load that is no longer needed is cancelled.
#include <kvmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS 32

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

/* Stands for an engine's attention: reads the block in one layer, without a copy. */
static void attend(kvmem_layout *cache, uint64_t block, uint64_t layer, kvmem_error **error)
{
    char expected[32];
    kvmem_block keys;
    check(kvmem_layout_get_block(cache, block, layer, 0, &keys, error), error);
    snprintf(expected, sizeof expected, "keys of layer %d", (int)layer);
    if (strcmp((const char *)keys.address, expected) != 0) {
        fprintf(stderr, "layer %d is not complete\n", (int)layer);
        exit(EXIT_FAILURE);
    }
}

static void load_and_attend(kvmem_transfer *load, kvmem_layout *cache, uint64_t block, kvmem_error **error)
{
    check(kvmem_transfer_submit(load, NULL, error), error);
    for (uint64_t layer = 0; layer < LAYERS; layer++) {
        check(kvmem_transfer_wait_layers(load, layer + 1, KVMEM_TIMEOUT_FOREVER, error), error);
        attend(cache, block, layer, error); /* the next layers are in flight meanwhile */
    }
    check(kvmem_transfer_wait(load, KVMEM_TIMEOUT_FOREVER, error), error);
}

/* Returns whether the load was cancelled before all its parts had started. */
static bool load_and_stop(kvmem_transfer *load, kvmem_error **error)
{
    check(kvmem_transfer_submit(load, NULL, error), error);
    check(kvmem_transfer_cancel(load, error), error);
    kvmem_status status = kvmem_transfer_wait(load, KVMEM_TIMEOUT_FOREVER, NULL);
    if (status != KVMEM_STATUS_CANCELLED) check(status, error);
    return status == KVMEM_STATUS_CANCELLED;
}

static void write_keys(kvmem_layout *cache, uint64_t block, kvmem_error **error)
{
    for (uint64_t layer = 0; layer < LAYERS; layer++) {
        kvmem_block keys;
        check(kvmem_layout_get_block(cache, block, layer, 0, &keys, error), error);
        snprintf((char *)keys.address, keys.size, "keys of layer %d", (int)layer);
    }
}

int main(void)
{
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = 16, .num_layers = LAYERS,
        .outer_dim = 2, .page_size = 16, .inner_dim = 8 * 128, .dtype_width = 2,
        .order = KVMEM_ORDER_LAYER_SEPARATE};
    kvmem_system_options memory = {.struct_size = sizeof memory};
    kvmem_disk_options file = {.struct_size = sizeof file};
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &config,
        .source = KVMEM_LAYOUT_ALLOCATE, .system = &memory};
    kvmem_block_pair out = {.source = 3, .destination = 5}, in = {.source = 5, .destination = 9};
    kvmem_transfer_options by_layer = {.struct_size = sizeof by_layer, .flags = KVMEM_TRANSFER_BY_LAYER};
    kvmem_submit_options move = {.struct_size = sizeof move, .num_pairs = 1};
    kvmem_layout *cache, *disk;
    kvmem_transfer *store, *load;
    kvmem_error *error = NULL;

    check(kvmem_layout_build(&options, &cache, &error), &error);
    options.system = NULL;
    options.disk = &file;
    check(kvmem_layout_build(&options, &disk, &error), &error);

    write_keys(cache, 3, &error);
    move.pairs = &out;
    check(kvmem_transfer_start(cache, disk, &by_layer, &move, &store, &error), &error);
    check(kvmem_transfer_wait(store, KVMEM_TIMEOUT_FOREVER, &error), &error);

    move.pairs = &in;
    check(kvmem_transfer_create(disk, cache, &by_layer, &load, &error), &error);
    check(kvmem_transfer_prepare(load, &move, &error), &error);
    load_and_attend(load, cache, 9, &error);
    printf("every layer was complete when attention read it\n");
    printf("a second load %s\n", load_and_stop(load, &error) ? "was cancelled" : "had completed before");

    kvmem_transfer_destroy(load);
    kvmem_transfer_destroy(store);
    kvmem_layout_destroy(disk);
    kvmem_layout_destroy(cache);
}
