// SPDX-License-Identifier: Apache-2.0
// Owners of layouts that are mapped, with epochs. The victim reads blocks of both owners, and expects the epochs that they have published.
#include "hostile.h"

#define BLOCKS 32

HOSTILE_CASES

static const kv_move all = KV_MOVE(3, {0, 31}, {1, 30}, {2, 29}, {3, 28}, {4, 27}, {5, 26}, {30, 1}, {31, 0});
static uint64_t published[8]; /* the epochs of these blocks */

static kvmem_layout_config config_of(const kv_kind *kind) { return WITH(kv_config(kind), it.num_blocks = BLOCKS); }

/* ---- an owner ---- */

static kvmem_broker *broker;
static kvmem_layout *layout;
static kvmem_region *table;
static uint64_t *words; /* the epochs */
static unsigned char *bytes;
static uint64_t size;

/* Publishes its layout, with bytes of the seed, by a broker of its name. */
static void open_owner(const char *name) {
    char names[2][80];
    kvmem_token token;
    OWNED(kvmem_share) share = NULL;
    const kvmem_layout_config config = config_of(&kv_kinds[0]);
    OPENED(kv_side, model, &config, NULL, 7);
    size = kv_region_size(&config);
    OWN(kvmem_region, region, kvmem_region_create_system,
        REF(OPTIONS(kvmem_system_options, it.flags = KVMEM_SYSTEM_SHAREABLE, it.size = size)));
    bytes = (unsigned char *)(uintptr_t)region_info(region).address;
    memcpy(bytes, model.memory + model.starts[0], size);
    EXPECT_OK(kvmem_layout_build(REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_REGIONS,
                                             it.regions = &region, it.count = 1)),
                                 &layout, ERR));
    table = region_create_system(BLOCKS * sizeof(*words), KVMEM_SYSTEM_SHAREABLE);
    words = (uint64_t *)(uintptr_t)region_info(table).address;
    EXPECT_OK(kvmem_layout_create_epochs(layout, table, ERR));
    EXPECT_OK(kvmem_share_create_layout(layout, NULL, &share, ERR));
    snprintf(names[0], sizeof(names[0]), "%s socket", name);
    snprintf(names[1], sizeof(names[1]), "%s token", name);
    EXPECT_OK(kvmem_broker_create(REF(OPTIONS(kvmem_broker_options, it.path = hostile_path(names[0]))), &broker, ERR));
    EXPECT_OK(kvmem_broker_publish(broker, "kv", share, NULL, &token, ERR));
    hostile_put(names[1], &token, sizeof(token));
}

static void open_healthy(void) { open_owner("healthy"); }

static void close_healthy(void) {
    kvmem_broker_destroy(broker);
    kvmem_layout_destroy(layout);
    kvmem_region_destroy(table);
}

/* ---- the victim ---- */

typedef struct source {
    kvmem_layout *mapped;
    kv_side side;
    kvmem_transfer *transfer;
} source;

static source healthy, hostile;
static kv_side model; /* of each owner, before it changes its blocks */

static void source_open(source *source, const char *name) {
    char names[2][80];
    kvmem_token token;
    snprintf(names[0], sizeof(names[0]), "%s socket", name);
    snprintf(names[1], sizeof(names[1]), "%s token", name);
    CLEANUP(message_free) message taken = hostile_take(names[1]);
    memcpy(&token, taken.data, sizeof(token));
    OWN(kvmem_share, share, kvmem_share_fetch,
        REF(OPTIONS(kvmem_fetch_options, it.path = hostile_path(names[0]), it.name = "kv", it.token = &token)), PATIENCE);
    kv_side_open(&source->side, REF(config_of(&kv_kinds[1])), NULL, 3);
    source->mapped = MADE(kvmem_layout, kvmem_share_open_layout, share, NULL);
    source->transfer = MADE(kvmem_transfer, kvmem_transfer_create, source->mapped, source->side.layout, NULL);
}

static void source_close(source *source) {
    DESTROYED(kvmem_transfer, source->transfer);
    DESTROYED(kvmem_layout, source->mapped);
    kv_side_close(&source->side);
}

static void open_victim(void) {
    kv_model_open(&model, REF(config_of(&kv_kinds[0])), 7);
    source_open(&healthy, "healthy");
}

static kvmem_status read_from(const source *source) {
    const kvmem_submit_options run = {.struct_size = sizeof(run), .pairs = all.pairs, .num_pairs = all.num_pairs, .epochs = published};
    kvmem_status status = kvmem_transfer_submit(source->transfer, &run, ERR);
    THEN(status, kvmem_transfer_wait(source->transfer, PATIENCE, ERR));
    return status;
}

static void read_healthy(void) {
    CHECK_EQ(read_from(&healthy), KVMEM_STATUS_OK);
    kv_side_check_moved(&healthy.side, &model, &all);
}

static void meet(void) { source_open(&hostile, hostile_name("hostile")); }

/* An owner that changes its epochs makes runs stale, and nothing else. */
static void deal(void) {
    const kvmem_status status = read_from(&hostile);
    if (status != KVMEM_STATUS_OK) CHECK_EQ(status, KVMEM_STATUS_STALE);
    uint64_t pairs[NUM(published)];
    size_t count = 0;
    if (status == KVMEM_STATUS_STALE && kvmem_transfer_get_mismatches(hostile.transfer, pairs, NUM(pairs), &count, ERR) == KVMEM_STATUS_OK)
        CHECK(count <= NUM(pairs));
}

static void part(void) { source_close(&hostile); }

static void close_victim(void) {
    source_close(&healthy);
    kv_side_close(&model);
}

/* ---- the hostile owner ---- */

static void open_hostile(void) { open_owner(hostile_name("hostile")); }

/* Each as long as some runs take. */
static void raise_without_end(unsigned turn) {
    (void)turn;
    for (int i = 0; i < 20000; i++) __atomic_fetch_add(&words[hostile_random() % BLOCKS], 1, __ATOMIC_SEQ_CST);
}

static void lower_epochs(unsigned turn) {
    for (int i = 0; i < 20000; i++) __atomic_store_n(&words[hostile_random() % BLOCKS], turn % 2 != 0 ? 0 : hostile_random(), __ATOMIC_SEQ_CST);
    memset(words, 0, BLOCKS * sizeof(*words));
}

static void change_blocks(unsigned turn) {
    (void)turn;
    for (int i = 0; i < 20000; i++) bytes[hostile_random() % size] ^= 1;
}

static void publish_again(unsigned turn) {
    (void)turn;
    for (int i = 0; i < 8; i++) {
        OWNED(kvmem_share) share = NULL;
        kvmem_token token;
        EXPECT_OK(kvmem_share_create_layout(layout, NULL, &share, ERR));
        EXPECT_OK(kvmem_broker_publish(broker, "other", share, NULL, &token, ERR));
        EXPECT_OK(kvmem_broker_unpublish(broker, "other", ERR));
    }
}

static void destroy_all(unsigned turn) {
    if (turn > 0) return;
    AWAIT(hostile_deals() > 0);
    close_healthy();
}

static const hostile_row rows[] = {
    {.does = "raises epochs without end", .act = raise_without_end, .turns = 100},
    {.does = "sets epochs to any value", .act = lower_epochs, .turns = 100},
    {.does = "changes blocks without new epochs", .act = change_blocks, .turns = 100},
    {.does = "shares and publishes without end", .act = publish_again},
    {.does = "raises epochs, and stops", .act = raise_without_end, .stops = true},
    {.does = "destroys what it has shared", .act = destroy_all},
};

const hostile_form hostile_form_here = {
    .victim = {.open = open_victim, .round = read_healthy, .meet = meet, .deal = deal, .part = part, .close = close_victim},
    .healthy = {.open = open_healthy, .close = close_healthy},
    .open_hostile = open_hostile,
    HOSTILE_ROWS_OF_LITTLE,
    .bounds = {.longest_ms = 500, .share = 0.005, .processors = 0.25},
};
