// SPDX-License-Identifier: Apache-2.0
// Orders that fail, and strides of orders.
#include "engine_caches.h"

/* The message names the wrong field or axis, and nothing else changes. */
TEST(wrong_orders_fail_with_their_cause) {
    const struct {
        const char *order;
        uint64_t block_stride, head_stride;
        const char *part;
    } wrong[] = {
        {"", 0, 0, "the order is empty"},
        {"LOBNHX", 0, 0, "'X' in the order 'LOBNHX' is no axis"},
        {"LOBNHCB", 0, 0, "axis B (block) is in the order 'LOBNHCB' twice"},
        {"L/B/ONHC", 0, 0, "'/' twice"},
        {"B/LONHC", 0, 0, "axis B (block) precedes '/'"},
        {"LONHC", 0, 0, "lacks axis B (block)"},
        {"LBNHC", 0, 0, "lacks axis O (outer slot), of which there are 2"},
        {"LOBNH", 0, 0, "lacks axis C (element)"},
        {"LOBNHC", 100, 0,
         "axis B (block) has a stride of 100 bytes, and one block spans "},
        {"LOBNHC", 0, 8, "axis H (head) has a stride of 8 bytes"},
        {"LOBNHC", UINT64_MAX, 0, "axis B (block) has"},
        {NULL, 0, 0, "order"},
    };
    for (size_t i = 0; i < NUM(wrong); i++) {
        const kvmem_layout_config config = WITH(engine_config(&engines[0]), it.order = wrong[i].order,
                                                it.block_stride = wrong[i].block_stride,
                                                it.head_stride = wrong[i].head_stride);
        kvmem_layout_requirements needs;
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, wrong[i].part,
                       kvmem_layout_get_requirements(&config, &needs, ERR));
    }
}

/* Padded pages of a KVBM layout. */
TEST(the_orders_of_kvbm_accept_strides) {
    kvmem_layout_config config =
        WITH(engine_config(&engines[2]), it.order = KVMEM_ORDER_LAYER_SEPARATE, it.block_stride = 5000);
    OWNED(kvmem_layout) layout = layout_allocate_system(&config);
    GET(kvmem_layout_info, info, kvmem_layout_get_info, layout);
    CHECK_STR(info.order, "L/BONHC");
    CHECK_EQ(info.block_stride, 5000);
    GET(kvmem_block, first, kvmem_layout_get_block, layout, 0, 1, 0);
    GET(kvmem_block, second, kvmem_layout_get_block, layout, 1, 1, 0);
    CHECK_EQ(second.address - first.address, 5000);
}
