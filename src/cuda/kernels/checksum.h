/* SPDX-License-Identifier: Apache-2.0 */
/* What one launch of the checksum kernel reads: the one definition for the kernel and for its stand-in in the tests.
 * src/cuda/checksum.rs lays the same struct out for the driver. */
#ifndef KVMEM_CHECKSUM_H
#define KVMEM_CHECKSUM_H

/* Threads of a CTA. */
#define KVMEM_CHECKSUM_THREADS 512
/* Layers of a launch. */
#define KVMEM_CHECKSUM_MAX_LAYERS 240
/* The polynomial of CRC32C; the highest power is in the lowest bit. */
#define KVMEM_CHECKSUM_POLYNOMIAL 0x82F63B78u
/* Words of a row: what the threads of a warp read at a time. */
#define KVMEM_CHECKSUM_ROW 32

/* Every tile of every block, in every layer and outer slot. A tile is what a warp divides at a time, a part of a block's
 * piece. Its share in the block's remainder is added there. */
typedef struct kvmem_checksum {
    unsigned long long blocks;    /* the address of `num_blocks` ids */
    unsigned long long behind;    /* the address of x to the power of the bits behind each tile of a block */
    unsigned long long checksums; /* the address of one for each block */
    unsigned long long piece_size;
    unsigned long long block_stride, outer_stride;
    unsigned num_blocks;
    unsigned num_layers;
    unsigned num_outers;
    unsigned tiles; /* of a piece */
    unsigned tile_size;
    unsigned reserved;
    unsigned further[32];              /* what each bit of a remainder is a row further, from the lowest on */
    unsigned words[KVMEM_CHECKSUM_ROW]; /* x to the power of the bits from each word of a row on, to the row's end */
    unsigned long long layers[KVMEM_CHECKSUM_MAX_LAYERS]; /* where block 0 begins, in its first outer slot */
} kvmem_checksum;

#endif
