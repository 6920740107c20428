/* SPDX-License-Identifier: Apache-2.0 */
/* What one launch of the copy kernel moves: the one definition for the kernel and for its stand-in in the
 * tests. src/cuda/kernel.rs lays the same struct out for the driver. */
#ifndef KVMEM_COPY_H
#define KVMEM_COPY_H

/* Threads of a CTA. */
#define KVMEM_COPY_THREADS 512
/* Layers of a launch, and runs if these follow them: with as many the struct fits what every driver takes as
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

/* What `are_joined` says of matrices: the blocks of a run continue each other's rows, or columns. */
#define KVMEM_JOINED_ROWS 1
#define KVMEM_JOINED_COLUMNS 2

/* Every block of every run, in every layer. There are four kernels.
 *
 * kvmem_copy_blocks: a block has `num_outers` units in each layer. A tile is what a warp moves at a time: a part of a
 * unit or, where the blocks of a run lie together, of all their units.
 *
 * kvmem_copy_rows, for short units: a block has `num_outers` times `num_inners` units in each layer, which are called
 * rows. A tile is `tile_size` of them. All offsets within a block are less than 2^32.
 *
 * kvmem_transpose_blocks, for elements that are close together along one loop in the source and along another in the destination: a
 * block has `num_outers` matrices in each layer. The source has their elements in `num_inners` rows, and the destination in
 * `num_columns` columns. A tile is a power of two of rows and columns; the warps that move it together hold 2 KiB each. All
 * offsets within a tile are less than 2^32.
 *
 * kvmem_transpose_vectors, the same for elements of 1 to 8 bytes, which are adjacent in rows of the source and columns of the
 * destination: these are whole words of 16 bytes, of which each side of a tile has at least one. */
typedef struct kvmem_copy {
    unsigned long long runs; /* the address of `num_runs` kvmem_copy_run, or 0: they follow the layers */
    unsigned long long unit_size;
    unsigned long long source_block_stride, destination_block_stride;
    unsigned long long source_outer_stride, destination_outer_stride;
    unsigned num_runs;
    unsigned num_layers;
    unsigned num_outers;
    unsigned max_blocks; /* of a run */
    unsigned are_joined;  /* whether the blocks of a run lie together on both sides; never with rows */
    unsigned tile_size;   /* bytes, a multiple of 16; rows, where there are rows; 0 with matrices */
    unsigned tiles;       /* of a unit, or of `max_blocks` joined ones; of all rows, or matrices, of a block in a layer */
    unsigned word_size;   /* 0: units; else words of 1, 2, 4, 8 or 16 bytes, of which all addresses are multiples */
    unsigned num_inners;
    unsigned source_inner_stride, destination_inner_stride;
    unsigned num_words;      /* of a row */
    unsigned words_inverse;  /* 2^32 / num_words rounded up; 0 if there is one word */
    unsigned inners_inverse; /* 2^32 / num_inners rounded up; 0 if there is one */
    unsigned num_columns; /* 0: no matrices */
    unsigned source_column_stride, destination_column_stride;
    unsigned row_tiles, column_tiles;           /* of a matrix; of `max_blocks` joined ones */
    unsigned rows_shift, columns_shift;         /* binary logarithms of a tile's rows and columns */
    unsigned warps_shift;                       /* that of the number of warps that move a tile */
    unsigned is_source_wide, is_destination_wide; /* elements are adjacent, in whole words of 4 bytes that are aligned */
    kvmem_copy_layer layers[KVMEM_COPY_MAX_LAYERS];
} kvmem_copy;

#endif
