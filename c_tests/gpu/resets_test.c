// SPDX-License-Identifier: Apache-2.0
// Random sequences of resets of the device by an engine, and of calls of kvmem. No sequence may crash the
// process or damage the engine's new context, and objects that are not lost still work.
#include "engine.h"
#include "filled.h"
#include "own_context.h"
#include "sides.h"
#include "caller_context.h"

enum { SIDES = 6, TRANSFERS = 6, STEPS = 40 };
static uint32_t num_sequences; /* 30, and 8 on a GPU, where each reset creates a context */

static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}, {2, 1}};
static const kv_move moves[] = {{pairs, NUM(pairs), 0, 0, 3}, {pairs, 2, 0, 0, 3}, {pairs + 3, 2, 1, 0, 2}};
static const uint32_t paths[] = {0, KVMEM_METHOD_CUDA_COPY, KVMEM_METHOD_CUDA_BATCH, KVMEM_METHOD_CUDA_2D,
                                 KVMEM_METHOD_CUDA_KERNEL, KVMEM_METHOD_CUDA_STAGED};
static const place host_places[] = {PLACE_SYSTEM, PLACE_PINNED, PLACE_CHUNKED, PLACE_LOCKED_PARTS};
static const place device_places[] = {PLACE_DEVICE, PLACE_ADOPTED, PLACE_ELASTIC};

/* A side, and the number of resets before it was opened. */
typedef struct place_in_use {
    side side;
    bool is_open;
    uint32_t resets;
} place_in_use;

typedef struct transfer_in_use {
    kvmem_transfer *handle; /* may be NULL */
    size_t source, destination;
    const kv_move *move;
    uint32_t path;
    uint32_t resets;
} transfer_in_use;

/* Objects of the engine in its context: a stream, and memory that kvmem must not change. */
#define ENGINE_SIZE (256 * 1024)
typedef struct engine {
    bool has_objects;
    CUstream stream;
    uint64_t memory;
    unsigned char byte;
} engine;

typedef struct world {
    uint64_t random;
    uint32_t resets;
    uint32_t seed;
    uint32_t retains;
    engine engine;
    place_in_use sides[SIDES];
    transfer_in_use transfers[TRANSFERS];
} world;

static uint32_t choose(world *w, uint32_t below) {
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (uint32_t)((w->random >> 20) % below);
}

/* The stand-in counts illegal accesses. On a GPU they destroy the context, which engine_check detects. */
static uint64_t illegal_accesses(void) {
    uint64_t (*count)(void) = NULL;
    void *symbol = driver_symbol("sim_illegal_accesses");
    memcpy(&count, &symbol, sizeof(symbol));
    return count == NULL ? 0 : count();
}

/* ---- the engine ---- */

static void engine_begin(world *w) {
    if (w->engine.has_objects) return;
    w->engine.byte++;
    CU_ON(0, cuStreamCreate(&w->engine.stream, CU_STREAM_NON_BLOCKING));
    w->engine.memory = engine_allocate(0, ENGINE_SIZE);
    fill_device(0, w->engine.memory, ENGINE_SIZE, w->engine.byte);
    w->engine.has_objects = true;
}

/* Checks the engine's memory and context. */
static void engine_check(world *w) {
    CHECK_EQ(illegal_accesses(), 0);
    if (w->engine.has_objects) {
        check_device(0, w->engine.memory, ENGINE_SIZE, w->engine.byte);
        CU_ON(0, cuCtxSynchronize());
    }
}

static void engine_end(world *w) {
    if (w->engine.has_objects) {
        CU_ON(0, cuStreamDestroy_v2(w->engine.stream));
        engine_free(0, w->engine.memory);
        w->engine.has_objects = false;
    }
}

static void engine_reset(world *w) {
    engine_check(w);
    if (w->engine.has_objects) {
        engine_forget_lost(0);
        w->engine.has_objects = false;
    }
    reset_device(0);
    w->resets++;
    for (size_t i = 0; i < SIDES; i++) {
        side *side = &w->sides[i].side;
        side->is_lost |= w->sides[i].is_open && side->place == PLACE_ADOPTED;
    }
}

static void engine_retain(world *w) {
    retain_device(0);
    w->retains++;
    engine_begin(w);
}

/* ---- sides ---- */

/* Returns whether a side is lost with the context that it was opened in. */
static bool is_of_context(const place_in_use *used) {
    const place place = used->side.place;
    return place == PLACE_PINNED || place == PLACE_CHUNKED || place == PLACE_DEVICE || place == PLACE_ADOPTED;
}

static bool is_lost(const world *w, const place_in_use *used) {
    return is_of_context(used) && used->resets != w->resets;
}

/* The first half of the sides are in host memory. */
static void side_begin(world *w, size_t index) {
    place_in_use *used = &w->sides[index];
    const place place = index < SIDES / 2 ? host_places[choose(w, NUM(host_places))]
                                          : device_places[choose(w, NUM(device_places))];
    const kvmem_layout_config config = side_config(&kv_kinds[choose(w, KV_NUM_KINDS)]);
    side_open(&used->side, place, 0, &config, NULL, ++w->seed);
    used->is_open = true;
    used->resets = w->resets;
}

static void transfer_end(transfer_in_use *transfer) {
    DESTROYED(kvmem_transfer, transfer->handle);
}

static void side_end(world *w, size_t index) {
    place_in_use *used = &w->sides[index];
    if (!used->is_open) return;
    for (size_t i = 0; i < TRANSFERS; i++) {
        if (w->transfers[i].source == index || w->transfers[i].destination == index)
            transfer_end(&w->transfers[i]);
    }
    if (!is_lost(w, used)) side_check(&used->side);
    side_close(&used->side);
    used->is_open = false;
}

/* Checksums of host memory are computed on the host, which does not need page locks. */
static void side_compute_checksums(world *w, size_t index) {
    static const uint32_t blocks[] = {0, 3};
    const place_in_use *used = &w->sides[index];
    uint32_t checksums[NUM(blocks)];
    if (!used->is_open) return;
    const kvmem_layout *layout = used->side.model.layout;
    if (is_lost(w, used) && place_is_device(used->side.place)) {
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, context_destroyed,
                       kvmem_layout_checksum(layout, blocks, NUM(blocks), KVMEM_TIMEOUT_FOREVER, checksums, ERR));
    } else {
        EXPECT_OK(kvmem_layout_checksum(layout, blocks, NUM(blocks), KVMEM_TIMEOUT_FOREVER, checksums, ERR));
    }
}

/* ---- transfers ---- */

static void transfer_begin(world *w, transfer_in_use *transfer) {
    transfer_end(transfer);
    transfer->source = choose(w, SIDES);
    transfer->destination = (transfer->source + SIDES / 2) % SIDES; /* one of them is in GPU memory */
    transfer->move = &moves[choose(w, NUM(moves))];
    transfer->resets = w->resets;
    const place_in_use *source = &w->sides[transfer->source];
    const place_in_use *destination = &w->sides[transfer->destination];
    if (!source->is_open || !destination->is_open) return;
    kv_job options = kv_job_of(transfer->move);
    options.transfer.method = transfer->path = paths[choose(w, NUM(paths))];
    options.transfer.staging_size = 64 * 1024;
    const kvmem_status status = kv_prepare(source->side.model.layout,
                                                      destination->side.model.layout,
                                                      &options, &transfer->handle, ERR);
    caller_context_check(__FILE__, __LINE__, "kvmem_transfer_create");
    if (is_lost(w, source) || is_lost(w, destination)) CHECK_EQ(status, KVMEM_STATUS_INVALID_STATE);
    else if (status != KVMEM_STATUS_UNSUPPORTED || options.transfer.method == 0) CHECK_EQ(status,
                                                                                          KVMEM_STATUS_OK);
}

static void expect_moved(world *w, const transfer_in_use *transfer) {
    side *source = &w->sides[transfer->source].side;
    side *destination = &w->sides[transfer->destination].side;
    side_check_moved(destination, source, transfer->move);
    side_check(source);
}

static kvmem_status submit(world *w, transfer_in_use *transfer, bool has_new_pairs) {
    const bool on_stream = choose(w, 2) == 0;
    const kvmem_submit_options step = OPTIONS(kvmem_submit_options, it.pairs = transfer->move->pairs,
                                              it.num_pairs = transfer->move->num_pairs);
    kvmem_status status;
    if (has_new_pairs) {
        status = on_stream ? kvmem_transfer_submit_on_stream(transfer->handle, &step, w->engine.stream,
                                                                   ERR)
                           : kvmem_transfer_submit(transfer->handle, &step, ERR);
    } else {
        status = on_stream ? kvmem_transfer_submit_on_stream(transfer->handle, NULL, w->engine.stream, ERR)
                           : kvmem_transfer_submit(transfer->handle, NULL, ERR);
    }
    caller_context_check(__FILE__, __LINE__, "submit");
    return status;
}

/* A prepared transfer works only in the context that it was prepared in. New pairs are prepared in the
   current context, unless memory or page locks that the requested path needs were lost with the previous
   context. */
static void transfer_run(world *w, transfer_in_use *transfer) {
    if (transfer->handle == NULL) return;
    engine_begin(w);
    const bool has_new_pairs = choose(w, 2) == 0, is_prepared = transfer->resets == w->resets;
    const bool has_memory =
        !is_lost(w, &w->sides[transfer->source]) && !is_lost(w, &w->sides[transfer->destination]);
    const kvmem_status status = submit(w, transfer, has_new_pairs);
    if (!is_prepared && !(has_new_pairs && has_memory)) {
        CHECK_EQ(status, KVMEM_STATUS_INVALID_STATE);
    } else if (is_prepared || status != KVMEM_STATUS_UNSUPPORTED || transfer->path == 0) {
        CHECK_EQ(status, KVMEM_STATUS_OK);
        EXPECT_OK(kvmem_transfer_wait(transfer->handle, PATIENCE, ERR));
        expect_moved(w, transfer);
        transfer->resets = w->resets;
    }
}

/* ---- sequences ---- */

static void step(world *w) {
    const size_t side = choose(w, SIDES);
    transfer_in_use *transfer = &w->transfers[choose(w, TRANSFERS)];
    switch (choose(w, 11)) {
    case 0: engine_reset(w); break;
    case 1: engine_retain(w); break;
    case 2:
        side_end(w, side);
        side_begin(w, side);
        break;
    case 3: side_compute_checksums(w, side); break;
    case 4: transfer_end(transfer); break;
    case 5:
    case 6:
    case 7: transfer_begin(w, transfer); break;
    default: transfer_run(w, transfer); break;
    }
    engine_check(w);
}

/* Destroys handles in a random order. */
static void world_close(world *w) {
    const size_t first = choose(w, SIDES);
    for (size_t i = 0; i < SIDES; i++) side_end(w, (first + i) % SIDES);
    for (size_t i = 0; i < TRANSFERS; i++) transfer_end(&w->transfers[i]);
    engine_check(w);
    engine_end(w);
    for (; w->retains > 0; w->retains--) release_device(0);
}

TEST(random_sequences_of_resets_and_calls) {
    for (uint32_t sequence = 1; sequence <= num_sequences; sequence++) {
        CLEANUP(world_close) world w = {.random = UINT64_C(0x9E3779B97F4A7C15) * sequence};
        printf("%s%u", sequence == 1 ? "        sequences: " : " ", sequence);
        fflush(stdout);
        for (size_t i = 0; i < SIDES; i++) side_begin(&w, i);
        for (int i = 0; i < STEPS; i++) step(&w);
    }
    printf("\n");
}

CONTEXTS_END

/* Optional argument: the number of sequences. */
int main(int argc, char **argv) {
    num_sequences = argc == 2 ? (uint32_t)strtoul(argv[1], NULL, 10) : driver_is_stand_in() ? 30 : 8;
    return caller_context_main(1, argv, test_registered());
}
