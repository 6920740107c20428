// SPDX-License-Identifier: Apache-2.0
// KV layouts for tests: an independent address formula, memory with guard bands, and a model of every byte
// after a transfer.
#pragma once

#include <kvmem.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_MAX_REGIONS 256

typedef struct kv_kind {
    const char *name;
    const char *order;
} kv_kind;
#define KV_NUM_KINDS 3
extern const kv_kind kv_kinds[KV_NUM_KINDS]; /* fully contiguous; layer separate; with outer slots first */
/* For each kind: `EACH_KV_KIND(kind) { ... kv_config(kind) ... }`; and for each pair of two. */
#define EACH_KV_KIND(kind) for (const kv_kind *kind = kv_kinds; kind < kv_kinds + KV_NUM_KINDS; kind++)
#define EACH_TWO_KV_KINDS(one, other) EACH_KV_KIND(one) EACH_KV_KIND(other)

/* The geometry most tests use: 7 blocks, 3 layers, K and V, pieces of 4 tokens x 6 elements x 2 bytes. */
kvmem_layout_config kv_config(const kv_kind *kind);

/* 64 blocks of 256 KiB, 4 layers, pieces of 32 KiB: no copy is small enough for the calling thread. */
kvmem_layout_config kv_large_config(const kv_kind *kind);

/* A shape in a message to another process. */
typedef struct kv_sent_config {
    kvmem_layout_config config; /* without the order, which is a pointer */
    char order[8];
} kv_sent_config;
kv_sent_config kv_sent(const kvmem_layout_config *config);
/* The shape. It refers to the order in the message, which must exist as long. */
kvmem_layout_config kv_received(const kv_sent_config *sent);

/* The formula of the header, implemented independently from the specification. */
bool kv_has_outer_first(const kvmem_layout_config *config);
uint64_t kv_piece_size(const kvmem_layout_config *config);
uint64_t kv_block_stride(const kvmem_layout_config *config);
uint64_t kv_num_regions(const kvmem_layout_config *config);
uint64_t kv_region_size(const kvmem_layout_config *config);
uint64_t kv_region_of(const kvmem_layout_config *config, uint64_t layer);
/* Bytes from the start of that region to (block, layer, outer). */
uint64_t kv_offset(const kvmem_layout_config *config, uint64_t block, uint64_t layer, uint64_t outer);

/* Memory for one layout: guard band, region, guard band, region, ..., guard band, filled with a pattern. */
typedef struct kv_side {
    kvmem_layout_config config;
    unsigned char *memory;
    unsigned char *expected; /* the bytes that `memory` must contain */
    size_t size;
    size_t starts[KV_MAX_REGIONS]; /* of the regions in `memory` */
    kvmem_region *regions[KV_MAX_REGIONS];
    size_t num_regions;
    kvmem_layout *layout;
} kv_side;

/* Only the expected bytes, for a side in another process: the same seed gives the same bytes there. */
void kv_model_open(kv_side *side, const kvmem_layout_config *config, uint32_t seed);
/* Builds a layout over its regions; with an agent, registers it. */
void kv_side_build(kv_side *side, kvmem_agent *agent);
/* Adopts the memory as regions, and builds a layout over them; with an agent, registers it. */
void kv_side_open(kv_side *side, const kvmem_layout_config *config, kvmem_agent *agent, uint32_t seed);
/* Destroys the handles, then the memory. */
void kv_side_close(kv_side *side);
/* Two sides until the end of the scope: `KV_SIDES(source, destination, kv_config(from), kv_config(to));`. */
#define KV_SIDES(first, second, config_of_first, config_of_second)                                   \
    OPENED(kv_side, first, REF(config_of_first), NULL, 1);                                           \
    OPENED(kv_side, second, REF(config_of_second), NULL, 2)
unsigned char *kv_side_piece(const kv_side *side, uint64_t block, uint64_t layer, uint64_t outer);

/* The blocks and layers of a move. */
typedef struct kv_move {
    const kvmem_block_pair *pairs;
    size_t num_pairs;
    uint64_t source_layer;
    uint64_t destination_layer;
    uint64_t num_layers; /* never 0 here */
} kv_move;
/* The value of a move of the first layers: `const kv_move move = KV_MOVE(3, {6, 0}, {0, 5});`. */
#define KV_MOVE(layers, ...)                                                                         \
    {(const kvmem_block_pair[]){__VA_ARGS__}, NUM(((const kvmem_block_pair[]){__VA_ARGS__})), 0, 0, layers}

/* The outer slots of a move, if not all. */
typedef struct kv_outers {
    uint64_t source;
    uint64_t destination;
    uint64_t count;
} kv_outers;

/* Updates the expected bytes of the destination from those of the source. */
void kv_expect_moved(kv_side *destination, const kv_side *source, const kv_move *move);
void kv_expect_outers_moved(kv_side *destination, const kv_side *source, const kv_move *move,
                            kv_outers outers);
/* Checks every byte, including guard bands and padding. */
void kv_side_check(const kv_side *side);
/* Checks the guard bands. What a run has left in the regions may be anything, and NIXL may still write there after its end. */
void kv_side_check_guards(const kv_side *side);
/* The same after the move. */
void kv_side_check_moved(kv_side *destination, const kv_side *source, const kv_move *move);

/* A transfer and one of its runs. */
typedef struct kv_job {
    kvmem_transfer_options transfer;
    kvmem_submit_options run;
} kv_job;
/* One with these assignments: `JOB(it.transfer.queue = queue, it.run.pairs = &pair, it.run.num_pairs =
   1)`. */
#define JOB(...)                                                                                     \
    __extension__({                                                                                  \
        kv_job it = {.transfer = {.struct_size = sizeof(it.transfer)},                               \
                     .run = {.struct_size = sizeof(it.run)}};                                        \
        __VA_ARGS__;                                                                                 \
        it;                                                                                          \
    })
/* Flags of a transfer and of its run in one value, for lists of both: KVMEM_TRANSFER_*, and these. */
#define KV_VERIFY ((uint64_t)KVMEM_SUBMIT_VERIFY << 32)
#define KV_CHECKSUM ((uint64_t)KVMEM_SUBMIT_CHECKSUM << 32)
#define KV_SET_FLAGS(flags_of_both) \
    (void)(it.transfer.flags = (uint32_t)(flags_of_both), it.run.flags = (uint64_t)(flags_of_both) >> 32)
/* Creates a transfer and prepares its run, which kvmem_transfer_submit without options starts. */
kvmem_status kv_prepare(const kvmem_layout *source, const kvmem_layout *destination, const kv_job *job,
                        kvmem_transfer **transfer, kvmem_error **error);

/* The job of that move. */
kv_job kv_job_of(const kv_move *move);
/* The same as an argument, with these assignments: `KV_JOB(&move, it.transfer.method =
   KVMEM_METHOD_PREAD)`. */
#define KV_JOB(...)                                                                              \
    REF(WITH(kv_job_of(TEST_FIRST(__VA_ARGS__, )), TEST_REST(__VA_ARGS__, (void)0)))
/* Creates a transfer of that move. */
kvmem_transfer *kv_transfer(const kvmem_layout *source, const kvmem_layout *destination, const kv_move *move);
kv_job kv_outers_job(const kv_move *move, kv_outers outers);
/* Creates, submits, waits and destroys; returns its info. */
kvmem_transfer_info kv_run_with(const kvmem_layout *source, const kvmem_layout *destination,
                                const kv_job *options);
/* The same for that move. */
kvmem_transfer_info kv_run(const kvmem_layout *source, const kvmem_layout *destination, const kv_move *move);
/* The same by this method. */
kvmem_transfer_info kv_run_by(const kvmem_layout *source, const kvmem_layout *destination,
                              const kv_move *move, uint32_t method);

/* kvmem_transfer_get_mismatches returns these, fewer than 64, into arrays of any size. */
void kv_expect_mismatches(const kvmem_transfer *transfer, const uint64_t *expected, size_t count);

/* Repeats submit and cancel until a run ends as cancelled, then runs once more. Only the deadline of the
   process limits this. */
void kv_cancel_and_run(kvmem_transfer *transfer);

/* The explanation of its method, valid until this thread's next call; the method may be NULL. */
const char *kv_explained(const kvmem_transfer *transfer, kvmem_compared_method *used);

void kv_fill(unsigned char *bytes, size_t size, uint32_t seed);
