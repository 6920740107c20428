// SPDX-License-Identifier: Apache-2.0
// GPU transfers among the work of streams. The stand-in holds all of it back and then does what nothing
// orders the other way round, or by chance: wherever the library left out a wait, bytes are read too early or
// written too late.
#include "control.h"
#include "sides.h"
#include "stance.h"

#define LAYERS 3
/* Two parts of one layer of a block each: all that is staged goes through both several times. */
#define STAGING (2 * 2 * 480)

static const uint32_t paths[] = {KVMEM_PATH_CUDA_COPY, KVMEM_PATH_CUDA_BATCH, KVMEM_PATH_CUDA_2D,
                                 KVMEM_PATH_CUDA_KERNEL, KVMEM_PATH_CUDA_STAGED};
static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, LAYERS};
static const uint64_t orders[] = {0, 1, 2, 3};

typedef struct scene {
    side source, destination;
    /* On the GPU, for the driver waits for copies inside host memory: what the source is to be, what it is
     * afterwards, and what was found at the destination. */
    uint64_t before, junk, found;
    kvmem_transfer *transfer;
    CUstream carrier, reader;
} scene;

/* One of all that may be asked of a transfer. */
typedef struct kind {
    place from, to;
    uint32_t path;
    uint64_t flags, order;
    unsigned stream_flags;
} kind;

enum { NUM_KINDS = 2 * NUM(paths) * 2 * NUM(orders) * 2 };

static kind kind_of(size_t number) {
    static const struct {
        place from, to;
    } ways[] = {{PLACE_PINNED, PLACE_DEVICE}, {PLACE_DEVICE, PLACE_PINNED}};
    kind kind = {.from = ways[number % 2].from, .to = ways[number % 2].to};
    kind.flags = number / 2 % 2 ? KVMEM_TRANSFER_BY_LAYER : 0;
    kind.stream_flags = number / 4 % 2 ? CU_STREAM_NON_BLOCKING : 0;
    kind.path = paths[number / 8 % NUM(paths)];
    kind.order = orders[number / 8 / NUM(paths)];
    return kind;
}

static uint64_t filled(const scene *scene, uint32_t seed) {
    const size_t size = scene->source.model.size;
    unsigned char *bytes = test_allocate(size);
    const uint64_t address = engine_allocate(0, size);
    kv_fill(bytes, size, seed);
    write_device(0, address, bytes, size);
    free(bytes);
    return address;
}

static void scene_open(scene *scene, const kind *kind) {
    const kvmem_layout_config source = side_config(&kv_kinds[1]);
    const kvmem_layout_config destination = side_config(&kv_kinds[2]);
    *scene = (struct scene){0};
    SIM(sim_reset());
    SIM(sim_set_order(kind->order));
    retain_device(0);
    side_open(&scene->source, kind->from, 0, &source, NULL, 1);
    side_open(&scene->destination, kind->to, 0, &destination, NULL, 2);
    scene->before = filled(scene, 3);
    scene->junk = filled(scene, 4);
    scene->found = engine_allocate(0, scene->destination.model.size);
    enter_device(0);
    CU(cuStreamCreate(&scene->carrier, kind->stream_flags));
    CU(cuStreamCreate(&scene->reader, kind->stream_flags));
    leave_device(0);
    kvmem_transfer_options options = kv_transfer_options(&move);
    options.path = kind->path;
    options.flags = kind->flags;
    options.staging_size = kind->path == KVMEM_PATH_CUDA_STAGED ? STAGING : 0;
    EXPECT_OK(kvmem_transfer_create(scene->source.model.layout, scene->destination.model.layout, &options,
                                    &scene->transfer, ERR));
    SIM(sim_hold());
}

static void scene_close(scene *scene) {
    CALL(kvmem_transfer_destroy(scene->transfer));
    enter_device(0);
    CU(cuStreamDestroy_v2(scene->carrier));
    CU(cuStreamDestroy_v2(scene->reader));
    leave_device(0);
    engine_free(0, scene->before);
    engine_free(0, scene->junk);
    engine_free(0, scene->found);
    side_close(&scene->source);
    side_close(&scene->destination);
    release_device(0);
    SIM(sim_reset());
}

static void put(scene *scene, uint64_t bytes, CUstream stream) {
    CU_ON(0, cuMemcpyAsync(scene->source.base, bytes, scene->source.model.size, stream));
}

/* Has a stream copy a layer, which is a region of its own at the destination, to where it is looked at. */
static void read_layer(scene *scene, uint64_t layer, CUstream stream) {
    const size_t start = scene->destination.model.starts[layer];
    enter_device(0);
    CU(cuMemcpyAsync(scene->found + start, scene->destination.base + start,
                     kv_region_size(&scene->destination.model.config), stream));
    leave_device(0);
}

/* Lets all go. What was found, and what is there, is what the source was to be. */
static void land(scene *scene) {
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(scene->transfer, PATIENCE, ERR));
    kv_expect_moved(&scene->destination.model, &scene->source.model, &move);
    const kv_side *model = &scene->destination.model;
    unsigned char *found = test_allocate(model->size);
    read_device(0, found, scene->found, model->size);
    for (uint64_t layer = 0; layer < LAYERS; layer++) {
        const size_t start = model->starts[layer];
        CHECK_BYTES(found + start, model->expected + start, kv_region_size(&model->config));
    }
    free(found);
    side_check(&scene->destination);
}

/* Between what fills its source and what reads its destination and takes its source again. */
static void play_on_a_stream(const kind *kind, bool on_default) {
    OPENED(scene, scene, kind);
    CUstream on = on_default ? CU_STREAM_LEGACY : scene.carrier;
    put(&scene, scene.before, on);
    enter_device(0); /* whose default stream it is */
    const CUcontext primary = current_context();
    leave_device(0);
    const CUcontext stance = current_context();
    CU(cuCtxPushCurrent_v2(primary));
    stance_take(primary);
    EXPECT_OK(kvmem_transfer_submit_on_stream(scene.transfer, on, ERR));
    CUcontext popped = NULL;
    CU(cuCtxPopCurrent_v2(&popped));
    stance_take(stance);
    for (uint64_t layer = 0; layer < LAYERS; layer++) {
        read_layer(&scene, layer, on);
    }
    put(&scene, scene.junk, on);
    kv_fill(scene.source.model.expected, scene.source.model.size, 3);
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
        if (kind.stream_flags == 0) {
            play_on_a_stream(&kind, true);
        }
    }
}

/* A stream reads what it waited for and, when it waited for all, takes the source for something else. */
static void play_with_a_reader(const kind *kind, bool on_carrier, bool layer_by_layer) {
    OPENED(scene, scene, kind);
    if (on_carrier) {
        EXPECT_OK(kvmem_transfer_submit_on_stream(scene.transfer, scene.carrier, ERR));
    } else {
        EXPECT_OK(kvmem_transfer_submit(scene.transfer, ERR));
    }
    if (!layer_by_layer) {
        EXPECT_OK(kvmem_transfer_wait_on_stream(scene.transfer, 0, scene.reader, ERR));
    }
    for (uint64_t layer = 0; layer < LAYERS; layer++) {
        if (layer_by_layer) {
            EXPECT_OK(kvmem_transfer_wait_on_stream(scene.transfer, layer + 1, scene.reader, ERR));
        }
        read_layer(&scene, layer, scene.reader);
    }
    if (!layer_by_layer) {
        put(&scene, scene.junk, scene.reader);
    }
    land(&scene);
}

TEST(a_stream_finds_what_it_waited_for) {
    for (size_t i = 0; i < NUM_KINDS * 4; i++) {
        const kind kind = kind_of(i / 4);
        play_with_a_reader(&kind, i % 2, i / 2 % 2);
    }
}
