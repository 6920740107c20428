// SPDX-License-Identifier: Apache-2.0
// Every pair of tiers of which one side or both are memory mapped from a peer, on one GPU: both ways, every
// byte of both, or refused with the reason.
#include "holder.h"
#include "kept_context.h"
#include "kinds.h"
#include "opened.h"

#ifdef KVMEM_TEST_SHARE_GPU
#include "sides.h"
#endif

/* How a peer's memory comes here. */
typedef struct guest {
    memory_kind kind;
    uint64_t flags; /* it is opened with */
    uint32_t tier;  /* it has here */
} guest;

#ifdef KVMEM_TEST_SHARE_GPU
static const guest guests[] = {
    {MEMORY_SYSTEM, 0, KVMEM_TIER_SYSTEM},
    {MEMORY_PINNED, KVMEM_OPEN_PIN, KVMEM_TIER_PINNED},
    {MEMORY_DISK, 0, KVMEM_TIER_DISK},
    {MEMORY_DEVICE, 0, KVMEM_TIER_DEVICE},   /* by IPC */
    {MEMORY_MAPPED, 0, KVMEM_TIER_DEVICE},   /* by file descriptors, an engine's */
    {MEMORY_ELASTIC, 0, KVMEM_TIER_ELASTIC}, /* the same, the library's */
    {MEMORY_FABRIC, 0, KVMEM_TIER_ELASTIC},  /* by fabric handles: comes last, not every driver gives them */
};
#define NUM_GUESTS (NUM(guests) - (memory_end_of_kinds() > MEMORY_FABRIC ? 0 : 1))
#else
static const guest guests[] = {
    {MEMORY_SYSTEM, 0, KVMEM_TIER_SYSTEM},
    {MEMORY_DISK, 0, KVMEM_TIER_DISK},
    {MEMORY_BUFFERED, 0, KVMEM_TIER_DISK},
};
#define NUM_GUESTS NUM(guests)
#endif

KEEPING_HOLDER_ROLE

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}};
static const kvmem_block_pair few[] = {{2, 4}, {5, 1}};
static const kv_move there_move = {scattered, NUM(scattered), 0, 0, 3};
static const kv_move back_move = {few, NUM(few), 2, 1, 1};

static bool is_file(uint32_t tier) { return tier == KVMEM_TIER_DISK; }

static bool is_gpu(uint32_t tier) { return tier == KVMEM_TIER_DEVICE || tier == KVMEM_TIER_ELASTIC; }

/* The path is one of those that there are between the two. */
static void check_path(uint32_t path, uint32_t one, uint32_t other) {
    const bool has_gpu = is_gpu(one) || is_gpu(other);
    bool is_right = path == KVMEM_PATH_MEMCPY;
    if (is_file(one) || is_file(other)) {
        is_right = has_gpu ? path == KVMEM_PATH_URING_STAGED || path == KVMEM_PATH_PREAD_STAGED
                           : path == KVMEM_PATH_URING || path == KVMEM_PATH_PREAD;
    } else if (has_gpu) {
        is_right = path == KVMEM_PATH_CUDA_COPY ||
                   (path >= KVMEM_PATH_CUDA_BATCH && path <= KVMEM_PATH_CUDA_STAGED);
    }
    if (!is_right) FAIL("between tiers %u and %u by %s", one, other, kvmem_path_name(path));
}

static void refuse(const kvmem_layout *source, const kvmem_layout *destination, kvmem_status status,
                   const char *part) {
    const kvmem_transfer_options options = kv_transfer_options(&there_move);
    REFUSE(status, part, kvmem_transfer_create, source, destination, &options);
}

/* ---- a layout of a peer's, mapped here ---- */

typedef struct visitor {
    const guest *from;
    peer owner;
    parcel parcel;
    kvmem_layout *layout;
    kv_side model; /* what its blocks must be */
} visitor;

static void check_way(const parcel *parcel, memory_kind kind) {
    OWNED(kvmem_share) share = parcel_share(parcel);
    CHECK_EQ(share_info(share).transport, memory_way_found(kind));
}

static void visitor_open(visitor *visitor, const guest *from, peer owner, size_t layout_kind, uint32_t seed) {
    /* Apart, so that bytes lie behind the blocks that must stay; elastic layouts are allocated whole. */
    const blocks_lie lie = from->tier == KVMEM_TIER_ELASTIC ? BLOCKS_TOGETHER : BLOCKS_APART;
    visitor->from = from;
    visitor->owner = owner;
    holder_build(&visitor->owner, from->kind, layout_kind, lie, NULL, seed);
    visitor->parcel = holder_share(&visitor->owner, NULL);
    check_way(&visitor->parcel, from->kind);
    visitor->layout = open_layout(&visitor->parcel, KVMEM_OPEN_MAPPED_ONLY | from->flags, NULL);
    kv_model_open(&visitor->model, REF(blocks_config(&kv_kinds[layout_kind])), seed);
    CHECK_EQ(layout_info(visitor->layout).locality, KVMEM_LOCALITY_MAPPED);
    CHECK_EQ(layout_info(visitor->layout).tier, from->tier);
}

/* The owner has nothing afterwards. */
static void visitor_close(visitor *visitor) {
    CALL(kvmem_layout_destroy(visitor->layout));
    kv_side_close(&visitor->model);
    parcel_close(&visitor->parcel);
    holder_end_shares(&visitor->owner);
    holder_destroy(&visitor->owner);
}

/* As its owner sees it, and as it is seen here. */
static void visitor_check(const visitor *visitor) {
    holder_check_model(&visitor->owner, &visitor->model);
    blocks_check(visitor->layout, &visitor->model);
}

/* ---- a layout of this process, with guard bands ---- */

typedef struct native {
    uint32_t tier;
    scratch directory;
    file_side file;
#ifdef KVMEM_TEST_SHARE_GPU
    side side;
#else
    kv_side side;
#endif
} native;

static const uint32_t native_tiers[] = {
    KVMEM_TIER_DISK,
    KVMEM_TIER_SYSTEM,
#ifdef KVMEM_TEST_SHARE_GPU
    KVMEM_TIER_PINNED,
    KVMEM_TIER_DEVICE,
    KVMEM_TIER_ELASTIC,
#endif
};

static void native_open_memory(native *native, const kvmem_layout_config *config, uint32_t seed) {
#ifdef KVMEM_TEST_SHARE_GPU
    const place place = native->tier == KVMEM_TIER_SYSTEM   ? PLACE_SYSTEM
                        : native->tier == KVMEM_TIER_PINNED ? PLACE_PINNED
                        : native->tier == KVMEM_TIER_DEVICE ? PLACE_DEVICE
                                                            : PLACE_ELASTIC;
    side_open(&native->side, place, 0, config, NULL, seed);
#else
    kv_side_open(&native->side, config, NULL, seed);
#endif
}

static void native_open(native *native, uint32_t tier, size_t layout_kind, uint32_t seed) {
    const kvmem_layout_config config = blocks_config(&kv_kinds[layout_kind]);
    native->tier = tier;
    if (is_file(tier)) {
        native->directory = scratch_create(temporary_directory());
        file_side_open(&native->file, &config, NULL, &native->directory, 0, seed);
    } else {
        native_open_memory(native, &config, seed);
    }
}

static kv_side *native_model(native *native) {
#ifdef KVMEM_TEST_SHARE_GPU
    return is_file(native->tier) ? &native->file.model : &native->side.model;
#else
    return is_file(native->tier) ? &native->file.model : &native->side;
#endif
}

static void native_check(native *native) {
    if (is_file(native->tier)) {
        file_side_check(&native->file);
        return;
    }
#ifdef KVMEM_TEST_SHARE_GPU
    side_check(&native->side);
#else
    kv_side_check(&native->side);
#endif
}

static void native_close(native *native) {
    if (is_file(native->tier)) {
        CALL(file_side_close(&native->file));
        scratch_remove(&native->directory);
        return;
    }
#ifdef KVMEM_TEST_SHARE_GPU
    side_close(&native->side);
#else
    kv_side_close(&native->side);
#endif
}

/* ---- pairs ---- */

static void move_to_native(const visitor *visitor, native *native, const kv_move *move) {
    kv_side *own = native_model(native);
    check_path(kv_run(visitor->layout, own->layout, move).path, visitor->from->tier, native->tier);
    kv_expect_moved(own, &visitor->model, move);
    native_check(native);
    visitor_check(visitor);
}

static void move_to_visitor(visitor *visitor, native *native, const kv_move *move) {
    const kv_side *own = native_model(native);
    check_path(kv_run(own->layout, visitor->layout, move).path, native->tier, visitor->from->tier);
    kv_expect_moved(&visitor->model, own, move);
    native_check(native);
    visitor_check(visitor);
}

static void meet_native(visitor *visitor, uint32_t tier, size_t layout_kind) {
    OPENED(native, native, tier, layout_kind, 100 + tier);
    if (is_file(tier) && is_file(visitor->from->tier)) {
        const kvmem_layout *own = native_model(&native)->layout;
        refuse(visitor->layout, own, KVMEM_STATUS_UNSUPPORTED, "both layouts are on disk");
        refuse(own, visitor->layout, KVMEM_STATUS_UNSUPPORTED, "both layouts are on disk");
    } else {
        move_to_native(visitor, &native, &there_move);
        move_to_visitor(visitor, &native, &back_move);
        move_to_visitor(visitor, &native, &there_move);
    }
    native_check(&native);
}

TEST(memory_of_a_peer_and_every_tier_of_this_process) {
    keep_context();
    CLEANUP(peer_finish) peer owner = holder_start();
    for (size_t i = 0; i < NUM_GUESTS; i++) {
        OPENED(visitor, visitor, &guests[i], owner, i % KV_NUM_KINDS, 1);
        for (size_t k = 0; k < NUM(native_tiers); k++)
            meet_native(&visitor, native_tiers[k], (i + i / KV_NUM_KINDS + k) % KV_NUM_KINDS);
    }
}

static void move_between(const visitor *source, visitor *destination, const kv_move *move) {
    check_path(kv_run(source->layout, destination->layout, move).path, source->from->tier,
               destination->from->tier);
    kv_expect_moved(&destination->model, &source->model, move);
    visitor_check(source);
    visitor_check(destination);
}

static void meet(visitor *one, visitor *other) {
    if (is_file(one->from->tier) && is_file(other->from->tier)) {
        refuse(one->layout, other->layout, KVMEM_STATUS_UNSUPPORTED, "both layouts are on disk");
        return;
    }
    move_between(one, other, &there_move);
    move_between(other, one, &back_move);
}

/* Of two processes, neither of them this one. */
TEST(memory_of_two_peers) {
    keep_context();
    CLEANUP(peer_finish) peer first = holder_start();
    CLEANUP(peer_finish) peer second = holder_start();
    for (size_t i = 0; i < NUM_GUESTS; i++) {
        OPENED(visitor, one, &guests[i], first, i % KV_NUM_KINDS, 1);
        for (size_t k = i; k < NUM_GUESTS; k++) {
            OPENED(visitor, other, &guests[k], second, (i + k) % KV_NUM_KINDS, 2);
            meet(&one, &other);
        }
    }
}

/* ---- the same memory, mapped twice ---- */

/* Opened to be read, and again to be written: what is one memory may not look like two. */
TEST(what_is_mapped_twice_is_seen_to_be_one) {
    static const kvmem_block_pair onto_itself[] = {{2, 2}};
    static const kvmem_block_pair chain[] = {{0, 1}, {1, 2}};
    static const kvmem_block_pair apart[] = {{0, 4}, {1, 5}};
    const kv_move same = {onto_itself, NUM(onto_itself), 0, 0, 3};
    const kv_move following = {chain, NUM(chain), 0, 0, 3};
    const kv_move fine = {apart, NUM(apart), 0, 0, 3};
    const kv_move *const moves[] = {&same, &following};
    keep_context();
    CLEANUP(peer_finish) peer owner = holder_start();
    for (size_t i = 0; i < NUM_GUESTS * KV_NUM_KINDS; i++) {
        const guest *from = &guests[i / KV_NUM_KINDS];
        if (is_file(from->tier)) continue;
        OPENED(visitor, visitor, from, owner, i % KV_NUM_KINDS, 1);
        const uint64_t to_read = KVMEM_OPEN_MAPPED_ONLY | KVMEM_OPEN_READ_ONLY;
        OWNED(kvmem_layout) reader = open_layout(&visitor.parcel, to_read, NULL);
        for (size_t k = 0; k < NUM(moves); k++) {
            const kvmem_transfer_options options = kv_transfer_options(moves[k]);
            REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "overlap", kvmem_transfer_create, reader, visitor.layout,
                   &options);
        }
        kv_run(reader, visitor.layout, &fine);
        kv_expect_moved(&visitor.model, &visitor.model, &fine);
        visitor_check(&visitor);
    }
}
