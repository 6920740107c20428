// SPDX-License-Identifier: Apache-2.0
// Prefill runs with tensor parallelism 2, and decode without: each rank of prefill has half of the heads, in blocks of
// 16 tokens in HND order, and decode has all heads, in blocks of 64 tokens in NHD order. Decode gets the tokens of one
// sequence.
#include <kvmem.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 2, LAYERS = 2, HEADS = 8, HEADS_PER_RANK = HEADS / RANKS, DIM = 64, TOKENS = 150 };

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

static kvmem_layout *build(const char *order, uint64_t page_size, uint64_t num_heads, kvmem_error **error)
{
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = 32, .num_layers = LAYERS,
        .outer_dim = 2, .page_size = page_size, .inner_dim = num_heads * DIM, .dtype_width = 2,
        .order = order, .num_heads = num_heads};
    kvmem_system_options memory = {.struct_size = sizeof memory};
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &config,
        .source = KVMEM_LAYOUT_ALLOCATE, .system = &memory};
    kvmem_layout *layout;
    check(kvmem_layout_build(&options, &layout, error), error);
    return layout;
}

/* The first element of one head of one token: an engine's kernel would write it. */
static uint16_t *element(const kvmem_layout *layout, const kvmem_block_table *table, uint64_t page_size,
    uint64_t token, uint64_t layer, uint64_t values, uint64_t head, kvmem_error **error)
{
    kvmem_block row;
    check(kvmem_layout_get_row(layout, table->blocks[token / page_size], layer, values, token % page_size, head,
        &row, error), error);
    return (uint16_t *)(uintptr_t)row.address;
}

/* Moves all tokens of a sequence from one rank of prefill, which has the heads from `head` on, to decode. */
static void pull(kvmem_layout *rank, const kvmem_block_table *from, kvmem_layout *decode,
    const kvmem_block_table *to, uint64_t head, kvmem_error **error)
{
    kvmem_transfer_options options = {.struct_size = sizeof options, .source_head = 0,
        .destination_head = head, .num_heads = HEADS_PER_RANK};
    kvmem_submit_options blocks = {.struct_size = sizeof blocks, .source_table = from, .destination_table = to,
        .num_tokens = TOKENS};
    kvmem_transfer *transfer;
    check(kvmem_transfer_start(rank, decode, &options, &blocks, &transfer, error), error);
    check(kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, error), error);
    kvmem_transfer_destroy(transfer);
}

int main(void)
{
    kvmem_error *error = NULL;
    uint32_t in_prefill[] = {30, 4, 17, 5, 22, 9, 11, 2, 26, 13}; /* 10 blocks of 16 tokens */
    uint32_t in_decode[] = {6, 29, 3};                            /* 3 blocks of 64 tokens */
    kvmem_block_table from = {.blocks = in_prefill, .num_blocks = 10};
    kvmem_block_table to = {.blocks = in_decode, .num_blocks = 3};
    kvmem_layout *decode = build("LBONHC", 64, HEADS, &error);

    for (uint64_t rank = 0; rank < RANKS; rank++) {
        kvmem_layout *prefill = build("LBOHNC", 16, HEADS_PER_RANK, &error);
        for (uint64_t token = 0; token < TOKENS; token++)
            for (uint64_t head = 0; head < HEADS_PER_RANK; head++)
                *element(prefill, &from, 16, token, 1, 0, head, &error) =
                    (uint16_t)(token * HEADS + rank * HEADS_PER_RANK + head);
        pull(prefill, &from, decode, &to, rank * HEADS_PER_RANK, &error);
        kvmem_layout_destroy(prefill);
    }

    for (uint64_t token = 0; token < TOKENS; token++)
        for (uint64_t head = 0; head < HEADS; head++)
            if (*element(decode, &to, 64, token, 1, 0, head, &error) != token * HEADS + head) return EXIT_FAILURE;
    printf("decode has %d tokens with all %d heads of both ranks\n", TOKENS, HEADS);
    kvmem_layout_destroy(decode);
}
