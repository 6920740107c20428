// SPDX-License-Identifier: Apache-2.0
// CRC32C of blocks by the CPU's instruction, on the caller's thread. On a CPU without it, the rows that are compared
// with it are left out.
#pragma once

#include <cstdint>
#include <vector>

namespace crc32c {

// Returns whether this CPU has the instruction.
bool is_supported();

// Returns the checksum of each block of `size` bytes, a multiple of 8. Computes three blocks at a time, because the
// instruction takes three cycles and the CPU starts one per cycle.
std::vector<uint32_t> of_blocks(const std::vector<const unsigned char *> &blocks, uint64_t size);

} // namespace crc32c
