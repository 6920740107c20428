/* SPDX-License-Identifier: Apache-2.0 */
/* What one launch of the checksum kernel reads: the one definition for the kernel and for its stand-in in the tests.
 * src/cuda/checksum.rs lays the same struct out for the driver. */
#ifndef KVMEM_CHECKSUM_H
#define KVMEM_CHECKSUM_H

/* Threads of a CTA. */
#define KVMEM_CHECKSUM_THREADS 256
/* Layers of a launch. */
#define KVMEM_CHECKSUM_MAX_LAYERS 240
/* The polynomial of CRC32C; the highest power is in the lowest bit. */
#define KVMEM_CHECKSUM_POLYNOMIAL 0x82F63B78u
/* A tile is smaller than 2 to this power. */
#define KVMEM_CHECKSUM_POWERS 16

/* Every tile of every block, in every layer and outer slot: for each, in this order, the remainder of its bytes. A tile is
 * what a warp reads at a time, a part of a block's piece. */
typedef struct kvmem_checksum {
    unsigned long long blocks;     /* the address of `num_blocks` ids */
    unsigned long long remainders; /* the address that gets one for each tile */
    unsigned long long piece_size;
    unsigned long long block_stride, outer_stride;
    unsigned num_blocks;
    unsigned num_layers;
    unsigned num_outers;
    unsigned tiles; /* of a piece */
    unsigned tile_size;
    unsigned reserved;
    unsigned powers[KVMEM_CHECKSUM_POWERS]; /* x to the power of 8, 16, 32, ... */
    unsigned long long layers[KVMEM_CHECKSUM_MAX_LAYERS]; /* where block 0 begins, in its first outer slot */
} kvmem_checksum;

#endif
