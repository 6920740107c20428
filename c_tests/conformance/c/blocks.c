/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of blocks, in the order of layers, outer slots, tokens, heads and elements. */
#include "calls.h"

typedef void visit(unsigned char *byte, uint64_t index, const void *context);

static uint64_t visit_bytes(struct step *step, visit *visit, const void *context)
{
    const kvmem_layout *layout = object(step_name(step), LAYOUT);
    const uint64_t block = number_of(step, "block");
    kvmem_layout_info info;
    uint64_t index = 0;
    if (kvmem_layout_get_info(layout, &info, NULL) < 0 || block >= info.num_blocks)
        fail("there is no such block");
    const uint64_t heads = info.num_heads ? info.num_heads : 1;
    for (uint64_t l = 0; l < info.num_layers; l++)
        for (uint64_t o = 0; o < info.outer_dim; o++)
            for (uint64_t n = 0; n < info.page_size; n++)
                for (uint64_t h = 0; h < heads; h++)
                    for (uint64_t c = 0; c < info.inner_dim / heads; c++) {
                        const uint64_t base =
                            info.bases[l * info.layer_step + o * info.outer_step + n * info.token_step +
                                                       h * info.head_step];
                        const uint64_t address = base + block * info.block_stride + l * info.layer_stride +
                                                 o * info.outer_stride + n * info.token_stride + h * info.head_stride +
                                                 c * info.element_stride;
                        for (uint64_t k = 0; k < info.dtype_width; k++)
                            visit((unsigned char *)(uintptr_t)(address + k), index++, context);
                    }
    return index;
}

static unsigned char pattern(uint64_t seed, uint64_t i)
{
    return (unsigned char)((31 * seed + 7 * i + 13 * (i / 256)) % 256);
}

static void write_pattern(unsigned char *byte, uint64_t index, const void *seed)
{
    *byte = pattern(*(const uint64_t *)seed, index);
}

static void compare(const unsigned char *byte, uint64_t index, unsigned char expected)
{
    if (*byte != expected)
        fail("byte %llu of the block: expected %u, found %u", (unsigned long long)index, expected, *byte);
}

static void compare_pattern(unsigned char *byte, uint64_t index, const void *seed)
{
    compare(byte, index, pattern(*(const uint64_t *)seed, index));
}

struct bytes {
    const unsigned char *bytes;
    size_t size;
};

static void compare_bytes(unsigned char *byte, uint64_t index, const void *context)
{
    const struct bytes *expected = context;
    if (index < expected->size) compare(byte, index, expected->bytes[index]);
}

static kvmem_status fill_block(struct step *step, kvmem_error **error)
{
    const uint64_t seed = number_of(step, "seed");
    (void)error;
    visit_bytes(step, write_pattern, &seed);
    return KVMEM_STATUS_OK;
}

static kvmem_status expect_block(struct step *step, kvmem_error **error)
{
    (void)error;
    if (has(step, "bytes")) {
        unsigned char *bytes;
        const size_t size = bytes_of(step, "bytes", &bytes);
        const struct bytes expected = {bytes, size};
        const uint64_t found = visit_bytes(step, compare_bytes, &expected);
        if (found != size) fail("the block has %llu bytes, not %zu", (unsigned long long)found, size);
    } else {
        const uint64_t seed = parse_number(text_of(step, "seed"));
        visit_bytes(step, compare_pattern, &seed);
    }
    return KVMEM_STATUS_OK;
}

const struct call block_calls[] = {
    {"fill", .run = fill_block},
    {"expect", .run = expect_block},
    {.name = NULL},
};
