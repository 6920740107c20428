// SPDX-License-Identifier: Apache-2.0
// GPU transfers and other work of streams. The stand-in holds all of it back, and then runs work that is not
// ordered in reverse or random order. If kvmem omits a wait, bytes are read too early or written too late.
#include "control.h"
#include "gpu_flight.h"
#include "caller_context.h"

#define LAYERS 3
/* Two chunks, each for one layer of a block, so that staged transfers use both several times. */
#define STAGING (2 * 2 * 480)

static const uint32_t paths[] = {KVMEM_METHOD_CUDA_COPY, KVMEM_METHOD_CUDA_BATCH, KVMEM_METHOD_CUDA_2D,
                                 KVMEM_METHOD_CUDA_KERNEL, KVMEM_METHOD_CUDA_STAGED};
static const uint64_t orders[] = {0, 1, 2, 3};

typedef struct ordering {
    flight flight;
    /* On the GPU, because the driver waits for copies between host memory: the contents of the source, other
       contents that overwrite it afterwards, and the bytes read from the destination. */
    uint64_t contents, other_contents, found;
    stream transfer_stream, reader;
} ordering;

/* One combination of the options of a transfer. */
typedef struct kind {
    route route;
    uint32_t path;
    uint64_t flags, order;
    unsigned stream_flags;
} kind;

enum { NUM_KINDS = 2 * NUM(paths) * 2 * NUM(orders) * 2 };

static kind kind_of(size_t number) {
    static const route routes[] = {{PLACE_PINNED, PLACE_DEVICE}, {PLACE_DEVICE, PLACE_PINNED}};
    return (kind){
        .route = routes[number % 2],
        .flags = number / 2 % 2 ? KVMEM_TRANSFER_BY_LAYER : 0,
        .stream_flags = number / 4 % 2 ? CU_STREAM_NON_BLOCKING : 0,
        .path = paths[number / 8 % NUM(paths)],
        .order = orders[number / 8 / NUM(paths)],
    };
}

static uint64_t filled(const ordering *ordering, uint32_t seed) {
    const size_t size = ordering->flight.source.model.size;
    CLEANUP(test_free) unsigned char *bytes = test_allocate(size);
    const uint64_t address = engine_allocate(0, size);
    kv_fill(bytes, size, seed);
    write_device(0, address, bytes, size);
    return address;
}

static void ordering_open(ordering *ordering, const kind *kind) {
    const kvmem_layout_config source = side_config(&kv_kinds[1]);
    const kvmem_layout_config destination = side_config(&kv_kinds[2]);
    SIM(sim_reset());
    SIM(sim_set_order(kind->order));
    stream_open_with(&ordering->transfer_stream, 0, kind->stream_flags);
    stream_open_with(&ordering->reader, 0, kind->stream_flags);
    flight_open(&ordering->flight, .from = kind->route.from, .to = kind->route.to, .source = &source,
                .destination = &destination);
    ordering->contents = filled(ordering, 3);
    ordering->other_contents = filled(ordering, 4);
    ordering->found = engine_allocate(0, ordering->flight.destination.model.size);
    flight_create(&ordering->flight, it.transfer.method = kind->path, it.transfer.flags = kind->flags,
                  it.transfer.staging_size = kind->path == KVMEM_METHOD_CUDA_STAGED ? STAGING : 0);
    SIM(sim_hold());
}

static void ordering_close(ordering *ordering) {
    engine_free(0, ordering->contents);
    engine_free(0, ordering->other_contents);
    engine_free(0, ordering->found);
    flight_close(&ordering->flight);
    stream_close(&ordering->transfer_stream);
    stream_close(&ordering->reader);
    SIM(sim_reset());
}

static void fill_source(const ordering *ordering, uint64_t bytes, CUstream stream) {
    CU_ON(0, cuMemcpyAsync(ordering->flight.source.base, bytes, ordering->flight.source.model.size, stream));
}

/* Makes a stream copy a layer, which is one region of the destination, to `found`. */
static void read_layer(const ordering *ordering, uint64_t layer, CUstream stream) {
    const side *read = &ordering->flight.destination;
    const size_t start = read->model.starts[layer];
    const size_t size = kv_region_size(&read->model.config);
    CU_ON(0, cuMemcpyAsync(ordering->found + start, read->base + start, size, stream));
}

/* Ends the hold. Checks that the destination and the bytes read from it have the contents of the source. */
static void finish(ordering *ordering) {
    side *destination = &ordering->flight.destination;
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(ordering->flight.transfer, PATIENCE, ERR));
    side_check_moved(destination, &ordering->flight.source, ordering->flight.move);
    CLEANUP(test_free) unsigned char *found = test_allocate(destination->model.size);
    read_device(0, found, ordering->found, destination->model.size);
    for (uint64_t layer = 0; layer < LAYERS; layer++) {
        const size_t start = destination->model.starts[layer];
        CHECK_BYTES(found + start, destination->model.expected + start,
                    kv_region_size(&destination->model.config));
    }
}

/* On the same stream, the source is filled before the transfer; afterwards the destination is read and the
   source overwritten. */
static void run_on_a_stream(const kind *kind, bool on_default) {
    OPENED(ordering, ordering, kind);
    CUstream on = on_default ? CU_STREAM_LEGACY : ordering.transfer_stream.handle;
    fill_source(&ordering, ordering.contents, on);
    flight_submit_on_primary(&ordering.flight, on);
    for (uint64_t layer = 0; layer < LAYERS; layer++) read_layer(&ordering, layer, on);
    fill_source(&ordering, ordering.other_contents, on);
    kv_fill(ordering.flight.source.model.expected, ordering.flight.source.model.size, 3);
    finish(&ordering);
}

TEST(a_transfer_runs_in_order_on_a_stream) {
    for (size_t i = 0; i < NUM_KINDS; i++) {
        const kind kind = kind_of(i);
        run_on_a_stream(&kind, false);
    }
}

TEST(a_transfer_runs_in_order_on_the_default_stream) {
    for (size_t i = 0; i < NUM_KINDS; i++) {
        const kind kind = kind_of(i);
        if (kind.stream_flags == 0) run_on_a_stream(&kind, true);
    }
}

/* Another stream waits for the transfer and reads the destination; if it waits for all layers, it overwrites
   the source. */
static void run_with_a_reader(const kind *kind, bool on_carrier, bool by_layer) {
    OPENED(ordering, ordering, kind);
    const CUstream reader = ordering.reader.handle;
    const kvmem_transfer *transfer = ordering.flight.transfer;
    if (on_carrier) flight_submit_on(&ordering.flight, ordering.transfer_stream.handle);
    else flight_submit(&ordering.flight);
    if (!by_layer) EXPECT_OK(kvmem_transfer_wait_on_stream(transfer, 0, reader, ERR));
    for (uint64_t layer = 0; layer < LAYERS; layer++) {
        if (by_layer) EXPECT_OK(kvmem_transfer_wait_on_stream(transfer, layer + 1, reader, ERR));
        read_layer(&ordering, layer, reader);
    }
    if (!by_layer) fill_source(&ordering, ordering.other_contents, reader);
    finish(&ordering);
}

TEST(a_stream_reads_the_layers_that_it_waited_for) {
    for (size_t i = 0; i < NUM_KINDS * 4; i++) {
        const kind kind = kind_of(i / 4);
        run_with_a_reader(&kind, i % 2, i / 2 % 2);
    }
}
