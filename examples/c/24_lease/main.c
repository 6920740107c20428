// SPDX-License-Identifier: Apache-2.0
// A reader maps the blocks of another process. It leases what it is going to read, and expects the epochs that the owner has published. So
// the owner sees who uses a block before it fills it again, and a reader that comes too late gets an error, never the bytes of another use.
#include "../two_processes.h"

#include <kvmem.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static const uint64_t patience_ns = 30ull * 1000 * 1000 * 1000;

/* What the owner publishes: in an engine the message by which it replies to a request. */
typedef struct offer {
    uint32_t blocks[2];
    uint64_t epochs[2];
} offer;

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

static void expect(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "expected: %s\n", what);
    exit(EXIT_FAILURE);
}

/* Tells the other process that a step is done. */
static void tell(int socket)
{
    if (send(socket, "", 1, MSG_NOSIGNAL) != 1) fail("send");
}

/* Waits until the other process has done a step. */
static void await(int socket)
{
    char step;
    if (recv(socket, &step, 1, MSG_WAITALL) != 1) fail("receive");
}

static kvmem_layout *build_cache(uint64_t flags)
{
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = 16, .num_layers = 4, .outer_dim = 2,
        .page_size = 16, .inner_dim = 8 * 128, .dtype_width = 2, .order = KVMEM_ORDER_FULLY_CONTIGUOUS};
    kvmem_system_options memory = {.struct_size = sizeof memory, .flags = flags};
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &config,
        .source = KVMEM_LAYOUT_ALLOCATE, .system = &memory};
    kvmem_layout *layout;
    kvmem_error *error = NULL;
    check(kvmem_layout_build(&options, &layout, &error), &error);
    return layout;
}

/* Begins another use of blocks, and fills them. Their old epochs are over before the first byte is written. */
static void fill(kvmem_layout *layout, const uint32_t *blocks, size_t num_blocks, int value, uint64_t *epochs)
{
    kvmem_error *error = NULL;
    check(kvmem_layout_raise_epochs(layout, blocks, num_blocks, epochs, &error), &error);
    for (size_t i = 0; i < num_blocks; i++) {
        kvmem_block block;
        check(kvmem_layout_get_block(layout, blocks[i], 0, 0, &block, &error), &error);
        memset((void *)block.address, value, block.size);
    }
}

/* How many of the blocks may still be read or written. */
static size_t count_used(const kvmem_layout *layout, const uint32_t *blocks, size_t num_blocks)
{
    kvmem_error *error = NULL;
    kvmem_block_access accesses[8];
    size_t count = 0;
    check(kvmem_layout_get_accesses(layout, blocks, num_blocks, accesses, 8, &count, &error), &error);
    for (size_t i = 0; i < count && i < 8; i++) {
        const char *what = accesses[i].writes ? "written" : "read";
        printf("owner: block %u is %s by process %u ", accesses[i].block, what, accesses[i].pid);
        if (accesses[i].remaining_ns == UINT64_MAX) printf("without an end\n");
        else printf("for another %u ms at most\n", (unsigned)(accesses[i].remaining_ns / 1000000));
    }
    return count;
}

static void own(int socket)
{
    kvmem_share_options grant = {.struct_size = sizeof grant, .flags = KVMEM_SHARE_READ_ONLY};
    kvmem_layout *layout = build_cache(KVMEM_SYSTEM_SHAREABLE);
    kvmem_share *share;
    kvmem_error *error = NULL;
    offer found = {.blocks = {3, 7}};

    check(kvmem_layout_create_epochs(layout, NULL, &error), &error); /* before it is shared */
    check(kvmem_share_create_layout(layout, &grant, &share, &error), &error);
    check(kvmem_share_send(share, socket, patience_ns, &error), &error);
    kvmem_share_destroy(share);

    fill(layout, found.blocks, 2, 1, found.epochs);
    if (send(socket, &found, sizeof found, MSG_NOSIGNAL) != (ssize_t)sizeof found) fail("send");

    /* Another request needs block 7. An engine takes another block if it is used, or asks again later. */
    await(socket);
    expect(count_used(layout, &found.blocks[1], 1) > 0, "block 7 is leased");
    tell(socket);
    await(socket);
    expect(count_used(layout, &found.blocks[1], 1) == 0, "the lease of block 7 has ended");
    fill(layout, &found.blocks[1], 1, 2, NULL);
    printf("owner: block 7 has another use\n");
    tell(socket);
    await(socket);
    kvmem_layout_destroy(layout);
}

/* Reads the blocks of an offer into one's own. Returns how the run has ended. */
static kvmem_status read_blocks(kvmem_transfer *transfer, const offer *given, kvmem_error **error)
{
    const kvmem_block_pair pairs[] = {{given->blocks[0], 0}, {given->blocks[1], 1}};
    const kvmem_submit_options read = {.struct_size = sizeof read, .pairs = pairs, .num_pairs = 2,
        .run_timeout_ns = patience_ns, .epochs = given->epochs};
    check(kvmem_transfer_submit(transfer, &read, error), error);
    return kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, error);
}

static void use(int socket)
{
    /* Longer than the owner's step and a read may take. It ends earlier with the handle, or with this process. */
    const kvmem_lease_options while_reading = {.struct_size = sizeof while_reading, .duration_ns = 3 * patience_ns};
    kvmem_layout *mapped, *local = build_cache(0);
    kvmem_transfer *transfer;
    kvmem_lease *lease;
    kvmem_share *share;
    kvmem_error *error = NULL;
    offer given;

    check(kvmem_share_receive(socket, patience_ns, &share, &error), &error);
    check(kvmem_share_open_layout(share, NULL, &mapped, &error), &error);
    kvmem_share_destroy(share);
    check(kvmem_transfer_create(mapped, local, NULL, &transfer, &error), &error);
    if (recv(socket, &given, sizeof given, MSG_WAITALL) != (ssize_t)sizeof given) fail("receive");

    check(kvmem_lease_create(mapped, given.blocks, 2, &while_reading, &lease, &error), &error);
    tell(socket);
    await(socket); /* the owner has looked */
    check(read_blocks(transfer, &given, &error), &error);
    printf("reader: blocks 3 and 7 have arrived\n");
    kvmem_lease_destroy(lease);
    tell(socket);

    /* Without a lease the owner has reused block 7. The epochs that it had published say so. */
    await(socket);
    expect(read_blocks(transfer, &given, &error) == KVMEM_STATUS_STALE, "block 7 has another epoch");
    printf("reader: %s\n", kvmem_error_message(error, NULL));
    kvmem_error_destroy(error);
    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(local);
    kvmem_layout_destroy(mapped);
    tell(socket);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* two processes print */
    return run_two_processes(argc, argv, own, use);
}
