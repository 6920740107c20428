// SPDX-License-Identifier: Apache-2.0
// The orders of docs/layouts.md: each address is compared with the engine's own formula.
#include "engine_caches.h"

TEST(addresses_are_those_of_the_engine) {
    for (size_t i = 0; i < num_engines; i++) {
        OPENED(cache, cache, &engines[i]);
        check_addresses(&engines[i], &cache);
    }
}

/* The info contains the order, and the kind if the order equals a kind of KVBM. */
TEST(information_has_order_and_strides) {
    for (size_t i = 0; i < num_engines; i++) {
        OPENED(cache, cache, &engines[i]);
        GET(kvmem_layout_info, info, kvmem_layout_get_info, cache.layout);
        const kvmem_layout_info strides = layout_info(cache.layout);
        CHECK_STR(info.order, engines[i].order);
        CHECK_EQ(info.block_stride, strides.block_stride);
        CHECK_EQ(info.layer_stride, strides.layer_stride);
        CHECK_EQ(info.outer_stride, strides.outer_stride);
        CHECK_EQ(info.token_stride, strides.token_stride);
        CHECK_EQ(info.head_stride, strides.head_stride);
        CHECK_EQ(info.element_stride, strides.element_stride);
    }
}
