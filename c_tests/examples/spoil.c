// SPDX-License-Identifier: Apache-2.0
// A test preloads this in the demo. It flips one bit in the destination of each transfer, so a demo that does
// not check every byte fails the test.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <kvmem.h>
#include <stdlib.h>

static const kvmem_layout *destination;
static uint64_t block;
static int is_first_byte; /* the last byte may belong to no token */

// Finds the function of that name in the next library.
static void find(const char *name, void *function)
{
    void **slot = function;
    *slot = dlsym(RTLD_NEXT, name);
    if (!*slot) abort();
}

kvmem_status kvmem_transfer_start(const kvmem_layout *from, const kvmem_layout *to,
                                  const kvmem_transfer_options *options, const kvmem_submit_options *first, kvmem_transfer **transfer,
                                  kvmem_error **error)
{
    kvmem_status (*start)(const kvmem_layout *, const kvmem_layout *, const kvmem_transfer_options *,
                          const kvmem_submit_options *, kvmem_transfer **, kvmem_error **);
    find("kvmem_transfer_start", &start);
    destination = to;
    const kvmem_block_table *table = first->destination_table;
    block = table ? table->blocks[0] : first->pairs[first->num_pairs - 1].destination;
    is_first_byte = table != NULL;
    return start(from, to, options, first, transfer, error);
}

kvmem_status kvmem_transfer_wait(const kvmem_transfer *transfer, uint64_t timeout_ns, kvmem_error **error)
{
    kvmem_status (*wait)(const kvmem_transfer *, uint64_t, kvmem_error **);
    find("kvmem_transfer_wait", &wait);
    kvmem_status status = wait(transfer, timeout_ns, error);
    kvmem_layout_info info;
    kvmem_block piece;
    if (status != KVMEM_STATUS_OK || !destination) return status;
    if (kvmem_layout_get_info(destination, &info, NULL) < 0 || info.tier == KVMEM_TIER_DISK) return status;
    const uint64_t layer = info.num_layers - 1, outer = info.outer_dim - 1;
    if (kvmem_layout_get_block(destination, block, layer, outer, &piece, NULL) < 0) abort();
    ((unsigned char *)piece.address)[is_first_byte ? 0 : piece.size - 1] ^= 1;
    destination = NULL;
    return status;
}
