// SPDX-License-Identifier: Apache-2.0
// GPU transfers among the work of streams. The stand-in holds all of it back and then does what nothing
// orders the other way round, or by chance: if the library leaves out a wait, bytes are read too early or
// written too late.
#include "control.h"
#include "gpu_flight.h"
#include "stance.h"

#define LAYERS 3
/* Two parts of one layer of a block each: all that is staged goes through both several times. */
#define STAGING (2 * 2 * 480)

static const uint32_t paths[] = {KVMEM_PATH_CUDA_COPY, KVMEM_PATH_CUDA_BATCH, KVMEM_PATH_CUDA_2D,
                                 KVMEM_PATH_CUDA_KERNEL, KVMEM_PATH_CUDA_STAGED};
static const uint64_t orders[] = {0, 1, 2, 3};

typedef struct scene {
    flight flight;
    /* On the GPU, for the driver waits for copies inside host memory: what the source is to be, what it is
       afterwards, and what was found at the destination. */
    uint64_t before, junk, found;
    stream carrier, reader;
} scene;

/* One of all that may be asked of a transfer. */
typedef struct kind {
    route way;
    uint32_t path;
    uint64_t flags, order;
    unsigned stream_flags;
} kind;

enum { NUM_KINDS = 2 * NUM(paths) * 2 * NUM(orders) * 2 };

static kind kind_of(size_t number) {
    static const route ways[] = {{PLACE_PINNED, PLACE_DEVICE}, {PLACE_DEVICE, PLACE_PINNED}};
    return (kind){
        .way = ways[number % 2],
        .flags = number / 2 % 2 ? KVMEM_TRANSFER_BY_LAYER : 0,
        .stream_flags = number / 4 % 2 ? CU_STREAM_NON_BLOCKING : 0,
        .path = paths[number / 8 % NUM(paths)],
        .order = orders[number / 8 / NUM(paths)],
    };
}

static uint64_t filled(const scene *scene, uint32_t seed) {
    const size_t size = scene->flight.source.model.size;
    CLEANUP(test_free) unsigned char *bytes = test_allocate(size);
    const uint64_t address = engine_allocate(0, size);
    kv_fill(bytes, size, seed);
    write_device(0, address, bytes, size);
    return address;
}

static void scene_open(scene *scene, const kind *kind) {
    const kvmem_layout_config source = side_config(&kv_kinds[1]);
    const kvmem_layout_config destination = side_config(&kv_kinds[2]);
    SIM(sim_reset());
    SIM(sim_set_order(kind->order));
    stream_open_with(&scene->carrier, 0, kind->stream_flags);
    stream_open_with(&scene->reader, 0, kind->stream_flags);
    flight_open(&scene->flight, .from = kind->way.from, .to = kind->way.to, .source = &source,
                .destination = &destination);
    scene->before = filled(scene, 3);
    scene->junk = filled(scene, 4);
    scene->found = engine_allocate(0, scene->flight.destination.model.size);
    flight_create(&scene->flight, it.path = kind->path, it.flags = kind->flags,
                  it.staging_size = kind->path == KVMEM_PATH_CUDA_STAGED ? STAGING : 0);
    SIM(sim_hold());
}

static void scene_close(scene *scene) {
    engine_free(0, scene->before);
    engine_free(0, scene->junk);
    engine_free(0, scene->found);
    flight_close(&scene->flight);
    stream_close(&scene->carrier);
    stream_close(&scene->reader);
    SIM(sim_reset());
}

static void put(const scene *scene, uint64_t bytes, CUstream stream) {
    CU_ON(0, cuMemcpyAsync(scene->flight.source.base, bytes, scene->flight.source.model.size, stream));
}

/* Has a stream copy a layer, which is a region of its own at the destination, to where it is looked at. */
static void read_layer(const scene *scene, uint64_t layer, CUstream stream) {
    const side *read = &scene->flight.destination;
    const size_t start = read->model.starts[layer];
    const size_t size = kv_region_size(&read->model.config);
    CU_ON(0, cuMemcpyAsync(scene->found + start, read->base + start, size, stream));
}

/* Lets all go. What was found, and what is there, is what the source was to be. */
static void land(scene *scene) {
    side *destination = &scene->flight.destination;
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(scene->flight.transfer, PATIENCE, ERR));
    side_check_moved(destination, &scene->flight.source, scene->flight.move);
    CLEANUP(test_free) unsigned char *found = test_allocate(destination->model.size);
    read_device(0, found, scene->found, destination->model.size);
    for (uint64_t layer = 0; layer < LAYERS; layer++) {
        const size_t start = destination->model.starts[layer];
        CHECK_BYTES(found + start, destination->model.expected + start,
                    kv_region_size(&destination->model.config));
    }
}

/* Between what fills its source and what reads its destination and takes its source again. */
static void play_on_a_stream(const kind *kind, bool on_default) {
    OPENED(scene, scene, kind);
    CUstream on = on_default ? CU_STREAM_LEGACY : scene.carrier.handle;
    put(&scene, scene.before, on);
    flight_submit_on_primary(&scene.flight, on);
    for (uint64_t layer = 0; layer < LAYERS; layer++) read_layer(&scene, layer, on);
    put(&scene, scene.junk, on);
    kv_fill(scene.flight.source.model.expected, scene.flight.source.model.size, 3);
    land(&scene);
}

TEST(a_transfer_keeps_its_place_on_a_stream) {
    for (size_t i = 0; i < NUM_KINDS; i++) {
        const kind kind = kind_of(i);
        play_on_a_stream(&kind, false);
    }
}

TEST(a_transfer_keeps_its_place_on_the_default_stream) {
    for (size_t i = 0; i < NUM_KINDS; i++) {
        const kind kind = kind_of(i);
        if (kind.stream_flags == 0) play_on_a_stream(&kind, true);
    }
}

/* A stream reads what it waited for and, when it waited for all, takes the source for something else. */
static void play_with_a_reader(const kind *kind, bool on_carrier, bool layer_by_layer) {
    OPENED(scene, scene, kind);
    const CUstream reader = scene.reader.handle;
    const kvmem_transfer *transfer = scene.flight.transfer;
    if (on_carrier) flight_submit_on(&scene.flight, scene.carrier.handle);
    else flight_submit(&scene.flight);
    if (!layer_by_layer) EXPECT_OK(kvmem_transfer_wait_on_stream(transfer, 0, reader, ERR));
    for (uint64_t layer = 0; layer < LAYERS; layer++) {
        if (layer_by_layer) EXPECT_OK(kvmem_transfer_wait_on_stream(transfer, layer + 1, reader, ERR));
        read_layer(&scene, layer, reader);
    }
    if (!layer_by_layer) put(&scene, scene.junk, reader);
    land(&scene);
}

TEST(a_stream_finds_what_it_waited_for) {
    for (size_t i = 0; i < NUM_KINDS * 4; i++) {
        const kind kind = kind_of(i / 4);
        play_with_a_reader(&kind, i % 2, i / 2 % 2);
    }
}
