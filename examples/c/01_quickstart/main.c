// SPDX-License-Identifier: Apache-2.0
// Two KV caches in system memory, laid out differently; a block moves from the first to the second.
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

int main(void)
{
    const kvmem_block_pair pair = {.source = 7, .destination = 42};
    kvmem_layout_config config = {
        .struct_size = sizeof config,
        .num_blocks = 64,
        .num_layers = 32,
        .outer_dim = 2,       // keys and values
        .page_size = 16,      // tokens
        .inner_dim = 8 * 128, // heads x dim
        .dtype_width = 2,
    };
    const kvmem_system_options memory = {.struct_size = sizeof memory};
    const kvmem_layout_options options = {
        .struct_size = sizeof options,
        .config = &config,
        .source = KVMEM_LAYOUT_ALLOCATE,
        .system = &memory,
    };
    const kvmem_submit_options move = {.struct_size = sizeof move, .pairs = &pair, .num_pairs = 1};
    kvmem_layout *prefill, *decode;
    kvmem_transfer *transfer;
    kvmem_block from, to;
    kvmem_error *error = NULL;

    config.order = KVMEM_ORDER_FULLY_CONTIGUOUS;
    check(kvmem_layout_build(&options, &prefill, &error), &error);
    config.order = KVMEM_ORDER_LAYER_SEPARATE;
    check(kvmem_layout_build(&options, &decode, &error), &error);

    check(kvmem_layout_get_block(prefill, 7, 31, 1, &from, &error), &error);
    check(kvmem_layout_get_block(decode, 42, 31, 1, &to, &error), &error);
    strcpy((char *)from.address, "the values of the last layer");

    check(kvmem_transfer_start(prefill, decode, NULL, &move, &transfer, &error), &error);
    check(kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, &error), &error);
    printf("block 42 of decode has %s of block 7 of prefill\n", (char *)to.address);

    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(decode);
    kvmem_layout_destroy(prefill);
}
