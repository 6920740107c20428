// SPDX-License-Identifier: Apache-2.0
// CRC32C of blocks by the CPU's own instruction, on the caller's thread. For a CPU that has none there is no
// other way here: what is measured against it is left out.
#pragma once

#include <cstdint>
#include <vector>

namespace crc32c {

// Whether this CPU has it.
bool is_there();

// Of each block of `size` bytes, a multiple of 8. Three at a time: the instruction takes three cycles, and the
// CPU begins one in each.
std::vector<uint32_t> of_blocks(const std::vector<const unsigned char *> &blocks, uint64_t size);

} // namespace crc32c
