// SPDX-License-Identifier: Apache-2.0
// An owner gives its blocks epochs, and publishes them with the block ids. A reader that has an old epoch gets an error that names the block,
// never the bytes of another use. Before the owner fills a block again, it asks who may still read or write it.
#include <kvmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

/* Whether a run of this process, a session of a peer or the holder of a lease may still read or write some blocks. */
static int are_used(const kvmem_layout *layout, const uint32_t *blocks, size_t num_blocks)
{
    kvmem_error *error = NULL;
    kvmem_status status;
    kvmem_block_access accesses[8];
    size_t count = 0;
    status = kvmem_layout_get_accesses(layout, blocks, num_blocks, accesses, 8, &count, &error);
    check(status, &error);
    for (size_t i = 0; i < count && i < 8; i++)
        printf("block %u is %s by %s\n", accesses[i].block, accesses[i].writes ? "written" : "read",
            accesses[i].accessor == KVMEM_ACCESSOR_PEER ? accesses[i].agent :
            accesses[i].accessor == KVMEM_ACCESSOR_LEASE ? "the holder of a lease" : "a run of this process");
    return count > 0;
}

/* Tells the owner of blocks that this process, which has mapped them, is going to read them. */
static kvmem_lease *lease_blocks(const kvmem_layout *mapped, const uint32_t *blocks, size_t num_blocks)
{
    kvmem_error *error = NULL;
    kvmem_lease *lease;
    kvmem_status status;
    const kvmem_lease_options options = {.struct_size = sizeof options, .duration_ns = 2000000000}; /* 2 s */
    status = kvmem_lease_create(mapped, blocks, num_blocks, &options, &lease, &error);
    check(status, &error);
    return lease;
}

/* Begins another use of some blocks, and fills them. Returns what is to be published. */
static void reuse(kvmem_layout *layout, const uint32_t *blocks, size_t num_blocks, int value, uint64_t *epochs)
{
    kvmem_error *error = NULL;
    kvmem_status status;
    /* Before the first byte of another use is written: when blocks are freed, or when they are filled again. */
    status = kvmem_layout_raise_epochs(layout, blocks, num_blocks, epochs, &error);
    check(status, &error);
    for (size_t i = 0; i < num_blocks; i++) {
        kvmem_block bytes;
        check(kvmem_layout_get_block(layout, blocks[i], 0, 0, &bytes, &error), &error);
        memset((void *)bytes.address, value, bytes.size);
    }
}

/* Moves blocks of the epochs that were published. Returns how the run has ended, and the first stale pair. */
static kvmem_status move(kvmem_transfer *transfer, const kvmem_block_pair *pairs, size_t num_pairs, const uint64_t *epochs,
    uint64_t *stale, kvmem_error **error)
{
    kvmem_status status;
    const kvmem_submit_options read = {
        .struct_size = sizeof read, .pairs = pairs, .num_pairs = num_pairs, .epochs = epochs,
    };
    status = kvmem_transfer_submit(transfer, &read, error);
    check(status, error);
    const kvmem_status ended = kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, error);
    if (ended == KVMEM_STATUS_STALE) {
        size_t count = 0;
        check(kvmem_transfer_get_mismatches(transfer, stale, num_pairs, &count, NULL), error);
    }
    return ended;
}

int main(void)
{
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = 16, .num_layers = 1, .outer_dim = 1,
        .page_size = 16, .inner_dim = 1024, .dtype_width = 2, .order = KVMEM_ORDER_FULLY_CONTIGUOUS};
    kvmem_system_options memory = {.struct_size = sizeof memory};
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &config,
        .source = KVMEM_LAYOUT_ALLOCATE, .system = &memory};
    kvmem_layout *layout, *own;
    kvmem_transfer *transfer;
    kvmem_error *error = NULL;
    kvmem_status status;

    check(kvmem_layout_build(&options, &layout, &error), &error);
    check(kvmem_layout_build(&options, &own, &error), &error);
    status = kvmem_layout_create_epochs(layout, NULL, &error); /* once, before the layout is exported or shared */
    check(status, &error);
    check(kvmem_transfer_create(layout, own, NULL, &transfer, &error), &error);

    const uint32_t blocks[] = {3, 7};
    const kvmem_block_pair pairs[] = {{3, 0}, {7, 1}};
    uint64_t epochs[2], stale[2];
    reuse(layout, blocks, 2, 1, epochs);
    check(move(transfer, pairs, 2, epochs, stale, &error), &error);
    printf("blocks 3 and 7 are of epochs %llu and %llu\n", (unsigned long long)epochs[0], (unsigned long long)epochs[1]);

    kvmem_lease *lease = lease_blocks(layout, &blocks[1], 1);
    if (!are_used(layout, &blocks[1], 1)) return EXIT_FAILURE; /* the run has ended, and the block is leased */
    kvmem_lease_destroy(lease);
    if (are_used(layout, &blocks[1], 1)) return EXIT_FAILURE;
    reuse(layout, &blocks[1], 1, 2, NULL); /* block 7 has another use, and the reader does not know */
    if (move(transfer, pairs, 2, epochs, stale, &error) != KVMEM_STATUS_STALE) return EXIT_FAILURE;
    printf("pair %llu is stale: %s\n", (unsigned long long)stale[0], kvmem_error_message(error, NULL));

    kvmem_error_destroy(error);
    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(own);
    kvmem_layout_destroy(layout);
}
