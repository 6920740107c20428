// SPDX-License-Identifier: Apache-2.0
// Blocks that their owner, another process, reuses: mapped here, and read by NIXL. share.epochs_tcp has the same over TCP.
#include "exchange.h"
#include "load.h"
#include "offer.h"
#include "opened.h"

#include <pthread.h>
#include <stdatomic.h>

#define NUM_BLOCKS 32
#define PIECE UINT64_C(1024)
#define PAIRS 6

enum { RAISE = 1, FILL, WRITE, STOP, DESTROY, DONE };

static kvmem_layout_config config_of(const char *order) {
    return OPTIONS(kvmem_layout_config, it.num_blocks = NUM_BLOCKS, it.num_layers = 2, it.outer_dim = 2, it.page_size = 4,
                   it.num_heads = 2, it.inner_dim = 128, it.dtype_width = 2, it.order = order);
}

/* Each word of a block names the block and the epoch. */
static uint64_t oracle(uint32_t block, uint64_t epoch) { return (uint64_t)block << 48 | epoch; }

static void fill(const kvmem_layout *layout, uint32_t block, uint64_t epoch) {
    for (uint64_t layer = 0; layer < 2; layer++)
        for (uint64_t outer = 0; outer < 2; outer++) {
            GET(kvmem_block, piece, kvmem_layout_get_block, layout, block, layer, outer);
            CHECK_EQ(piece.size, PIECE);
            volatile uint64_t *words = (volatile uint64_t *)(uintptr_t)piece.address;
            for (uint64_t i = 0; i < PIECE / 8; i++) words[i] = oracle(block, epoch);
        }
}

/* Number of words of a block that are not those of the epoch. */
static uint64_t wrong_words(const kvmem_layout *layout, uint32_t at, uint32_t block, uint64_t epoch) {
    uint64_t wrong = 0;
    for (uint64_t layer = 0; layer < 2; layer++)
        for (uint64_t outer = 0; outer < 2; outer++) {
            GET(kvmem_block, piece, kvmem_layout_get_block, layout, at, layer, outer);
            const uint64_t *words = (const uint64_t *)(uintptr_t)piece.address;
            for (uint64_t i = 0; i < PIECE / 8; i++) wrong += words[i] != oracle(block, epoch);
        }
    return wrong;
}

/* ---- The owner ---- */

typedef struct owner {
    kvmem_layout *layout;
    _Atomic uint64_t *published; /* the epoch of each block that is complete */
    atomic_bool stops;
} owner;

static uint64_t reuse(owner *owner, uint32_t block) {
    uint64_t epoch = 0;
    EXPECT_OK(kvmem_layout_raise_epochs(owner->layout, &block, 1, &epoch, ERR));
    fill(owner->layout, block, epoch);
    atomic_store_explicit(&owner->published[block], epoch, memory_order_release);
    return epoch;
}

static void *write_blocks(void *argument) {
    owner *owner = argument;
    uint64_t state = 1;
    while (!atomic_load(&owner->stops)) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        reuse(owner, (uint32_t)(state >> 59));
    }
    return NULL;
}

/* Role: shares a layout with epochs, and the words that publish them. */
ROLE(epoch_owner) {
    OWNED(kvmem_agent) agent = agent_open("owner");
    const kvmem_layout_config config = config_of("L/BONHC");
    kvmem_system_options system = {.struct_size = sizeof(system), .flags = KVMEM_SYSTEM_SHAREABLE};
    OWN(kvmem_layout, layout, kvmem_layout_build,
        REF(OPTIONS(kvmem_layout_options, it.config = &config, it.agent = agent, it.source = KVMEM_LAYOUT_ALLOCATE,
                    it.system = &system)));
    EXPECT_OK(kvmem_layout_create_epochs(layout, NULL, ERR));
    EXPECT_OK(kvmem_layout_serve(layout, NULL, ERR));
    OWNED(kvmem_region) words = region_create_system(NUM_BLOCKS * 8, KVMEM_SYSTEM_SHAREABLE);
    owner owner = {.layout = layout, .published = (void *)(uintptr_t)region_info(words).address};
    for (uint32_t block = 0; block < NUM_BLOCKS; block++) reuse(&owner, block);
    OWN(kvmem_share, share, kvmem_share_create_layout, layout, NULL);
    CLEANUP(parcel_close) parcel shared = parcel_of(share);
    parcel_send(socket, &shared);
    CLEANUP(parcel_close) parcel published = parcel_of_region(words, NULL);
    parcel_send(socket, &published);
    pthread_t writer;
    uint32_t tag = 0, block = 0;
    while (frame_next_into(socket, &tag, &block, sizeof(block))) {
        if (tag == RAISE) EXPECT_OK(kvmem_layout_raise_epochs(layout, &block, 1, NULL, ERR));
        if (tag == FILL) reuse(&owner, block);
        if (tag == WRITE) {
            atomic_store(&owner.stops, false);
            CHECK_EQ(pthread_create(&writer, NULL, write_blocks, &owner), 0);
        }
        if (tag == STOP) {
            atomic_store(&owner.stops, true);
            pthread_join(writer, NULL);
        }
        if (tag == DESTROY) {
            DESTROYED(kvmem_share, share);
            DESTROYED(kvmem_layout, layout);
            DESTROYED(kvmem_agent, agent);
        }
        frame_send(socket, DONE, NULL, 0);
    }
}

/* ---- The reader ---- */

typedef struct fixture {
    peer owner;
    parcel shared;
    parcel published_parcel;
    kvmem_agent *agent;
    kvmem_region *words;
    const _Atomic uint64_t *published;
    kvmem_layout *own;
    kvmem_layout *mapped;
    kvmem_layout *remote;
} fixture;

static void fixture_open(fixture *fixture) {
    *fixture = (struct fixture){.owner = peer_start("epoch_owner")};
    fixture->shared = parcel_receive(fixture->owner.socket);
    fixture->published_parcel = parcel_receive(fixture->owner.socket);
    fixture->agent = agent_open("reader");
    fixture->words = open_parcel(&fixture->published_parcel, 0);
    fixture->published = (const void *)(uintptr_t)region_info(fixture->words).address;
    const kvmem_layout_config config = config_of("BLONHC");
    const kvmem_system_options system = {.struct_size = sizeof(system)};
    fixture->own = MADE(kvmem_layout, kvmem_layout_build,
                        REF(OPTIONS(kvmem_layout_options, it.config = &config, it.agent = fixture->agent,
                                    it.source = KVMEM_LAYOUT_ALLOCATE, it.system = &system)));
    fixture->mapped = open_layout(&fixture->shared, KVMEM_OPEN_MAPPED_ONLY, NULL);
    fixture->remote = open_layout(&fixture->shared, KVMEM_OPEN_REMOTE, fixture->agent);
}

static void fixture_close(fixture *fixture) {
    kvmem_layout_destroy(fixture->mapped);
    kvmem_layout_destroy(fixture->remote);
    kvmem_layout_destroy(fixture->own);
    kvmem_region_destroy(fixture->words);
    parcel_close(&fixture->shared);
    parcel_close(&fixture->published_parcel);
    if (fixture->owner.pid > 0) peer_finish(&fixture->owner);
    kvmem_agent_destroy(fixture->agent);
}

static void ask(const fixture *fixture, uint32_t tag, uint32_t block) {
    frame_send(fixture->owner.socket, tag, &block, sizeof(block));
    frame_await(fixture->owner.socket, DONE);
}

static uint64_t published(const fixture *fixture, uint32_t block) {
    return atomic_load_explicit(&fixture->published[block], memory_order_acquire);
}

/* The paths to the owner's blocks. */
static const struct path {
    const char *name;
    bool is_mapped;
    uint32_t method;
} paths[] = {
    {"mapped", true, KVMEM_METHOD_MEMCPY},
    {"by NIXL", false, KVMEM_METHOD_NIXL},
    {"staged", false, KVMEM_METHOD_NIXL_STAGED},
    {"served", false, KVMEM_METHOD_NIXL_SERVED},
};

/* How blocks are named, and what a run does with them. */
static const struct form {
    const char *name;
    bool by_layer;
    bool verifies;
    bool has_tables;
} forms[] = {
    {"pairs", false, false, false},
    {"by layer", true, false, false},
    {"verified", false, true, false},
    {"tables", false, false, true},
    {"verified tables", false, true, true},
};

static kvmem_transfer *transfer_of(const fixture *fixture, const struct path *path, const struct form *form) {
    return MADE(kvmem_transfer, kvmem_transfer_create, path->is_mapped ? fixture->mapped : fixture->remote, fixture->own,
                REF(OPTIONS(kvmem_transfer_options, it.method = path->method, it.flags = form->by_layer ? KVMEM_TRANSFER_BY_LAYER : 0)));
}

static kvmem_transfer *transfer_by(const fixture *fixture, const struct path *path) { return transfer_of(fixture, path, &forms[0]); }

static kvmem_status read_form(const struct form *form, kvmem_transfer *transfer, const kvmem_block_pair *pairs, size_t count,
                              const uint64_t *epochs) {
    uint32_t from[PAIRS], to[PAIRS];
    const kvmem_block_table source = {from, count, 0, 1}, destination = {to, count, 0, 1};
    kvmem_submit_options run = {.struct_size = sizeof(run), .pairs = pairs, .num_pairs = count, .epochs = epochs,
                                .flags = form->verifies ? KVMEM_SUBMIT_VERIFY : 0};
    if (form->has_tables) {
        for (size_t k = 0; k < count; k++) {
            from[k] = pairs[k].source;
            to[k] = pairs[k].destination;
        }
        run.pairs = NULL;
        run.num_pairs = 0;
        run.source_table = &source;
        run.destination_table = &destination;
        run.num_tokens = count * 4;
    }
    kvmem_status status = kvmem_transfer_submit(transfer, &run, ERR);
    THEN(status, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    return status;
}

static kvmem_status read_blocks(kvmem_transfer *transfer, const kvmem_block_pair *pairs, size_t count, const uint64_t *epochs) {
    return read_form(&forms[0], transfer, pairs, count, epochs);
}

/* ---- The cases of vllm#52234 ---- */

TEST(an_unknown_owner_is_reported) {
    OPENED(fixture, fixture);
    OWNED(kvmem_agent) stranger = agent_open("stranger");
    GET(kvmem_blob *, descriptor, kvmem_layout_export, fixture.own);
    kvmem_layout *imported = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "reader",
                   kvmem_layout_import(stranger, kvmem_blob_data(descriptor), kvmem_blob_size(descriptor), &imported, ERR));
    kvmem_blob_destroy(descriptor);
    /* An owner that has ended: its memory is mapped here, and no process reuses it. A read by NIXL fails. */
    const kvmem_block_pair pair = {3, 0};
    const uint64_t epoch = published(&fixture, 3);
    peer_kill(&fixture.owner);
    fixture.owner.pid = 0;
    OWNED(kvmem_transfer) mapped = transfer_by(&fixture, &paths[0]);
    EXPECT_OK(read_blocks(mapped, &pair, 1, &epoch));
    CHECK_EQ(wrong_words(fixture.own, 0, 3, epoch), 0);
    OWNED(kvmem_transfer) remote = transfer_by(&fixture, &paths[1]);
    EXPECT_MESSAGE(KVMEM_STATUS_PEER_LOST, "owner", read_blocks(remote, &pair, 1, &epoch));
}

TEST(an_owner_that_has_destroyed_its_layout_is_reported) {
    OPENED(fixture, fixture);
    const kvmem_block_pair pair = {3, 0};
    const uint64_t epoch = published(&fixture, 3);
    ask(&fixture, DESTROY, 0);
    for (size_t i = 0; i < NUM(paths); i++) {
        OWNED(kvmem_transfer) transfer = transfer_by(&fixture, &paths[i]);
        EXPECT(paths[i].is_mapped ? KVMEM_STATUS_OK : KVMEM_STATUS_NIXL, read_blocks(transfer, &pair, 1, &epoch));
    }
}

TEST(a_block_out_of_range_is_refused) {
    OPENED(fixture, fixture);
    for (size_t i = 0; i < NUM(paths); i++) {
        OWNED(kvmem_transfer) transfer = transfer_by(&fixture, &paths[i]);
        EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "32",
                       read_blocks(transfer, REF(((kvmem_block_pair){NUM_BLOCKS, 0})), 1, REF((uint64_t)1)));
    }
}

/* The owner frees a block when its reader has it. The same reference may come again, also twice in one list. */
TEST(a_reference_that_is_used_twice_is_stale_once_its_block_is_freed) {
    OPENED(fixture, fixture);
    for (size_t i = 0; i < NUM(paths); i++) {
        const uint32_t block = (uint32_t)(5 + i);
        const kvmem_block_pair twice[] = {{block, 0}, {block, 9}};
        const uint64_t epoch = published(&fixture, block), epochs[] = {epoch, epoch};
        OWNED(kvmem_transfer) transfer = transfer_by(&fixture, &paths[i]);
        EXPECT_OK(read_blocks(transfer, twice, 2, epochs));
        CHECK_EQ(wrong_words(fixture.own, 0, block, epoch) + wrong_words(fixture.own, 9, block, epoch), 0);
        ask(&fixture, RAISE, block); /* freed, and not yet filled again */
        EXPECT_MESSAGE(KVMEM_STATUS_STALE, "2 of 2 source blocks have other epochs", read_blocks(transfer, twice, 2, epochs));
        kv_expect_mismatches(transfer, (uint64_t[]){0, 1}, 2);
    }
}

/* As UINT64_MAX, which a reader may expect if it knows no epoch, of a block that was never raised. */
TEST(an_epoch_whose_bits_all_differ_is_stale) {
    OPENED(fixture, fixture);
    for (size_t i = 0; i < NUM(paths); i++) {
        const uint64_t inverted = ~published(&fixture, 3);
        OWNED(kvmem_transfer) transfer = transfer_by(&fixture, &paths[i]);
        EXPECT_MESSAGE(KVMEM_STATUS_STALE, "1 of 1 source blocks have other epochs",
                       read_blocks(transfer, REF(((kvmem_block_pair){3, 0})), 1, &inverted));
        kv_expect_mismatches(transfer, (uint64_t[]){0}, 1);
    }
}

TEST(a_block_that_its_owner_has_reused_is_stale) {
    OPENED(fixture, fixture);
    const kvmem_block_pair pairs[] = {{20, 3}, {1, 4}, {21, 5}, {30, 6}, {2, 7}, {19, 8}};
    for (size_t i = 0; i < NUM(paths); i++) {
        OWNED(kvmem_transfer) transfer = transfer_by(&fixture, &paths[i]);
        uint64_t epochs[PAIRS];
        for (size_t k = 0; k < PAIRS; k++) epochs[k] = published(&fixture, pairs[k].source);
        EXPECT_OK(read_blocks(transfer, pairs, PAIRS, epochs));
        ask(&fixture, FILL, 30);
        ask(&fixture, FILL, 1);
        EXPECT_MESSAGE(KVMEM_STATUS_STALE, "the first, of pair 1, has epoch", read_blocks(transfer, pairs, PAIRS, epochs));
        kv_expect_mismatches(transfer, (uint64_t[]){1, 3}, 2);
        /* Nothing was written: the read had not begun. NIXL compares beside the first requests. */
        for (size_t k = 0; paths[i].is_mapped && k < PAIRS; k++)
            CHECK_EQ(wrong_words(fixture.own, pairs[k].destination, pairs[k].source, epochs[k]), 0);
        for (size_t k = 0; k < PAIRS; k++) epochs[k] = published(&fixture, pairs[k].source);
        EXPECT_OK(read_blocks(transfer, pairs, PAIRS, epochs));
        for (size_t k = 0; k < PAIRS; k++)
            CHECK_EQ(wrong_words(fixture.own, pairs[k].destination, pairs[k].source, epochs[k]), 0);
    }
}

TEST(each_form_of_a_read_of_reused_blocks_is_stale) {
    OPENED(fixture, fixture);
    const kvmem_block_pair pairs[] = {{20, 3}, {1, 4}, {21, 5}, {30, 6}, {2, 7}, {19, 8}};
    for (size_t i = 0; i < NUM(paths); i++)
        for (size_t n = 0; n < NUM(forms); n++) {
            OWNED(kvmem_transfer) transfer = transfer_of(&fixture, &paths[i], &forms[n]);
            uint64_t epochs[PAIRS];
            for (size_t k = 0; k < PAIRS; k++) epochs[k] = published(&fixture, pairs[k].source);
            EXPECT_OK(read_form(&forms[n], transfer, pairs, PAIRS, epochs));
            for (size_t k = 0; k < PAIRS; k++)
                CHECK_EQ(wrong_words(fixture.own, pairs[k].destination, pairs[k].source, epochs[k]), 0);
            ask(&fixture, RAISE, 30);
            ask(&fixture, FILL, 1);
            EXPECT_MESSAGE(KVMEM_STATUS_STALE, forms[n].has_tables ? "of entry 1" : "of pair 1",
                           read_form(&forms[n], transfer, pairs, PAIRS, epochs));
            kv_expect_mismatches(transfer, (uint64_t[]){1, 3}, 2);
            ask(&fixture, FILL, 30);
        }
}

/* The owner ends a lease by raising the epochs of its blocks. */
TEST(a_lease_that_is_over_is_stale) {
    OPENED(fixture, fixture);
    for (size_t i = 0; i < NUM(paths); i++) {
        const uint32_t block = (uint32_t)(10 + i);
        const uint64_t epoch = published(&fixture, block);
        OWNED(kvmem_transfer) transfer = transfer_by(&fixture, &paths[i]);
        ask(&fixture, RAISE, block);
        EXPECT_MESSAGE(KVMEM_STATUS_STALE, "has epoch 2, and 1 was expected",
                       read_blocks(transfer, REF(((kvmem_block_pair){block, 0})), 1, &epoch));
    }
}

TEST(only_the_owner_has_and_raises_epochs) {
    OPENED(fixture, fixture);
    const uint32_t block = 4;
    uint64_t epoch = 0;
    EXPECT_OK(kvmem_layout_get_epochs(fixture.mapped, &block, 1, &epoch, ERR));
    CHECK_EQ(epoch, published(&fixture, block));
    EXPECT_MESSAGE(KVMEM_STATUS_PERMISSION_DENIED, "only that process",
                   kvmem_layout_raise_epochs(fixture.mapped, &block, 1, &epoch, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "the layout is remote",
                   kvmem_layout_raise_epochs(fixture.remote, &block, 1, &epoch, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "the layout is remote",
                   kvmem_layout_get_epochs(fixture.remote, &block, 1, &epoch, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "belongs to another process",
                   kvmem_layout_create_epochs(fixture.mapped, NULL, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "its owner creates the epochs",
                   kvmem_layout_create_epochs(fixture.remote, NULL, ERR));
}

/* It could arrive before the last comparison. */
TEST(a_run_that_compares_here_sends_no_notification) {
    OPENED(fixture, fixture);
    EXPECT_OK(kvmem_layout_create_epochs(fixture.own, NULL, ERR));
    const kvmem_block_pair pair = {3, 0};
    const uint64_t epoch = 0;
    const kvmem_submit_options run = OPTIONS(kvmem_submit_options, it.pairs = &pair, it.num_pairs = 1, it.epochs = &epoch,
                                             it.notification = "moved", it.notification_size = 5);
    OWN(kvmem_transfer, push, kvmem_transfer_create, fixture.own, fixture.remote, NULL);
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "call kvmem_agent_notify after the run", kvmem_transfer_submit(push, &run, ERR));
    OWNED(kvmem_transfer) here = transfer_by(&fixture, &paths[0]);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "notification", kvmem_transfer_submit(here, &run, ERR));
}

/* ---- A writer that reuses blocks at random ---- */

typedef struct counts {
    uint64_t right; /* pairs of runs that ended OK */
    uint64_t stale; /* runs */
} counts;

static void read_at_random(const fixture *fixture, const struct path *path, const struct form *form, kvmem_transfer *transfer,
                           uint64_t *state, counts *counts) {
    kvmem_block_pair pairs[PAIRS];
    uint64_t epochs[PAIRS];
    for (uint32_t k = 0; k < PAIRS; k++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        pairs[k] = (kvmem_block_pair){(uint32_t)(*state >> 59), k};
        epochs[k] = published(fixture, pairs[k].source);
    }
    const size_t count = 1 + (*state >> 40) % PAIRS;
    const kvmem_status status = read_form(form, transfer, pairs, count, epochs);
    /* The source is read again after the epochs of a peer were compared. */
    if (status == KVMEM_STATUS_CORRUPT && form->verifies && !path->is_mapped) return;
    if (status == KVMEM_STATUS_STALE) {
        size_t number = 0;
        EXPECT_OK(kvmem_transfer_get_mismatches(transfer, NULL, 0, &number, ERR));
        CHECK(number > 0 && number <= count);
        counts->stale++;
        return;
    }
    CHECK_EQ(status, KVMEM_STATUS_OK);
    for (uint32_t k = 0; k < count; k++) CHECK_EQ(wrong_words(fixture->own, k, pairs[k].source, epochs[k]), 0);
    counts->right += count;
}

TEST(no_read_that_succeeds_has_bytes_of_another_epoch) {
    OPENED(fixture, fixture);
    uint64_t state = (uint64_t)getpid();
    for (size_t i = 0; i < NUM(paths); i++) {
        kvmem_transfer *transfers[NUM(forms)];
        counts counts[NUM(forms)] = {{0, 0}};
        for (size_t n = 0; n < NUM(forms); n++) transfers[n] = transfer_of(&fixture, &paths[i], &forms[n]);
        ask(&fixture, WRITE, 0);
        const load_clock clock = load_begin();
        uint64_t right = 0, stale = 0;
        for (size_t n = 0; right == 0 || stale == 0 || load_lasts(&clock, load_duration()); n = (n + 1) % NUM(forms)) {
            right -= counts[n].right;
            stale -= counts[n].stale;
            read_at_random(&fixture, &paths[i], &forms[n], transfers[n], &state, &counts[n]);
            right += counts[n].right;
            stale += counts[n].stale;
        }
        ask(&fixture, STOP, 0);
        for (size_t n = 0; n < NUM(forms); n++) {
            load_report("epochs, %s, %s: %llu blocks read, each of its epoch; %llu runs ended stale", paths[i].name, forms[n].name,
                        (unsigned long long)counts[n].right, (unsigned long long)counts[n].stale);
            kvmem_transfer_destroy(transfers[n]);
        }
    }
}
