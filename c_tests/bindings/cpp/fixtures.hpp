// SPDX-License-Identifier: Apache-2.0
// Small layouts, and the error that a call throws.
#pragma once

#include "check.hpp"

#include <kvmem.hpp>

inline kvmem::LayoutConfig small_config(std::uint64_t num_blocks = 4) {
    kvmem::LayoutConfig config;
    config.num_blocks = num_blocks;
    config.num_layers = 2;
    config.outer_dim = 2;
    config.page_size = 4;
    config.inner_dim = 8;
    config.dtype_width = 2;
    config.order = KVMEM_ORDER_FULLY_CONTIGUOUS;
    return config;
}

inline kvmem::SystemOptions system_memory(std::uint64_t size) {
    kvmem::SystemOptions options;
    options.size = size;
    return options;
}

#if KVMEM_HPP_EXCEPTIONS && !defined(KVMEM_RESULTS)
// The error that a call throws.
template <typename Call>
kvmem::Error error_of(Call call) {
    try {
        static_cast<void>(call());
    } catch (const kvmem::Error &error) {
        return error;
    }
    std::fprintf(stderr, "a call that must fail has succeeded\n");
    std::exit(EXIT_FAILURE);
}
#endif
