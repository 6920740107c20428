// SPDX-License-Identifier: Apache-2.0
// Executes the library's checksum kernel: the same tiles, bit by bit, and a check of every address.
#include "kernels.h"

#include "call.h"
#include "checksum.h"
#include "reach.h"

#include <stdlib.h>
#include <string.h>

const kvmem_checksum *checksum_parameter(const void *parameter, unsigned long threads) {
    if (threads != KVMEM_CHECKSUM_THREADS)
        sim_crash("the checksum kernel is launched with %lu threads", threads);
    kvmem_checksum *copied = sim_allocate(sizeof(*copied));
    memcpy(copied, parameter, sizeof(*copied));
    return copied;
}

static uint32_t times_x(uint32_t a) { return (a >> 1) ^ ((a & 1) != 0 ? KVMEM_CHECKSUM_POLYNOMIAL : 0); }

static uint32_t product(uint32_t a, uint32_t b) {
    uint32_t sum = 0;
    for (int i = 31; i >= 0; i--, b = times_x(b)) sum ^= (a >> i & 1) != 0 ? b : 0;
    return sum;
}

static uint32_t times_words(uint32_t a, unsigned words) {
    for (unsigned bit = 0; bit < 32 * words; bit++) a = times_x(a);
    return a;
}

/* Checks the constants in the parameter that the kernel multiplies by. */
static void check_constants(const kvmem_checksum *checksum) {
    for (unsigned i = 0; i < 32; i++) {
        if (checksum->further[i] != times_words(UINT32_C(1) << i, KVMEM_CHECKSUM_ROW))
            sim_crash("the checksum kernel gets a wrong remainder of bit %u after a row", i);
    }
    for (unsigned i = 0; i < KVMEM_CHECKSUM_ROW; i++) {
        if (checksum->words[i] != times_words(UINT32_C(1) << 31, KVMEM_CHECKSUM_ROW - i)) {
            sim_crash("the checksum kernel gets a wrong power for word %u", i);
        }
    }
}

static uint32_t divide(CUdeviceptr from, size_t size) {
    unsigned char *bytes = sim_allocate(size);
    reach_copy((uintptr_t)bytes, from, size);
    uint32_t remainder = 0;
    for (size_t i = 0; i < size; i++) {
        remainder ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) remainder = times_x(remainder);
    }
    free(bytes);
    return remainder;
}

static bool divide_tile(const kvmem_checksum *checksum, unsigned index, const context *on) {
    const unsigned tiles_a_block = checksum->num_layers * checksum->num_outers * checksum->tiles;
    const unsigned slot = index % tiles_a_block / checksum->tiles;
    const uint64_t offset = (uint64_t)(index % checksum->tiles) * checksum->tile_size;
    uint32_t block;
    reach_copy((uintptr_t)&block, checksum->blocks + index / tiles_a_block * sizeof(block), sizeof(block));
    const CUdeviceptr from = checksum->layers[slot / checksum->num_outers] +
                             slot % checksum->num_outers * checksum->outer_stride + block * checksum->block_stride +
                             offset;
    const uint64_t left = checksum->piece_size - offset;
    const size_t size = left < checksum->tile_size ? left : checksum->tile_size;
    if (!kernel_reaches(from, size, CU_MEM_ACCESS_FLAGS_PROT_READ, on)) return false;
    uint32_t behind;
    reach_copy((uintptr_t)&behind, checksum->behind + index % tiles_a_block * sizeof(behind), sizeof(behind));
    const CUdeviceptr sum_at = checksum->checksums + index / tiles_a_block * sizeof(uint32_t);
    uint32_t sum;
    reach_copy((uintptr_t)&sum, sum_at, sizeof(sum));
    sum ^= product(divide(from, size), behind);
    reach_copy(sum_at, (uintptr_t)&sum, sizeof(sum));
    return true;
}

CUresult checksum_run(const kvmem_checksum *checksum, const context *on) {
    const uint64_t tiles =
        (uint64_t)checksum->num_blocks * checksum->num_layers * checksum->num_outers * checksum->tiles;
    if (tiles > UINT32_MAX || checksum->num_layers > KVMEM_CHECKSUM_MAX_LAYERS || checksum->tile_size == 0) {
        sim_crash("the parameter of the checksum kernel overflows its integers");
    }
    check_constants(checksum);
    if (!kernel_reaches(checksum->blocks, checksum->num_blocks * sizeof(uint32_t),
                        CU_MEM_ACCESS_FLAGS_PROT_READ,
                        on) ||
        !kernel_reaches(checksum->behind, tiles / checksum->num_blocks * sizeof(uint32_t),
                        CU_MEM_ACCESS_FLAGS_PROT_READ, on) ||
        !kernel_reaches(checksum->checksums, checksum->num_blocks * sizeof(uint32_t),
                        CU_MEM_ACCESS_FLAGS_PROT_READWRITE, on)) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    for (unsigned index = (unsigned)tiles; index > 0; index--)
        RETURN_IF(!divide_tile(checksum, index - 1, on), CUDA_ERROR_ILLEGAL_ADDRESS);
    return CUDA_SUCCESS;
}
