// SPDX-License-Identifier: Apache-2.0
// CRC32C written down a second time, bit by bit, and that of a block of a model.
#pragma once

#include "kv.h"

/* That of bytes that follow others; 0 for the first. */
uint32_t crc_append(uint32_t before, const unsigned char *bytes, size_t size);
/* That of some layers of a block, or of some outer slots of these, as it is expected to be. */
uint32_t crc_of_block(const kv_side *side, uint64_t block, uint64_t first_layer, uint64_t num_layers);
uint32_t crc_of_slots(const kv_side *side, uint64_t block, uint64_t first_layer, uint64_t num_layers,
                      uint64_t first_outer, uint64_t num_outers);
