// SPDX-License-Identifier: Apache-2.0
// Runs the library's copy kernels: the same tiles by the same arithmetic, with every address checked.
#include "kernels.h"

#include "call.h"
#include "copy.h"
#include "reach.h"
#include "spans.h"

#include <stdlib.h>
#include <string.h>

const kvmem_copy *kernel_parameter(const void *parameter, unsigned long threads, bool of_rows) {
    if (threads != KVMEM_COPY_THREADS) sim_crash("the copy kernel is launched with %lu threads", threads);
    if (of_rows != (((const kvmem_copy *)parameter)->word_size != 0))
        sim_crash("the parameter is of the other copy kernel");
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

/* A kernel reaches less than a copy does: neither pageable host memory nor, unless its context was told to,
 * plain memory of a peer, nor memory of another process that was opened for another device. */
static bool reaches(CUdeviceptr start, size_t size, CUmemAccess_flags needed, const context *on) {
    const span *known = span_at(start);
    if (known == NULL || (known->kind == SPAN_ALLOCATION && !is_of(span_device(known), on)) ||
        (known->kind == SPAN_IPC && known->context->device != on->device)) {
        return false;
    }
    return check_reach((range){start, size}, needed, KNOWN, on->device) == CUDA_SUCCESS;
}

/* Neighbours that were page-locked or allocated apart are one range to a kernel. */
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

static bool copy_tile(const kvmem_copy *asked, const kvmem_copy_run *run, unsigned index, const context *on) {
    const unsigned part = index % asked->tiles;
    unsigned rest = index / asked->tiles;
    unsigned block = 0;
    if (!asked->are_joined) {
        block = rest % asked->most_blocks;
        rest /= asked->most_blocks;
    }
    const unsigned outer = rest % asked->num_outers;
    const kvmem_copy_layer *layer = &asked->layers[rest / asked->num_outers];
    const uint64_t size = asked->are_joined ? asked->unit_size * run->length : asked->unit_size;
    const uint64_t offset = (uint64_t)part * asked->tile_size;
    if (block >= run->length || offset >= size) return true;
    const uint64_t left = size - offset;
    const size_t bytes = left < asked->tile_size ? left : asked->tile_size;
    const CUdeviceptr to = layer->destination + outer * asked->destination_outer_stride +
                           (uint64_t)(run->destination + block) * asked->destination_block_stride + offset;
    const CUdeviceptr from = layer->source + outer * asked->source_outer_stride +
                             (uint64_t)(run->source + block) * asked->source_block_stride + offset;
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

/* A word that is not aligned to its size ends the context of a GPU. */
static void check_words(const kvmem_copy *asked, CUdeviceptr to, CUdeviceptr from, const kvmem_copy_run *run) {
    const uint64_t inner = asked->num_inners > 1 ? asked->source_inner_stride | asked->destination_inner_stride : 0;
    const uint64_t outer = asked->num_outers > 1 ? asked->source_outer_stride | asked->destination_outer_stride : 0;
    const uint64_t bits = to | from | inner | outer | asked->unit_size;
    if (bits % asked->word_size != 0 || asked->num_words * asked->word_size != asked->unit_size)
        sim_crash("rows of %llu bytes at %lx and %lx, from block %u on, are not words of %u bytes", asked->unit_size,
                  to, from, run->source, asked->word_size);
}

/* The words of a row go from where its first one lies to where its last one ends: the kernel computes the place of each. */
static bool copy_row(const kvmem_copy *asked, CUdeviceptr to, CUdeviceptr from, unsigned row, const context *on) {
    const unsigned outer = quotient(row, asked->inners_inverse);
    const unsigned inner = row - outer * asked->num_inners;
    if (inner >= asked->num_inners || outer >= asked->num_outers)
        sim_crash("row %u of %u times %u is computed as %u, %u", row, asked->num_outers, asked->num_inners, outer, inner);
    /* In 32 bits, as the kernel does. */
    to += outer * (unsigned)asked->destination_outer_stride + inner * asked->destination_inner_stride;
    from += outer * (unsigned)asked->source_outer_stride + inner * asked->source_inner_stride;
    if (!kernel_reaches(to, asked->unit_size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, on) ||
        !kernel_reaches(from, asked->unit_size, CU_MEM_ACCESS_FLAGS_PROT_READ, on)) {
        return false;
    }
    reach_copy(to, from, asked->unit_size);
    return true;
}

static bool copy_rows(const kvmem_copy *asked, const kvmem_copy_run *run, unsigned index, const context *on) {
    const unsigned first = index % asked->tiles * asked->tile_size;
    const unsigned rest = index / asked->tiles;
    const unsigned block = rest % asked->most_blocks;
    const unsigned all = asked->num_outers * asked->num_inners;
    if (block >= run->length) return true;
    if (first >= all) sim_crash("tile %u of rows has none of %u", index, all);
    const kvmem_copy_layer *layer = &asked->layers[rest / asked->most_blocks];
    const CUdeviceptr to = layer->destination + (uint64_t)(run->destination + block) * asked->destination_block_stride;
    const CUdeviceptr from = layer->source + (uint64_t)(run->source + block) * asked->source_block_stride;
    check_words(asked, to, from, run);
    const unsigned end = first + asked->tile_size < all ? first + asked->tile_size : all;
    for (unsigned row = end; row > first; row--) {
        if (!copy_row(asked, to, from, row - 1, on)) return false;
    }
    return true;
}

/* The last tile first: the kernel promises no order. */
static bool copy_run(const kvmem_copy *asked, const kvmem_copy_run *run, unsigned tiles, const context *on) {
    for (unsigned index = tiles; index > 0; index--) {
        if (!(asked->word_size != 0 ? copy_rows : copy_tile)(asked, run, index - 1, on)) return false;
    }
    return true;
}

CUresult kernel_run(const kvmem_copy *asked, const context *on) {
    const bool of_rows = asked->word_size != 0;
    const uint64_t tiles = (uint64_t)asked->num_layers * (of_rows ? 1 : asked->num_outers) * asked->tiles *
                           (asked->are_joined ? 1 : asked->most_blocks);
    const size_t table = asked->num_runs * sizeof(kvmem_copy_run);
    const bool in_launch = asked->runs == 0;
    if (in_launch && asked->num_layers + asked->num_runs > KVMEM_COPY_MAX_LAYERS)
        sim_crash("the copy kernel's runs do not fit behind its layers");
    if (tiles * asked->num_runs > UINT32_MAX || asked->num_layers > KVMEM_COPY_MAX_LAYERS ||
        (of_rows ? asked->are_joined != 0 : asked->tile_size % 16 != 0)) {
        sim_crash("the copy kernel is asked for what its integers do not hold");
    }
    RETURN_IF(!in_launch && !kernel_reaches(asked->runs, table, CU_MEM_ACCESS_FLAGS_PROT_READ, on),
              CUDA_ERROR_ILLEGAL_ADDRESS);
    for (unsigned i = asked->num_runs; i > 0; i--) {
        kvmem_copy_run run;
        if (in_launch) memcpy(&run, asked->layers + asked->num_layers + i - 1, sizeof(run));
        else reach_copy((uintptr_t)&run, asked->runs + (i - 1) * sizeof(run), sizeof(run));
        RETURN_IF(!copy_run(asked, &run, (unsigned)tiles, on), CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    return CUDA_SUCCESS;
}
