// SPDX-License-Identifier: Apache-2.0
// A quantized cache: data of one byte per element in one buffer, a scale of four bytes per head of a token in
// another. Both are parts of one layout, which moves to a cache that keeps data and scales of a row together.
#include <kvmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4, BLOCKS = 32, HEADS = 8, TOKENS = 16, DIM = 128, SCALE = 4, ROW = DIM + SCALE };

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

/* Rows of `bytes` bytes, each `stride` bytes after the one before, from `first` to `end`. */
static kvmem_layout *rows(char *first, char *end, size_t bytes, size_t stride, kvmem_error **error)
{
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = BLOCKS, .num_layers = LAYERS,
        .outer_dim = 1, .page_size = TOKENS, .inner_dim = HEADS * bytes, .dtype_width = 1,
        .order = "LBNHC", .num_heads = HEADS, .block_stride = TOKENS * HEADS * stride,
        .layer_stride = BLOCKS * TOKENS * HEADS * stride, .token_stride = HEADS * stride,
        .head_stride = stride};
    kvmem_adopt_options memory = {.struct_size = sizeof memory, .address = first,
        .size = (size_t)(end - first)};
    kvmem_region *region;
    check(kvmem_region_adopt_host(&memory, &region, error), error);
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &config,
        .source = KVMEM_LAYOUT_REGIONS, .regions = &region, .count = 1};
    kvmem_layout *layout;
    check(kvmem_layout_build(&options, &layout, error), error);
    kvmem_region_destroy(region);
    return layout;
}

static kvmem_layout *combine(kvmem_layout *data, kvmem_layout *scales, kvmem_error **error)
{
    const kvmem_layout_part parts[] = {{"data", data}, {"scales", scales}};
    kvmem_layout *cache;
    check(kvmem_layout_combine(parts, 2, &cache, error), error);
    /* The cache keeps its parts alive. */
    kvmem_layout_destroy(data);
    kvmem_layout_destroy(scales);
    return cache;
}

int main(void)
{
    const size_t count = (size_t)LAYERS * BLOCKS * TOKENS * HEADS;
    char *data = (char *)malloc(count * DIM), *scales = (char *)malloc(count * SCALE);
    char *together = (char *)calloc(count, ROW);
    if (!data || !scales || !together) return EXIT_FAILURE;
    for (size_t row = 0; row < count; row++) {
        memset(data + row * DIM, (int)(row % 100), DIM);
        memset(scales + row * SCALE, (int)(row % 77), SCALE);
    }

    kvmem_error *error = NULL;
    char *end = together + count * ROW;
    kvmem_layout *apart = combine(rows(data, data + count * DIM, DIM, DIM, &error),
        rows(scales, scales + count * SCALE, SCALE, SCALE, &error), &error);
    kvmem_layout *packed = combine(rows(together, end, DIM, ROW, &error),
        rows(together + DIM, end, SCALE, ROW, &error), &error);

    kvmem_block_pair pairs[BLOCKS];
    for (uint32_t block = 0; block < BLOCKS; block++) {
        pairs[block].source = block;
        pairs[block].destination = block;
    }
    kvmem_submit_options blocks = {.struct_size = sizeof blocks, .pairs = pairs, .num_pairs = BLOCKS};
    kvmem_transfer *transfer;
    check(kvmem_transfer_start(apart, packed, NULL, &blocks, &transfer, &error), &error);
    check(kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, &error), &error);
    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(apart);
    kvmem_layout_destroy(packed);

    for (size_t row = 0; row < count; row++) {
        if (memcmp(together + row * ROW, data + row * DIM, DIM)) return EXIT_FAILURE;
        if (memcmp(together + row * ROW + DIM, scales + row * SCALE, SCALE)) return EXIT_FAILURE;
    }
    printf("each row has its data and its scale\n");
    free(data);
    free(scales);
    free(together);
}
