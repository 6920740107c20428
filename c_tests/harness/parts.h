// SPDX-License-Identifier: Apache-2.0
// Layouts that are combined from parts: keys and values of different width, data and scales, an indexer, a
// state.
#pragma once

#include "kv.h"

#include <kvmem.h>
#include <stddef.h>
#include <stdint.h>

typedef struct part_shape {
    const char *name;
    const char *order;
    uint64_t layers, outer, tokens, heads, elements, width; /* heads: 0 if the order has none */
} part_shape;

#define PARTS_BLOCKS 9

/* Data, an indexer and scales: in their usual orders, and in other orders that need reshaping. */
#define PARTS 3
extern const part_shape parts_shapes[PARTS], parts_reordered[PARTS];

kvmem_layout_config part_config(const part_shape *shape);
/* Builds each part in separate memory with these options, and combines the parts. `config` is ignored. */
kvmem_layout *parts_build(const part_shape *shapes, size_t count, const kvmem_layout_options *options);
/* The same in system memory; with an agent, registered with it. */
kvmem_layout *parts_build_system(const part_shape *shapes, size_t count, kvmem_agent *agent);
/* Fills all bytes of host memory. */
void parts_fill(const part_shape *shapes, size_t count, const kvmem_layout *layout, uint32_t seed);
/* Checks that all bytes of both are the same, including padding. The layouts have the same parts, in host
   memory. */
void parts_check_same(const part_shape *shapes, size_t count, const kvmem_layout *got,
                      const kvmem_layout *expected);
/* Checks that the blocks have the same checksums in both. */
void parts_check_blocks(const kvmem_layout *one, const kvmem_layout *other, const kvmem_block_pair *pairs,
                        size_t num_pairs);
/* Moves each part by a separate transfer between the parts of two layouts. */
void parts_run_apart(const part_shape *shapes, size_t count, const kvmem_layout *source,
                     const kvmem_layout *destination, const kv_job *options);
