// SPDX-License-Identifier: Apache-2.0
// Executes the library's copy kernels: the same tiles, the same arithmetic, and a check of every address.
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

/* Kernels have access to less memory than copies. They cannot access pageable host memory, memory of an IPC handle that
 * was opened for another device, and, without cuCtxEnablePeerAccess, memory from cuMemAlloc of a peer. */
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
        block = rest % copy->most_blocks;
        rest /= copy->most_blocks;
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
    const uint64_t inner = copy->num_inners > 1 ? copy->source_inner_stride | copy->destination_inner_stride : 0;
    const uint64_t outer = copy->num_outers > 1 ? copy->source_outer_stride | copy->destination_outer_stride : 0;
    const uint64_t bits = to | from | inner | outer | copy->unit_size;
    if (bits % copy->word_size != 0 || copy->num_words * copy->word_size != copy->unit_size)
        sim_crash("rows of %llu bytes at %lx and %lx, from block %u on, are not aligned words of %u bytes",
                  copy->unit_size, to, from, run->source, copy->word_size);
}

/* The kernel computes the address of each word; the words of a row are contiguous. */
static bool copy_row(const kvmem_copy *copy, CUdeviceptr to, CUdeviceptr from, unsigned row, const context *on) {
    const unsigned outer = quotient(row, copy->inners_inverse);
    const unsigned inner = row - outer * copy->num_inners;
    if (inner >= copy->num_inners || outer >= copy->num_outers)
        sim_crash("row %u of %u x %u is computed as %u, %u", row, copy->num_outers, copy->num_inners, outer, inner);
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
    const unsigned block = rest % copy->most_blocks;
    const unsigned all = copy->num_outers * copy->num_inners;
    if (block >= run->length) return true;
    if (first >= all) sim_crash("tile %u contains none of the %u rows", index, all);
    const kvmem_copy_layer *layer = &copy->layers[rest / copy->most_blocks];
    const CUdeviceptr to = layer->destination + (uint64_t)(run->destination + block) * copy->destination_block_stride;
    const CUdeviceptr from = layer->source + (uint64_t)(run->source + block) * copy->source_block_stride;
    check_words(copy, to, from, run);
    const unsigned end = first + copy->tile_size < all ? first + copy->tile_size : all;
    for (unsigned row = end; row > first; row--) {
        if (!copy_row(copy, to, from, row - 1, on)) return false;
    }
    return true;
}

/* In reverse, because the kernel promises no order. */
static bool copy_run(const kvmem_copy *copy, const kvmem_copy_run *run, unsigned tiles, const context *on) {
    for (unsigned index = tiles; index > 0; index--) {
        if (!(copy->word_size != 0 ? copy_rows : copy_tile)(copy, run, index - 1, on)) return false;
    }
    return true;
}

CUresult kernel_run(const kvmem_copy *copy, const context *on) {
    const bool of_rows = copy->word_size != 0;
    const uint64_t tiles = (uint64_t)copy->num_layers * (of_rows ? 1 : copy->num_outers) * copy->tiles *
                           (copy->are_joined ? 1 : copy->most_blocks);
    const size_t table = copy->num_runs * sizeof(kvmem_copy_run);
    const bool in_launch = copy->runs == 0;
    if (in_launch && copy->num_layers + copy->num_runs > KVMEM_COPY_MAX_LAYERS)
        sim_crash("the runs of the copy kernel do not fit in its parameter");
    if (tiles * copy->num_runs > UINT32_MAX || copy->num_layers > KVMEM_COPY_MAX_LAYERS ||
        (of_rows ? copy->are_joined != 0 : copy->tile_size % 16 != 0)) {
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
