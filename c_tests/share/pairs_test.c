// SPDX-License-Identifier: Apache-2.0
// All pairs of tiers of which one side or both are memory mapped from a peer, on one GPU: transfers in both
// directions with every byte checked, or the error with its reason.
#include "holder.h"
#include "kept_context.h"
#include "kinds.h"
#include "opened.h"

#ifdef KVMEM_TEST_SHARE_GPU
#include "sides.h"
#endif

/* How a peer's memory is mapped here. */
typedef struct mapping {
    memory_kind kind;
    uint64_t flags; /* flags it is opened with */
    uint32_t tier;  /* tier it has here */
} mapping;

#ifdef KVMEM_TEST_SHARE_GPU
static const mapping mappings[] = {
    {MEMORY_SYSTEM, 0, KVMEM_TIER_SYSTEM},
    {MEMORY_PINNED, KVMEM_OPEN_PIN, KVMEM_TIER_PINNED},
    {MEMORY_DISK, 0, KVMEM_TIER_DISK},
    {MEMORY_DEVICE, 0, KVMEM_TIER_DEVICE},   /* by IPC */
    {MEMORY_MAPPED, 0, KVMEM_TIER_DEVICE},   /* by file descriptors, mapped by an engine */
    {MEMORY_ELASTIC, 0, KVMEM_TIER_ELASTIC}, /* by file descriptors, created by kvmem */
    {MEMORY_FABRIC, 0, KVMEM_TIER_ELASTIC},  /* by fabric handles; last, since not all drivers have them */
};
#define NUM_MAPPINGS (NUM(mappings) - (memory_end_of_kinds() > MEMORY_FABRIC ? 0 : 1))
#else
static const mapping mappings[] = {
    {MEMORY_SYSTEM, 0, KVMEM_TIER_SYSTEM},
    {MEMORY_DISK, 0, KVMEM_TIER_DISK},
    {MEMORY_BUFFERED, 0, KVMEM_TIER_DISK},
};
#define NUM_MAPPINGS NUM(mappings)
#endif

KEEPING_HOLDER_ROLE

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}};
static const kvmem_block_pair few[] = {{2, 4}, {5, 1}};
static const kv_move there_move = {scattered, NUM(scattered), 0, 0, 3};
static const kv_move back_move = {few, NUM(few), 2, 1, 1};

static bool is_file(uint32_t tier) { return tier == KVMEM_TIER_DISK; }

static bool is_gpu(uint32_t tier) { return tier == KVMEM_TIER_DEVICE || tier == KVMEM_TIER_ELASTIC; }

/* Checks that the method fits the two tiers. */
static void check_method(uint32_t method, uint32_t one, uint32_t other) {
    const bool has_gpu = is_gpu(one) || is_gpu(other);
    bool is_right = method == KVMEM_METHOD_MEMCPY;
    if (is_file(one) || is_file(other)) {
        is_right = method == KVMEM_METHOD_URING || method == KVMEM_METHOD_PREAD;
    } else if (has_gpu) {
        is_right = method >= KVMEM_METHOD_CUDA_COPY && method <= KVMEM_METHOD_CUDA_STAGED;
    }
    if (!is_right) FAIL("between tiers %u and %u by %s", one, other, kvmem_method_name(method));
}

static void refuse(const kvmem_layout *source, const kvmem_layout *destination, kvmem_status status,
                   const char *part) {
    const kv_job options = kv_job_of(&there_move);
    REFUSE(status, part, kv_prepare, source, destination, &options);
}

/* ---- a peer's layout, mapped here ---- */

typedef struct mapped {
    const mapping *from;
    peer owner;
    parcel parcel;
    kvmem_layout *layout;
    kv_side model; /* what its blocks must be */
} mapped;

static void check_transport(const parcel *parcel, memory_kind kind) {
    OWNED(kvmem_share) share = parcel_share(parcel);
    CHECK_EQ(share_info(share).transport, memory_transport_found(kind));
}

static void mapped_open(mapped *mapped, const mapping *from, peer owner, size_t layout_kind, uint32_t seed) {
    /* In separate regions, so that bytes after the blocks must stay unchanged. Elastic layouts are allocated
       as a whole. */
    const blocks_placement placement = from->tier == KVMEM_TIER_ELASTIC ? BLOCKS_TOGETHER : BLOCKS_APART;
    mapped->from = from;
    mapped->owner = owner;
    holder_build(&mapped->owner, from->kind, layout_kind, placement, NULL, seed);
    mapped->parcel = holder_share(&mapped->owner, NULL);
    check_transport(&mapped->parcel, from->kind);
    mapped->layout = open_layout(&mapped->parcel, KVMEM_OPEN_MAPPED_ONLY | from->flags, NULL);
    kv_model_open(&mapped->model, REF(blocks_config(&kv_kinds[layout_kind])), seed);
    CHECK_EQ(layout_info(mapped->layout).locality, KVMEM_LOCALITY_MAPPED);
    CHECK_EQ(layout_info(mapped->layout).tier, from->tier);
}

/* The owner has no memory afterwards. */
static void mapped_close(mapped *mapped) {
    CALL(kvmem_layout_destroy(mapped->layout));
    kv_side_close(&mapped->model);
    parcel_close(&mapped->parcel);
    holder_end_shares(&mapped->owner);
    holder_destroy(&mapped->owner);
}

/* Checks the bytes as the owner sees them, and as this process sees them. */
static void mapped_check(const mapped *mapped) {
    holder_check_model(&mapped->owner, &mapped->model);
    blocks_check(mapped->layout, &mapped->model);
}

/* ---- a layout of this process, with guard bands ---- */

typedef struct own_side {
    uint32_t tier;
    scratch directory;
    file_side file;
#ifdef KVMEM_TEST_SHARE_GPU
    side side;
#else
    kv_side side;
#endif
} own_side;

static const uint32_t own_tiers[] = {
    KVMEM_TIER_DISK,
    KVMEM_TIER_SYSTEM,
#ifdef KVMEM_TEST_SHARE_GPU
    KVMEM_TIER_PINNED,
    KVMEM_TIER_DEVICE,
    KVMEM_TIER_ELASTIC,
#endif
};

static void own_side_open_memory(own_side *own_side, const kvmem_layout_config *config, uint32_t seed) {
#ifdef KVMEM_TEST_SHARE_GPU
    const place place = own_side->tier == KVMEM_TIER_SYSTEM   ? PLACE_SYSTEM
                        : own_side->tier == KVMEM_TIER_PINNED ? PLACE_PINNED
                        : own_side->tier == KVMEM_TIER_DEVICE ? PLACE_DEVICE
                                                            : PLACE_ELASTIC;
    side_open(&own_side->side, place, 0, config, NULL, seed);
#else
    kv_side_open(&own_side->side, config, NULL, seed);
#endif
}

static void own_side_open(own_side *own_side, uint32_t tier, size_t layout_kind, uint32_t seed) {
    const kvmem_layout_config config = blocks_config(&kv_kinds[layout_kind]);
    own_side->tier = tier;
    if (is_file(tier)) {
        own_side->directory = scratch_create(temporary_directory());
        file_side_open(&own_side->file, &config, NULL, &own_side->directory, 0, seed);
    } else {
        own_side_open_memory(own_side, &config, seed);
    }
}

static kv_side *own_side_model(own_side *own_side) {
#ifdef KVMEM_TEST_SHARE_GPU
    return is_file(own_side->tier) ? &own_side->file.model : &own_side->side.model;
#else
    return is_file(own_side->tier) ? &own_side->file.model : &own_side->side;
#endif
}

static void own_side_check(own_side *own_side) {
    if (is_file(own_side->tier)) {
        file_side_check(&own_side->file);
        return;
    }
#ifdef KVMEM_TEST_SHARE_GPU
    side_check(&own_side->side);
#else
    kv_side_check(&own_side->side);
#endif
}

static void own_side_close(own_side *own_side) {
    if (is_file(own_side->tier)) {
        CALL(file_side_close(&own_side->file));
        scratch_remove(&own_side->directory);
        return;
    }
#ifdef KVMEM_TEST_SHARE_GPU
    side_close(&own_side->side);
#else
    kv_side_close(&own_side->side);
#endif
}

/* ---- pairs ---- */

static void move_to_own(const mapped *mapped, own_side *own_side, const kv_move *move) {
    kv_side *own = own_side_model(own_side);
    check_method(kv_run(mapped->layout, own->layout, move).method, mapped->from->tier, own_side->tier);
    kv_expect_moved(own, &mapped->model, move);
    own_side_check(own_side);
    mapped_check(mapped);
}

static void move_to_mapped(mapped *mapped, own_side *own_side, const kv_move *move) {
    const kv_side *own = own_side_model(own_side);
    check_method(kv_run(own->layout, mapped->layout, move).method, own_side->tier, mapped->from->tier);
    kv_expect_moved(&mapped->model, own, move);
    own_side_check(own_side);
    mapped_check(mapped);
}

static void check_with_own(mapped *mapped, uint32_t tier, size_t layout_kind) {
    OPENED(own_side, own_side, tier, layout_kind, 100 + tier);
    if (is_file(tier) && is_file(mapped->from->tier)) {
        const kvmem_layout *own = own_side_model(&own_side)->layout;
        refuse(mapped->layout, own, KVMEM_STATUS_UNSUPPORTED, "both layouts are on disk");
        refuse(own, mapped->layout, KVMEM_STATUS_UNSUPPORTED, "both layouts are on disk");
    } else {
        move_to_own(mapped, &own_side, &there_move);
        move_to_mapped(mapped, &own_side, &back_move);
        move_to_mapped(mapped, &own_side, &there_move);
    }
    own_side_check(&own_side);
}

TEST(memory_of_a_peer_moves_to_and_from_every_tier) {
    keep_context();
    CLEANUP(peer_finish) peer owner = holder_start();
    for (size_t i = 0; i < NUM_MAPPINGS; i++) {
        OPENED(mapped, mapped, &mappings[i], owner, i % KV_NUM_KINDS, 1);
        for (size_t k = 0; k < NUM(own_tiers); k++)
            check_with_own(&mapped, own_tiers[k], (i + i / KV_NUM_KINDS + k) % KV_NUM_KINDS);
    }
}

static void move_between(const mapped *source, mapped *destination, const kv_move *move) {
    check_method(kv_run(source->layout, destination->layout, move).method, source->from->tier,
               destination->from->tier);
    kv_expect_moved(&destination->model, &source->model, move);
    mapped_check(source);
    mapped_check(destination);
}

static void check_pair(mapped *one, mapped *other) {
    if (is_file(one->from->tier) && is_file(other->from->tier)) {
        refuse(one->layout, other->layout, KVMEM_STATUS_UNSUPPORTED, "both layouts are on disk");
        return;
    }
    move_between(one, other, &there_move);
    move_between(other, one, &back_move);
}

/* Of two other processes. */
TEST(memory_moves_between_two_peers) {
    keep_context();
    CLEANUP(peer_finish) peer first = holder_start();
    CLEANUP(peer_finish) peer second = holder_start();
    for (size_t i = 0; i < NUM_MAPPINGS; i++) {
        OPENED(mapped, one, &mappings[i], first, i % KV_NUM_KINDS, 1);
        for (size_t k = i; k < NUM_MAPPINGS; k++) {
            OPENED(mapped, other, &mappings[k], second, (i + k) % KV_NUM_KINDS, 2);
            check_pair(&one, &other);
        }
    }
}

/* ---- the same memory, mapped twice ---- */

/* Opened read-only, and again for writing. Both must be recognised as the same memory. */
TEST(memory_that_is_mapped_twice_is_recognised) {
    static const kvmem_block_pair onto_itself[] = {{2, 2}};
    static const kvmem_block_pair chain[] = {{0, 1}, {1, 2}};
    static const kvmem_block_pair apart[] = {{0, 4}, {1, 5}};
    const kv_move same = {onto_itself, NUM(onto_itself), 0, 0, 3};
    const kv_move following = {chain, NUM(chain), 0, 0, 3};
    const kv_move fine = {apart, NUM(apart), 0, 0, 3};
    const kv_move *const moves[] = {&same, &following};
    keep_context();
    CLEANUP(peer_finish) peer owner = holder_start();
    for (size_t i = 0; i < NUM_MAPPINGS * KV_NUM_KINDS; i++) {
        const mapping *from = &mappings[i / KV_NUM_KINDS];
        if (is_file(from->tier)) continue;
        OPENED(mapped, mapped, from, owner, i % KV_NUM_KINDS, 1);
        const uint64_t to_read = KVMEM_OPEN_MAPPED_ONLY | KVMEM_OPEN_READ_ONLY;
        OWNED(kvmem_layout) reader = open_layout(&mapped.parcel, to_read, NULL);
        for (size_t k = 0; k < NUM(moves); k++) {
            const kv_job options = kv_job_of(moves[k]);
            REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "overlap", kv_prepare, reader, mapped.layout,
                   &options);
        }
        kv_run(reader, mapped.layout, &fine);
        kv_expect_moved(&mapped.model, &mapped.model, &fine);
        mapped_check(&mapped);
    }
}
