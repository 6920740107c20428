// SPDX-License-Identifier: Apache-2.0
// An engine offloads other blocks in every step: one transfer is prepared, and gets new pairs with each submission.
#include <kvmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 8
#define MAX_BLOCKS 4

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

static kvmem_layout *build(const char *order, kvmem_error **error)
{
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = 64, .num_layers = 8,
        .outer_dim = 2, .page_size = 16, .inner_dim = 8 * 128, .dtype_width = 2, .order = order};
    kvmem_system_options memory = {.struct_size = sizeof memory};
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &config,
        .source = KVMEM_LAYOUT_ALLOCATE, .system = &memory};
    kvmem_layout *layout;
    check(kvmem_layout_build(&options, &layout, error), error);
    return layout;
}

static char *first_bytes(kvmem_layout *layout, uint64_t block, kvmem_error **error)
{
    kvmem_block piece;
    check(kvmem_layout_get_block(layout, block, 0, 0, &piece, error), error);
    return (char *)(uintptr_t)piece.address;
}

/* Starts the offload of one step: the blocks differ, the layouts do not. */
static void offload(kvmem_transfer *transfer, const kvmem_block_pair *pairs, size_t num_pairs,
    uint64_t step, kvmem_error **error)
{
    kvmem_submit_options options = {.struct_size = sizeof options, .pairs = pairs,
        .num_pairs = num_pairs, .user_data = step};
    check(kvmem_transfer_submit(transfer, &options, error), error);
}

/* Stands for the engine's scheduler: which blocks of the cache are full after a step. */
static size_t full_blocks(kvmem_layout *cache, uint32_t step, kvmem_block_pair *pairs, kvmem_error **error)
{
    size_t count = 1 + step % MAX_BLOCKS;
    for (uint32_t i = 0; i < count; i++) {
        pairs[i].source = 7 * step + i;
        pairs[i].destination = MAX_BLOCKS * step + i;
        snprintf(first_bytes(cache, pairs[i].source, error), 32, "block %u of step %u", i, step);
    }
    return count;
}

int main(void)
{
    kvmem_error *error = NULL;
    kvmem_layout *cache = build(KVMEM_ORDER_LAYER_SEPARATE, &error);
    kvmem_layout *store = build(KVMEM_ORDER_FULLY_CONTIGUOUS, &error);
    kvmem_block_pair pairs[MAX_BLOCKS];
    kvmem_transfer *transfer;

    check(kvmem_transfer_create(cache, store, NULL, &transfer, &error), &error);
    for (uint32_t step = 0; step < STEPS; step++) {
        /* The engine works while the last step is in flight. */
        size_t count = full_blocks(cache, step, pairs, &error);
        if (step > 0) check(kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, &error), &error);
        offload(transfer, pairs, count, step, &error);
    }
    check(kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, &error), &error);
    printf("the store has %s\n", first_bytes(store, MAX_BLOCKS * 7 + 2, &error));

    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(store);
    kvmem_layout_destroy(cache);
    return EXIT_SUCCESS;
}
