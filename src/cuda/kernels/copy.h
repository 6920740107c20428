/* SPDX-License-Identifier: Apache-2.0 */
/* What one launch of the copy kernel moves: the one definition for the kernel and for its stand-in in the
 * tests. src/cuda/kernel.rs lays the same struct out for the driver. */
#ifndef KVMEM_COPY_H
#define KVMEM_COPY_H

/* Threads of a CTA. */
#define KVMEM_COPY_THREADS 512
/* Layers of a launch, and runs where these lie behind them: with as many the struct just fits what every driver takes as
 * parameters. */
#define KVMEM_COPY_MAX_LAYERS 240

/* Blocks that follow each other on both sides. Aligned so that a warp reads one at once. */
typedef struct kvmem_copy_run {
    unsigned source, destination, length, reserved;
} kvmem_copy_run;

/* Where block 0 of a layer begins on both sides, in its first outer slot. */
typedef struct kvmem_copy_layer {
    unsigned long long source, destination;
} kvmem_copy_layer;

/* Every block of every run, in every layer and outer slot. A tile is what a warp moves at a time: a part of a
 * block's unit or, where the blocks of a run lie together, of all of them. */
typedef struct kvmem_copy {
    unsigned long long runs; /* the address of `num_runs` kvmem_copy_run, or 0: they lie behind the layers */
    unsigned long long unit_size;
    unsigned long long source_block_stride, destination_block_stride;
    unsigned long long source_outer_stride, destination_outer_stride;
    unsigned num_runs;
    unsigned num_layers;
    unsigned num_outers;
    unsigned most_blocks; /* of a run */
    unsigned are_joined;  /* whether the blocks of a run lie together on both sides */
    unsigned tile_size;   /* a multiple of 16 */
    unsigned tiles;       /* of a unit, or of `most_blocks` joined ones */
    unsigned reserved;
    kvmem_copy_layer layers[KVMEM_COPY_MAX_LAYERS];
} kvmem_copy;

#endif
