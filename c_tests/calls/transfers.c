// SPDX-License-Identifier: Apache-2.0
// Calls on transfers and queues.
#include "driver.h"
#include "options.h"
#include "table.h"

#define MAX_PAIRS 6
#define SECOND UINT64_C(1000000000)

/* Few blocks of one layout, mostly distinct. */
static void fill_pairs(fuzz *fuzz, kvmem_block_pair *pairs, size_t count) {
    const uint32_t first = (uint32_t)random_below(fuzz, 3);
    for (size_t i = 0; i < count; i++) {
        pairs[i].source = (uint32_t)random_index(fuzz, 8);
        pairs[i].destination =
            random_one_in(fuzz, 40) ? (uint32_t)random_index(fuzz, 8) : first + (uint32_t)i;
    }
}

/* The arrays that options point to. */
typedef struct lists {
    kvmem_block_pair pairs[MAX_PAIRS];
    uint32_t checksums[MAX_PAIRS];
    uint64_t epochs[MAX_PAIRS];
    uint32_t ids[2][MAX_PAIRS];
    kvmem_block_table tables[2];
} lists;

/* A table over few blocks, mostly long enough for a few tokens. */
static const kvmem_block_table *fill_table(fuzz *fuzz, lists *lists, int side) {
    const size_t count = 1 + random_below(fuzz, MAX_PAIRS);
    const uint32_t first = (uint32_t)random_below(fuzz, 3);
    for (size_t i = 0; i < count; i++)
        lists->ids[side][i] = random_one_in(fuzz, 40) ? (uint32_t)random_index(fuzz, 8) : first + (uint32_t)i;
    lists->tables[side] = (kvmem_block_table){or_null(fuzz, lists->ids[side]), count, random_below(fuzz, 5),
                                              random_one_in(fuzz, 4) ? random_below(fuzz, 4) : 0};
    if (random_one_in(fuzz, 60)) lists->tables[side].first_token = random_next(fuzz);
    return or_null(fuzz, &lists->tables[side]);
}

static uint64_t random_tokens(fuzz *fuzz) {
    return random_one_in(fuzz, 60) ? random_next(fuzz) : random_below(fuzz, 12);
}

static kvmem_transfer_options options_of_transfer(fuzz *fuzz) {
    static const uint32_t computes[] = {KVMEM_COMPUTE_MAY_RUN, KVMEM_COMPUTE_IDLE, 7};
    static const uint64_t stagings[] = {0, 0, 0, 4096, 64 * KIB, MIB, 1};
    const uint64_t known = KVMEM_TRANSFER_ZERO_COPY | KVMEM_TRANSFER_NO_HOST_BOUNCE |
                           KVMEM_TRANSFER_BY_LAYER | KVMEM_TRANSFER_REPORT_RELEASE;
    FUZZ_OPTIONS(kvmem_transfer_options, options);
    options.flags = random_flags(fuzz, known);
    if (random_one_in(fuzz, 2)) { /* indices that exist in layouts of all shapes */
        options.num_layers = 1;
        options.num_outers = 1;
        options.source_layer = random_one_in(fuzz, 4) ? random_index(fuzz, 2) : 0;
        options.destination_outer = random_one_in(fuzz, 4) ? random_index(fuzz, 2) : 0;
    }
    if (random_one_in(fuzz, 5)) { /* valid for the layouts with heads, which have four */
        options.source_head = random_below(fuzz, 4);
        options.destination_head = random_below(fuzz, 4);
        options.num_heads = random_below(fuzz, 4);
    }
    options.queue = random_one_in(fuzz, 2) ? table_pick(fuzz, QUEUES) : NULL;
    options.layers_per_completion = random_one_in(fuzz, 4) ? random_index(fuzz, 3) : 0;
    options.compute = random_one_in(fuzz, 4) ? random_of(fuzz, computes) : 0;
    options.max_ctas = random_one_in(fuzz, 6) ? (uint32_t)random_next(fuzz) : 0;
    options.staging_size = random_of(fuzz, stagings);
    options.method = random_one_in(fuzz, 3) ? (uint32_t)random_below(fuzz, 13) : 0;
    options_spoil(fuzz, &options.reserved);
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    return options;
}

static kvmem_submit_options options_of_step(fuzz *fuzz, lists *lists) {
    const size_t count = 1 + random_below(fuzz, MAX_PAIRS);
    fill_pairs(fuzz, lists->pairs, count);
    FUZZ_OPTIONS(kvmem_submit_options, options);
    options.pairs = or_null(fuzz, lists->pairs);
    options.num_pairs = random_one_in(fuzz, 60) ? 0 : count;
    if (random_one_in(fuzz, 4)) {
        options.pairs = NULL;
        options.num_pairs = random_one_in(fuzz, 40) ? 1 : 0;
        options.source_table = fill_table(fuzz, lists, 0);
        options.destination_table = fill_table(fuzz, lists, 1);
        options.num_tokens = random_tokens(fuzz);
    }
    options.user_data = random_next(fuzz);
    if (random_one_in(fuzz, 10)) {
        options.notification = "moved";
        options.notification_size = random_below(fuzz, 6);
    }
    options.flags = random_one_in(fuzz, 4) ? random_flags(fuzz, KVMEM_SUBMIT_VERIFY | KVMEM_SUBMIT_CHECKSUM) : 0;
    options.checksums = random_one_in(fuzz, 12) ? lists->checksums : NULL;
    memset(lists->epochs, 0, sizeof(lists->epochs));
    options.epochs = random_one_in(fuzz, 12) ? lists->epochs : NULL;
    options.run_timeout_ns = random_one_in(fuzz, 8) ? 1 + random_below(fuzz, 100000) : 0;
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    return options;
}

static void create_transfer(fuzz *fuzz) {
    const kvmem_transfer_options options = options_of_transfer(fuzz);
    const kvmem_layout *source = table_pick(fuzz, LAYOUTS);
    const kvmem_layout *destination = table_pick(fuzz, LAYOUTS);
    CREATE(fuzz, TRANSFERS, kvmem_transfer_create, source, destination, or_null(fuzz, &options));
}

static void start(fuzz *fuzz) {
    lists lists = {0};
    const kvmem_transfer_options options = options_of_transfer(fuzz);
    const kvmem_submit_options step = options_of_step(fuzz, &lists);
    const kvmem_layout *source = table_pick(fuzz, LAYOUTS);
    const kvmem_layout *destination = table_pick(fuzz, LAYOUTS);
    CREATE(fuzz, TRANSFERS, kvmem_transfer_start, source, destination, or_null(fuzz, &options),
           or_null(fuzz, &step));
}

/* The last arguments follow the transfer. Half of the submissions are of what was prepared. */
#define TAKES_BLOCKS(name, function, ...)                                                            \
    static void name(fuzz *fuzz) {                                                                   \
        lists lists = {0};                                                                           \
        const kvmem_submit_options options = options_of_step(fuzz, &lists);                          \
        kvmem_transfer *transfer = table_pick(fuzz, TRANSFERS);                                      \
        TRY(fuzz, function, transfer, __VA_ARGS__);                                                  \
    }
TAKES_BLOCKS(prepare, kvmem_transfer_prepare, or_null(fuzz, &options))
TAKES_BLOCKS(submit, kvmem_transfer_submit, random_one_in(fuzz, 2) ? NULL : &options)
TAKES_BLOCKS(submit_on_stream, kvmem_transfer_submit_on_stream, random_one_in(fuzz, 2) ? NULL : &options,
             table_pick(fuzz, STREAMS))

static void create_stream(fuzz *fuzz) {
    CUstream stream = NULL;
    const int device = (int)random_below(fuzz, 2);
    CU_ON(device, cuStreamCreate(&stream, 1));
    table_add(fuzz, STREAMS, stream);
}

static void wait_on_stream(fuzz *fuzz) {
    const kvmem_transfer *transfer = table_pick(fuzz, TRANSFERS);
    TRY(fuzz, kvmem_transfer_wait_on_stream, transfer, random_below(fuzz, 4), table_pick(fuzz, STREAMS));
}

TRIES(poll_transfer, kvmem_transfer_poll, TRANSFERS)
TRIES_WITH(wait_transfer, kvmem_transfer_wait, TRANSFERS, random_timeout(fuzz))

static void transfer_get_info(fuzz *fuzz) {
    kvmem_transfer_info info;
    const kvmem_transfer *transfer = table_pick(fuzz, TRANSFERS);
    if (TRY(fuzz, kvmem_transfer_get_info, transfer, or_null(fuzz, &info)) == KVMEM_STATUS_OK)
        DO(fuzz, kvmem_method_name, info.method);
}

TRIES_WITH(wait_layers, kvmem_transfer_wait_layers, TRANSFERS, random_below(fuzz, 4), random_timeout(fuzz))
TRIES(cancel, kvmem_transfer_cancel, TRANSFERS)

static void explain(fuzz *fuzz) {
    const kvmem_transfer *transfer = table_pick(fuzz, TRANSFERS);
    CREATE_IF(true, fuzz, BLOBS, kvmem_transfer_explain, transfer);
    kvmem_compared_method methods[4];
    size_t count;
    TRY(fuzz, kvmem_transfer_get_methods, transfer, or_null(fuzz, methods), random_below(fuzz, 5),
        or_null(fuzz, &count));
}

/* Half of the time after a run that computes checksums. */
static void get_findings(fuzz *fuzz) {
    kvmem_transfer *transfer = table_pick(fuzz, TRANSFERS);
    if (random_one_in(fuzz, 2)) {
        const kvmem_block_pair first = {0, 0};
        FUZZ_OPTIONS(kvmem_submit_options, options);
        options.pairs = &first;
        options.num_pairs = 1;
        options.flags = KVMEM_SUBMIT_CHECKSUM;
        TRY(fuzz, kvmem_transfer_submit, transfer, &options);
        TRY(fuzz, kvmem_transfer_wait, transfer, random_timeout(fuzz));
    }
    uint64_t mismatches[MAX_PAIRS];
    uint32_t checksums[MAX_PAIRS];
    size_t count;
    TRY(fuzz, kvmem_transfer_get_mismatches, transfer, or_null(fuzz, mismatches), random_below(fuzz, MAX_PAIRS + 1),
        or_null(fuzz, &count));
    TRY(fuzz, kvmem_transfer_get_checksums, transfer, or_null(fuzz, checksums), random_below(fuzz, MAX_PAIRS + 1),
        or_null(fuzz, &count));
}

DESTROYS(destroy_transfer, TRANSFERS)
DESTROYS(destroy_stream, STREAMS)

static void create_queue(fuzz *fuzz) {
    void *queue = POISON;
    const kvmem_status status = TRY(fuzz, kvmem_queue_create, (void *)&queue);
    check_created(fuzz, QUEUES, status, queue, true);
    if (random_one_in(fuzz, 20)) TRY(fuzz, kvmem_queue_create, NULL);
}

static void queue_get_fd(fuzz *fuzz) {
    int32_t fd = -1;
    const kvmem_queue *queue = table_pick(fuzz, QUEUES);
    if (TRY(fuzz, kvmem_queue_get_fd, queue, &fd) == KVMEM_STATUS_OK) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, 0) < 0 || (ready.revents & POLLNVAL) != 0)
            fuzz_fail(fuzz, "the event fd %d is not open", (int)fd);
    }
}

static void queue_wait(fuzz *fuzz) {
    kvmem_completion completions[4];
    size_t count = 0;
    TRY(fuzz, kvmem_queue_wait, table_pick(fuzz, QUEUES), random_timeout(fuzz), or_null(fuzz, completions),
        random_below(fuzz, 5), or_null(fuzz, &count));
}

DESTROYS(destroy_queue, QUEUES)

static void await_step(fuzz *fuzz, kvmem_transfer *transfer, kvmem_queue *queue, kvmem_status status) {
    kvmem_completion completions[4];
    size_t count = 0;
    if (status == KVMEM_STATUS_OK && TRY(fuzz, kvmem_transfer_wait, transfer, SECOND) == KVMEM_STATUS_OK)
        TRY(fuzz, kvmem_queue_wait, queue, SECOND, completions, 4, &count);
}

/* The sequence of calls that an engine makes on its stream. Random choices seldom produce it. */
static void use_stream(fuzz *fuzz) {
    static const kvmem_block_pair pairs[] = {{0, 1}, {2, 3}};
    const int32_t device = (int32_t)random_below(fuzz, 2);
    const kvmem_layout_config config = OPTIONS(kvmem_layout_config, it.num_blocks = 4, it.num_layers = 2,
                                               it.outer_dim = 2, it.page_size = 4, it.inner_dim = 64,
                                               it.dtype_width = 2, it.order = KVMEM_ORDER_LAYER_SEPARATE);
    const kvmem_device_options memory = OPTIONS(kvmem_device_options, it.device = device);
    const kvmem_layout_options blocks = OPTIONS(kvmem_layout_options, it.config = &config,
                                                it.device = &memory, it.source = KVMEM_LAYOUT_ALLOCATE);
    OWNED(kvmem_queue) queue = NULL;
    OWNED(kvmem_layout) layout = NULL;
    OWNED(kvmem_transfer) transfer = NULL;
    CUstream stream = NULL;
    CU_ON(device, cuStreamCreate(&stream, 1));
    TRY(fuzz, kvmem_queue_create, &queue);
    TRY(fuzz, kvmem_layout_build, &blocks, &layout);
    const kvmem_transfer_options options = OPTIONS(kvmem_transfer_options, it.flags = KVMEM_TRANSFER_BY_LAYER,
                                                   it.queue = queue,
                                                   it.layers_per_completion = random_below(fuzz, 3));
    const kvmem_submit_options first = OPTIONS(kvmem_submit_options, it.pairs = pairs, it.num_pairs = 2);
    const kvmem_submit_options step = OPTIONS(kvmem_submit_options, it.pairs = pairs, it.num_pairs = 1);
    TRY(fuzz, kvmem_transfer_create, layout, layout, &options, &transfer);
    kvmem_status status = TRY(fuzz, kvmem_transfer_submit_on_stream, transfer, &first, stream);
    TRY(fuzz, kvmem_transfer_wait_on_stream, transfer, 0, stream);
    TRY(fuzz, kvmem_transfer_wait_layers, transfer, 1, SECOND);
    await_step(fuzz, transfer, queue, status);
    status = TRY(fuzz, kvmem_transfer_submit_on_stream, transfer, NULL, stream);
    await_step(fuzz, transfer, queue, status);
    status = TRY(fuzz, kvmem_transfer_submit_on_stream, transfer, &step, stream);
    await_step(fuzz, transfer, queue, status);
    CU(cuStreamDestroy_v2(stream));
}

const operation transfer_operations[] = {
    OPERATION_WITH(20, create_transfer, BIT(LAYOUTS), BIT(TRANSFERS)),
    OPERATION_WITH(40, start, BIT(LAYOUTS), BIT(TRANSFERS)),
    OPERATION_WITH(20, prepare, BIT(TRANSFERS), 0),
    OPERATION_WITH(60, submit, BIT(TRANSFERS), 0),
    OPERATION_WITH(4, create_stream, 0, BIT(STREAMS)),
    OPERATION_WITH(12, submit_on_stream, BIT(TRANSFERS) | BIT(STREAMS), 0),
    OPERATION_WITH(4, wait_on_stream, BIT(TRANSFERS) | BIT(STREAMS), 0),
    OPERATION_WITH(8, poll_transfer, BIT(TRANSFERS), 0),
    OPERATION_WITH(12, wait_transfer, BIT(TRANSFERS), 0),
    OPERATION_WITH(2, transfer_get_info, BIT(TRANSFERS), 0),
    OPERATION_WITH(4, wait_layers, BIT(TRANSFERS), 0),
    OPERATION_WITH(8, cancel, BIT(TRANSFERS), 0),
    OPERATION_WITH(4, explain, BIT(TRANSFERS), BIT(BLOBS)),
    OPERATION_WITH(4, get_findings, BIT(TRANSFERS), 0),
    OPERATION_WITH(14, destroy_transfer, BIT(TRANSFERS), 0),
    OPERATION(2, destroy_stream),
    OPERATION(1, use_stream),
    OPERATION_WITH(5, create_queue, 0, BIT(QUEUES)),
    OPERATION_WITH(2, queue_get_fd, BIT(QUEUES), 0),
    OPERATION_WITH(4, queue_wait, BIT(QUEUES), 0),
    OPERATION_WITH(4, destroy_queue, BIT(QUEUES), 0),
    {0},
};
