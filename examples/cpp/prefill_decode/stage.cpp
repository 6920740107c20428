// SPDX-License-Identifier: Apache-2.0
// The copies are transfers like all others; kvmem has the CUDA driver do them.
#include "stage.hpp"

#include "pattern.hpp"

std::string copy_to_gpu(Row row, const Cache &cache, const BlockIds &ids, const Deadline &deadline) {
    if (!cache.staging) return {};
    move_blocks({cache.host(), cache.layout, ids, ids, cache.block_bytes()}, row, deadline);
    return format_row(row);
}

std::string copy_to_host(Row row, const Cache &cache, const BlockIds &ids, const Deadline &deadline) {
    if (!cache.staging) return {};
    // What is found there afterwards has come from the GPU.
    for (const std::uint32_t id : ids) spoil_block(cache, id);
    move_blocks({cache.layout, cache.host(), ids, ids, cache.block_bytes()}, row, deadline);
    return format_row(row);
}
