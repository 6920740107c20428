// SPDX-License-Identifier: Apache-2.0
// An independent CRC32C, bit by bit, and that of a block of a model.
#pragma once

#include "kv.h"

/* Appends bytes to a CRC32C; 0 for the first. */
uint32_t crc_append(uint32_t before, const unsigned char *bytes, size_t size);
/* The expected CRC32C of some layers of a block, or of some outer slots of these. */
uint32_t crc_of_block(const kv_side *side, uint64_t block, uint64_t first_layer, uint64_t num_layers);
uint32_t crc_of_slots(const kv_side *side, uint64_t block, uint64_t first_layer, uint64_t num_layers,
                      uint64_t first_outer, uint64_t num_outers);
