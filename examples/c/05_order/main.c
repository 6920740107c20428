// SPDX-License-Identifier: Apache-2.0
// An engine's cache as it is: one buffer, pages larger than their content, and in each row the keys of a token before
// its values. The order of its axes and the stride of its pages describe it.
#include <kvmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4, BLOCKS = 32, HEADS = 8, TOKENS = 16, DIM = 128, WIDTH = 2, PAGE = 80000 };

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

/* The engine's formula: page (layer, block), and in it [head][token][keys, values][dim]. */
static char *row_of(char *cache, size_t layer, size_t block, size_t head, size_t token, size_t values)
{
    char *page = cache + (layer * BLOCKS + block) * PAGE;
    return page + ((head * TOKENS + token) * 2 + values) * DIM * WIDTH;
}

static kvmem_layout *describe(char *cache, kvmem_error **error)
{
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = BLOCKS, .num_layers = LAYERS,
        .outer_dim = 2, .page_size = TOKENS, .inner_dim = HEADS * DIM, .dtype_width = WIDTH,
        .order = "LBHNOC", .num_heads = HEADS, .block_stride = PAGE};
    kvmem_adopt_options memory = {.struct_size = sizeof memory, .address = cache,
        .size = (size_t)LAYERS * BLOCKS * PAGE};
    kvmem_region *region;
    check(kvmem_region_adopt_host(&memory, &region, error), error);
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &config,
        .source = KVMEM_LAYOUT_REGIONS, .regions = &region, .count = 1};
    kvmem_layout *layout;
    check(kvmem_layout_build(&options, &layout, error), error);
    kvmem_region_destroy(region);
    return layout;
}

int main(void)
{
    kvmem_error *error = NULL;
    char *cache = (char *)calloc((size_t)LAYERS * BLOCKS, PAGE);
    if (!cache) return EXIT_FAILURE;
    kvmem_layout *layout = describe(cache, &error);

    memset(row_of(cache, 3, 7, 5, 11, 1), 42, DIM * WIDTH);
    kvmem_block row;
    check(kvmem_layout_get_row(layout, 7, 3, 1, 11, 5, &row, &error), &error);
    const char *values = (const char *)row.address;
    if (row.size != DIM * WIDTH || values[0] != 42 || values[row.size - 1] != 42) return EXIT_FAILURE;
    printf("the layout has the values of token 11 where the engine wrote them\n");

    kvmem_layout_destroy(layout);
    free(cache);
}
