// SPDX-License-Identifier: Apache-2.0
// Executes the library's copy kernels: the same tiles, the same arithmetic, and a check of every address.
#include "kernels.h"

#include "call.h"
#include "copy.h"
#include "reach.h"
#include "spans.h"

#include <stdlib.h>
#include <string.h>

static copy_kernel kernel_of(const kvmem_copy *copy) {
    if (copy->num_columns != 0)
        return copy->word_size > copy->unit_size ? TRANSPOSE_VECTORS : TRANSPOSE_BLOCKS;
    return copy->word_size != 0 ? COPY_ROWS : COPY_BLOCKS;
}

const kvmem_copy *kernel_parameter(const void *parameter, unsigned long threads, copy_kernel launched) {
    if (threads != KVMEM_COPY_THREADS) sim_crash("the copy kernel is launched with %lu threads", threads);
    if (launched != kernel_of(parameter)) sim_crash("the parameter is of another copy kernel");
    return kernel_copy(parameter);
}

const kvmem_copy *kernel_copy(const kvmem_copy *parameter) {
    kvmem_copy *copied = sim_allocate(sizeof(*copied));
    memcpy(copied, parameter, sizeof(*copied));
    return copied;
}

static bool is_of(CUdevice device, const context *on) {
    return device == on->device || (on->peers >> device & 1) != 0;
}

/* Kernels have access to less memory than copies. They cannot access pageable host memory, memory of an IPC
 * handle that was opened for another device, and, without cuCtxEnablePeerAccess, memory from cuMemAlloc of a
 * peer. */
static bool reaches(CUdeviceptr start, size_t size, CUmemAccess_flags needed, const context *on) {
    const span *known = span_at(start);
    if (known == NULL || (known->kind == SPAN_ALLOCATION && !is_of(span_device(known), on)) ||
        (known->kind == SPAN_IPC && known->context->device != on->device)) {
        return false;
    }
    return check_reach((range){start, size}, needed, KNOWN, on->device) == CUDA_SUCCESS;
}

/* A kernel may access a range of adjacent allocations and registrations. */
bool kernel_reaches(CUdeviceptr start, size_t size, CUmemAccess_flags needed, const context *on) {
    while (size > 0) {
        const span *known = span_at(start);
        const size_t here = known == NULL ? size : (size_t)(known->start + known->size - start);
        const size_t part = size < here ? size : here;
        if (!reaches(start, part, needed, on)) return false;
        start += part;
        size -= part;
    }
    return true;
}

static bool copy_tile(const kvmem_copy *copy, const kvmem_copy_run *run, unsigned index, const context *on) {
    const unsigned part = index % copy->tiles;
    unsigned rest = index / copy->tiles;
    unsigned block = 0;
    if (!copy->are_joined) {
        block = rest % copy->max_blocks;
        rest /= copy->max_blocks;
    }
    const unsigned outer = rest % copy->num_outers;
    const kvmem_copy_layer *layer = &copy->layers[rest / copy->num_outers];
    const uint64_t size = copy->are_joined ? copy->unit_size * run->length : copy->unit_size;
    const uint64_t offset = (uint64_t)part * copy->tile_size;
    if (block >= run->length || offset >= size) return true;
    const uint64_t left = size - offset;
    const size_t bytes = left < copy->tile_size ? left : copy->tile_size;
    const CUdeviceptr to = layer->destination + outer * copy->destination_outer_stride +
                           (uint64_t)(run->destination + block) * copy->destination_block_stride + offset;
    const CUdeviceptr from = layer->source + outer * copy->source_outer_stride +
                             (uint64_t)(run->source + block) * copy->source_block_stride + offset;
    if (!kernel_reaches(to, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, on) ||
        !kernel_reaches(from, bytes, CU_MEM_ACCESS_FLAGS_PROT_READ, on)) {
        return false;
    }
    reach_copy(to, from, bytes);
    return true;
}

static unsigned quotient(unsigned value, unsigned inverse) {
    return inverse == 0 ? value : (unsigned)((uint64_t)value * inverse >> 32);
}

/* On a GPU, a word that is not aligned to its size destroys the context. */
static void check_words(const kvmem_copy *copy, CUdeviceptr to, CUdeviceptr from, const kvmem_copy_run *run) {
    const uint64_t inner =
        copy->num_inners > 1 ? copy->source_inner_stride | copy->destination_inner_stride : 0;
    const uint64_t outer =
        copy->num_outers > 1 ? copy->source_outer_stride | copy->destination_outer_stride : 0;
    const uint64_t bits = to | from | inner | outer | copy->unit_size;
    if (bits % copy->word_size != 0 || copy->num_words * copy->word_size != copy->unit_size)
        sim_crash("rows of %llu bytes at %lx and %lx, from block %u on, are not aligned words of %u bytes",
                  copy->unit_size, to, from, run->source, copy->word_size);
}

/* The kernel computes the address of each word; the words of a row are contiguous. */
static bool copy_row(const kvmem_copy *copy, CUdeviceptr to, CUdeviceptr from, unsigned row,
                     const context *on) {
    const unsigned outer = quotient(row, copy->inners_inverse);
    const unsigned inner = row - outer * copy->num_inners;
    if (inner >= copy->num_inners || outer >= copy->num_outers)
        sim_crash("row %u of %u x %u is computed as %u, %u", row, copy->num_outers, copy->num_inners, outer,
                  inner);
    /* A 32-bit product, as in the kernel. */
    to += outer * (unsigned)copy->destination_outer_stride + inner * copy->destination_inner_stride;
    from += outer * (unsigned)copy->source_outer_stride + inner * copy->source_inner_stride;
    if (!kernel_reaches(to, copy->unit_size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, on) ||
        !kernel_reaches(from, copy->unit_size, CU_MEM_ACCESS_FLAGS_PROT_READ, on)) {
        return false;
    }
    reach_copy(to, from, copy->unit_size);
    return true;
}

static bool copy_rows(const kvmem_copy *copy, const kvmem_copy_run *run, unsigned index, const context *on) {
    const unsigned first = index % copy->tiles * copy->tile_size;
    const unsigned rest = index / copy->tiles;
    const unsigned block = rest % copy->max_blocks;
    const unsigned all = copy->num_outers * copy->num_inners;
    if (block >= run->length) return true;
    if (first >= all) sim_crash("tile %u contains none of the %u rows", index, all);
    const kvmem_copy_layer *layer = &copy->layers[rest / copy->max_blocks];
    const CUdeviceptr to =
        layer->destination + (uint64_t)(run->destination + block) * copy->destination_block_stride;
    const CUdeviceptr from = layer->source + (uint64_t)(run->source + block) * copy->source_block_stride;
    check_words(copy, to, from, run);
    const unsigned end = first + copy->tile_size < all ? first + copy->tile_size : all;
    for (unsigned row = end; row > first; row--) {
        if (!copy_row(copy, to, from, row - 1, on)) return false;
    }
    return true;
}

/* Bytes of the words of kvmem_transpose_vectors. */
#define VECTOR 16

/* A rectangle of elements: a tile of a matrix. */
typedef struct matrix_tile {
    CUdeviceptr to, from;
    unsigned rows, columns;
} matrix_tile;

/* Bytes that a thread moves at a time on a side: vectors, words of four bytes where the parameter allows it,
   and otherwise elements. */
static unsigned bytes_at_once(const kvmem_copy *copy, bool is_wide) {
    if (kernel_of(copy) == TRANSPOSE_VECTORS) return VECTOR;
    return is_wide && copy->unit_size < 4 ? 4 : (unsigned)copy->unit_size;
}

static void check_matrix_words(const kvmem_copy *copy, const matrix_tile *tile) {
    const unsigned size = (unsigned)copy->unit_size;
    const unsigned source = bytes_at_once(copy, copy->is_source_wide);
    const unsigned destination = bytes_at_once(copy, copy->is_destination_wide);
    const uint64_t here = tile->from | (tile->rows > 1 ? copy->source_inner_stride : 0);
    const uint64_t there = tile->to | (tile->columns > 1 ? copy->destination_column_stride : 0);
    if (here % source != 0 || there % destination != 0 ||
        (tile->columns > 1 && copy->source_column_stride % size != 0) ||
        (tile->rows > 1 && copy->destination_inner_stride % size != 0))
        sim_crash("elements of %u bytes at %lx and %lx are not aligned to %u and %u", size, tile->to,
                  tile->from,
                  destination, source);
    if ((source > size && (tile->columns * size % source != 0 || copy->source_column_stride != size)) ||
        (destination > size && (tile->rows * size % destination != 0 || copy->destination_inner_stride != size)))
        sim_crash("%u x %u elements of %u bytes are not whole words", tile->rows, tile->columns, size);
}

/* The addresses within a tile are 32-bit sums, as in the kernel. */
static bool transpose(const kvmem_copy *copy, const matrix_tile *tile, const context *on) {
    const size_t size = copy->unit_size;
    check_matrix_words(copy, tile);
    for (unsigned at = tile->rows * tile->columns; at > 0; at--) {
        const unsigned row = (at - 1) / tile->columns, column = (at - 1) % tile->columns;
        const CUdeviceptr to =
            tile->to + (row * copy->destination_inner_stride + column * copy->destination_column_stride);
        const CUdeviceptr from =
            tile->from + (row * copy->source_inner_stride + column * copy->source_column_stride);
        if (!kernel_reaches(to, size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, on) ||
            !kernel_reaches(from, size, CU_MEM_ACCESS_FLAGS_PROT_READ, on)) {
            return false;
        }
        reach_copy(to, from, size);
    }
    return true;
}

static unsigned left_of(unsigned all, unsigned first, unsigned most) {
    return first >= all ? 0 : all - first < most ? all - first : most;
}

static bool transpose_tile(const kvmem_copy *copy, const kvmem_copy_run *run, unsigned index,
                           const context *on) {
    const uint64_t column = (uint64_t)(index % copy->column_tiles) << copy->columns_shift;
    const uint64_t row = (uint64_t)(index / copy->column_tiles % copy->row_tiles) << copy->rows_shift;
    unsigned rest = index / copy->column_tiles / copy->row_tiles;
    const unsigned outer = rest % copy->num_outers;
    rest /= copy->num_outers;
    unsigned block = 0;
    if (!copy->are_joined) {
        block = rest % copy->max_blocks;
        rest /= copy->max_blocks;
    }
    if (block >= run->length) return true;
    const kvmem_copy_layer *layer = &copy->layers[rest];
    const unsigned rows = copy->num_inners * (copy->are_joined == KVMEM_JOINED_ROWS ? run->length : 1);
    const unsigned columns = copy->num_columns * (copy->are_joined == KVMEM_JOINED_COLUMNS ? run->length : 1);
    const matrix_tile tile = {
        .to = layer->destination + (uint64_t)(run->destination + block) * copy->destination_block_stride +
              outer * copy->destination_outer_stride + row * copy->destination_inner_stride +
              column * copy->destination_column_stride,
        .from = layer->source + (uint64_t)(run->source + block) * copy->source_block_stride +
                outer * copy->source_outer_stride + row * copy->source_inner_stride +
                column * copy->source_column_stride,
        .rows = left_of(rows, (unsigned)row, 1u << copy->rows_shift),
        .columns = left_of(columns, (unsigned)column, 1u << copy->columns_shift)};
    return transpose(copy, &tile, on);
}

/* The warps of a tile hold all of it, and their shared memory fits it. */
static void check_matrices(const kvmem_copy *copy) {
    const bool of_vectors = kernel_of(copy) == TRANSPOSE_VECTORS;
    const unsigned size = (unsigned)copy->unit_size, word = of_vectors ? VECTOR : 4;
    const unsigned in_word = size < word ? word / size : 1;
    const uint64_t bytes = (uint64_t)size << (copy->rows_shift + copy->columns_shift);
    if (size > 16 || (size & (size - 1)) != 0 || copy->word_size != (of_vectors ? VECTOR : size) ||
        bytes != UINT64_C(2048) << copy->warps_shift ||
        1u << copy->rows_shift < in_word || 1u << copy->columns_shift < in_word ||
        KVMEM_COPY_THREADS / 32 < 1u << copy->warps_shift)
        sim_crash("%u warps cannot transpose tiles of %u x %u elements of %u bytes", 1u << copy->warps_shift,
                  1u << copy->rows_shift, 1u << copy->columns_shift, size);
    const uint64_t rows =
        (uint64_t)copy->num_inners * (copy->are_joined == KVMEM_JOINED_ROWS ? copy->max_blocks : 1);
    const uint64_t columns =
        (uint64_t)copy->num_columns * (copy->are_joined == KVMEM_JOINED_COLUMNS ? copy->max_blocks : 1);
    if (((rows - 1) >> copy->rows_shift) + 1 != copy->row_tiles ||
        ((columns - 1) >> copy->columns_shift) + 1 != copy->column_tiles ||
        (uint64_t)copy->row_tiles * copy->column_tiles * copy->num_outers != copy->tiles)
        sim_crash("%u tiles do not cover %lu x %lu elements", copy->tiles, rows, columns);
}

/* In reverse, because the kernel promises no order. */
static bool copy_run(const kvmem_copy *copy, const kvmem_copy_run *run, unsigned tiles, const context *on) {
    const copy_kernel kernel = kernel_of(copy);
    for (unsigned index = tiles; index > 0; index--) {
        const bool is_copied = copy->num_columns != 0 ? transpose_tile(copy, run, index - 1, on)
                               : kernel == COPY_ROWS  ? copy_rows(copy, run, index - 1, on)
                                                      : copy_tile(copy, run, index - 1, on);
        if (!is_copied) return false;
    }
    return true;
}

CUresult kernel_run(const kvmem_copy *copy, const context *on) {
    const copy_kernel kernel = kernel_of(copy);
    const bool of_units = kernel == COPY_BLOCKS;
    if (copy->num_columns != 0) check_matrices(copy);
    const uint64_t tiles = (uint64_t)copy->num_layers * (of_units ? copy->num_outers : 1) * copy->tiles *
                           (copy->are_joined ? 1 : copy->max_blocks);
    const size_t table = copy->num_runs * sizeof(kvmem_copy_run);
    const bool in_launch = copy->runs == 0;
    if (in_launch && copy->num_layers + copy->num_runs > KVMEM_COPY_MAX_LAYERS)
        sim_crash("the runs of the copy kernel do not fit in its parameter");
    if (tiles * copy->num_runs > UINT32_MAX || copy->num_layers > KVMEM_COPY_MAX_LAYERS ||
        (kernel == COPY_ROWS && copy->are_joined != 0) || copy->tile_size % (of_units ? 16 : 1) != 0) {
        sim_crash("the parameter of the copy kernel overflows its integers");
    }
    RETURN_IF(!in_launch && !kernel_reaches(copy->runs, table, CU_MEM_ACCESS_FLAGS_PROT_READ, on),
              CUDA_ERROR_ILLEGAL_ADDRESS);
    for (unsigned i = copy->num_runs; i > 0; i--) {
        kvmem_copy_run run;
        if (in_launch) memcpy(&run, copy->layers + copy->num_layers + i - 1, sizeof(run));
        else reach_copy((uintptr_t)&run, copy->runs + (i - 1) * sizeof(run), sizeof(run));
        RETURN_IF(!copy_run(copy, &run, (unsigned)tiles, on), CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    return CUDA_SUCCESS;
}
