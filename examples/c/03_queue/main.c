// SPDX-License-Identifier: Apache-2.0
// An engine offloads the blocks of several requests to a file and restores them. One queue reports all transfers to its
// event loop.
#include <kvmem.h>
#include <kvmem/statistics.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS 4
#define BLOCKS_PER_REQUEST 8

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

/* Stands for the engine's scheduler: the blocks of a request can be reused, or used again. */
static void finish(uint64_t request, kvmem_status status)
{
    if (status == KVMEM_STATUS_OK) return;
    fprintf(stderr, "request %d: %s\n", (int)request, kvmem_status_name(status));
    exit(EXIT_FAILURE);
}

/* An engine's event loop: sleeps until transfers have completed, and handles all that have. */
static void handle_completions(kvmem_queue *queue, size_t outstanding, kvmem_error **error)
{
    int32_t fd;
    check(kvmem_queue_get_fd(queue, &fd, error), error);
    while (outstanding > 0) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, -1) < 0) continue;
        kvmem_completion completions[8];
        size_t count;
        check(kvmem_queue_wait(queue, 0, completions, 8, &count, error), error);
        for (size_t i = 0; i < count; i++) finish(completions[i].user_data, completions[i].status);
        outstanding -= count;
    }
}

/* Moves the blocks of all requests between equal ids, one transfer per request. */
static void move_all(kvmem_layout *from, kvmem_layout *to, kvmem_queue *queue, kvmem_error **error)
{
    for (uint32_t request = 0; request < REQUESTS; request++) {
        kvmem_block_pair pairs[BLOCKS_PER_REQUEST];
        for (uint32_t i = 0; i < BLOCKS_PER_REQUEST; i++)
            pairs[i].source = pairs[i].destination = request * BLOCKS_PER_REQUEST + i;
        kvmem_transfer_options options = {.struct_size = sizeof options, .queue = queue};
        kvmem_submit_options blocks = {.struct_size = sizeof blocks, .pairs = pairs,
            .num_pairs = BLOCKS_PER_REQUEST, .user_data = request};
        kvmem_transfer *transfer;
        check(kvmem_transfer_start(from, to, &options, &blocks, &transfer, error), error);
        kvmem_transfer_destroy(transfer); /* the run continues and reports to the queue */
    }
    handle_completions(queue, REQUESTS, error);
}

static kvmem_layout *open_store(const kvmem_layout_config *shape, const char *path, kvmem_error **error)
{
    kvmem_disk_options file = {.struct_size = sizeof file, .path = path,
        .flags = KVMEM_DISK_OPEN_OR_CREATE};
    kvmem_layout_options options = {.struct_size = sizeof options, .config = shape,
        .source = KVMEM_LAYOUT_ALLOCATE, .disk = &file};
    kvmem_layout *store;
    check(kvmem_layout_build(&options, &store, error), error);
    return store;
}

static char *first_bytes(kvmem_layout *cache, uint64_t block, kvmem_error **error)
{
    kvmem_block piece;
    check(kvmem_layout_get_block(cache, block, 0, 0, &piece, error), error);
    return (char *)(uintptr_t)piece.address;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "kv-blocks.store";
    kvmem_layout_config shape = {.struct_size = sizeof shape, .num_blocks = REQUESTS * BLOCKS_PER_REQUEST,
        .num_layers = 8, .outer_dim = 2, .page_size = 16, .inner_dim = 8 * 128, .dtype_width = 2,
        .order = KVMEM_ORDER_FULLY_CONTIGUOUS, .alignment = 4096};
    static const char model[] = "Llama-3.1-8B 5206a32 bf16"; /* the same on all ranks */
    shape.identity = model;
    shape.identity_size = strlen(model);
    kvmem_system_options memory = {.struct_size = sizeof memory};
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &shape,
        .source = KVMEM_LAYOUT_ALLOCATE, .system = &memory};
    kvmem_layout *cache, *store;
    kvmem_queue *queue;
    kvmem_error *error = NULL;

    check(kvmem_layout_build(&options, &cache, &error), &error);
    check(kvmem_queue_create(&queue, &error), &error);
    strcpy(first_bytes(cache, 21, &error), "the keys of request 2");

    store = open_store(&shape, path, &error);
    move_all(cache, store, queue, &error);
    kvmem_layout_destroy(store);

    memset(first_bytes(cache, 21, &error), 0, 32);
    store = open_store(&shape, path, &error); /* as after a restart */
    move_all(store, cache, queue, &error);
    printf("block 21 is restored: %s\n", first_bytes(cache, 21, &error));

    /* what an HTTP endpoint returns to Prometheus */
    kvmem_blob *text = NULL;
    check(kvmem_statistics_text(&text, &error), &error);
    fputs((const char *)kvmem_blob_data(text), stdout);
    kvmem_blob_destroy(text);

    kvmem_layout_destroy(store);
    kvmem_queue_destroy(queue);
    kvmem_layout_destroy(cache);
    return remove(path);
}
