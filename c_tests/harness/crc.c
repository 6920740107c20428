// SPDX-License-Identifier: Apache-2.0
// CRC32C, bit by bit.
#include "crc.h"

uint32_t crc_append(uint32_t before, const unsigned char *bytes, size_t size) {
    uint32_t rest = ~before;
    for (size_t i = 0; i < size; i++) {
        rest ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) rest = (rest >> 1) ^ ((rest & 1) != 0 ? UINT32_C(0x82F63B78) : 0);
    }
    return ~rest;
}

uint32_t crc_of_block(const kv_side *side, uint64_t block, uint64_t first_layer, uint64_t num_layers) {
    return crc_of_slots(side, block, first_layer, num_layers, 0, side->config.outer_dim);
}

uint32_t crc_of_slots(const kv_side *side, uint64_t block, uint64_t first_layer, uint64_t num_layers,
                      uint64_t first_outer, uint64_t num_outers) {
    uint32_t crc = 0;
    for (uint64_t layer = first_layer; layer < first_layer + num_layers; layer++) {
        for (uint64_t outer = first_outer; outer < first_outer + num_outers; outer++) {
            const size_t at = (size_t)(kv_side_piece(side, block, layer, outer) - side->memory);
            crc = crc_append(crc, side->expected + at, kv_piece_size(&side->config));
        }
    }
    return crc;
}
