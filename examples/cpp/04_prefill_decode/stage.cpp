// SPDX-License-Identifier: Apache-2.0
// The copies are ordinary transfers, by the CUDA driver.
#include "stage.hpp"

#include "pattern.hpp"

std::string copy_to_gpu(Row row, const Cache &cache, const BlockIds &ids, const Deadline &deadline) {
    if (!cache.staging) return {};
    move_blocks({cache.host(), cache.layout, ids, ids, cache.block_bytes()}, row, deadline);
    return format_row(row);
}

std::string copy_to_host(Row row, const Cache &cache, const BlockIds &ids, const Deadline &deadline) {
    if (!cache.staging) return {};
    // So that correct bytes are copies from the GPU.
    for (const std::uint32_t id : ids) spoil_block(cache, id);
    move_blocks({cache.layout, cache.host(), ids, ids, cache.block_bytes()}, row, deadline);
    return format_row(row);
}
