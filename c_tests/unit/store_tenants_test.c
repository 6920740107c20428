// SPDX-License-Identifier: Apache-2.0
// Tenants of one store: threads that put at the same time, another process that reads, and what a description has.
#include "gate.h"
#include "harness.h"

#define BLOCKS 7
#define QUOTA 2
static const uint32_t ids[BLOCKS] = {0, 1, 2, 3, 4, 5, 6};

static kvmem_store *open_store(const char *path, uint64_t flags) {
    store_setup setup;
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    setup.options.flags = flags;
    return MADE(kvmem_store, kvmem_store_open, &setup.options, PATIENCE);
}

/* A namespace of QUOTA slots. It is encrypted unless the first byte of its key is 0. */
static kvmem_store *open_tenant(kvmem_store *store, const char *name, unsigned char key) {
    unsigned char bytes[32] = {key};
    GET(kvmem_store_info, info, kvmem_store_get_info, store);
    const kvmem_store_namespace_options options =
        OPTIONS(kvmem_store_namespace_options, it.name = name, it.quota = QUOTA * info.slot_size, it.key = key ? bytes : NULL,
                it.key_size = key ? sizeof bytes : 0);
    return MADE(kvmem_store, kvmem_store_open_namespace, store, &options, PATIENCE);
}

typedef struct tenant {
    kvmem_store *store;
    kv_side source;
} tenant;

/* Puts the same keys as all others, with bytes of its own, and evicts its own blocks only. */
static void *put_and_evict(void *argument) {
    tenant *own = argument;
    for (uint64_t round = 0; round < 20; round++) {
        size_t moved = 0;
        EXPECT_OK(store_put(own->store, own->source.layout, round * QUOTA, ids, QUOTA, &moved));
        CHECK_EQ(moved, QUOTA);
        CHECK(store_has(own->store, round * QUOTA) && store_has(own->store, round * QUOTA + 1));
    }
    return NULL;
}

TEST(tenants_that_put_at_the_same_time_have_their_own_blocks_and_quotas) {
    SCRATCH_FILE(path, "store");
    kvmem_store *store = open_store(path, 0);
    tenant tenants[3] = {{0}};
    for (size_t i = 0; i < NUM(tenants); i++) {
        tenants[i].store = open_tenant(store, TEXT("tenant-%zu", i), (unsigned char)i);
        kv_side_open(&tenants[i].source, REF(kv_aligned_config(&kv_kinds[0])), NULL, (unsigned char)(i + 1));
    }
    DESTROYED(kvmem_store, store); /* its namespaces keep it open */
    threads_run(NUM(tenants), put_and_evict, tenants, sizeof tenants[0]);
    const kv_move two = KV_MOVE(3, {0, 0}, {1, 1});
    for (size_t i = 0; i < NUM(tenants); i++) {
        OPENED(kv_side, destination, REF(kv_aligned_config(&kv_kinds[1])), NULL, 9);
        size_t found = 0;
        EXPECT_OK(store_get(tenants[i].store, destination.layout, 19 * QUOTA, ids, QUOTA, &found));
        CHECK_EQ(found, QUOTA);
        kv_side_check_moved(&destination, &tenants[i].source, &two);
        GET(kvmem_store_info, info, kvmem_store_get_info, tenants[i].store);
        CHECK_EQ(info.num_slots, QUOTA);
        CHECK_EQ(info.num_stored, QUOTA);
        CHECK_EQ(info.num_evicted, 19 * QUOTA);
        kvmem_store_destroy(tenants[i].store);
        kv_side_close(&tenants[i].source);
    }
}

/* One slot of the quota is free, and the put needs two. */
TEST(a_put_above_what_is_left_of_a_quota_says_what_is_used) {
    SCRATCH_FILE(path, "store");
    OPENED(kv_side, source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    OWNED(kvmem_store) store = store_open_without_eviction(path);
    OWNED(kvmem_store) tenant = open_tenant(store, "tenant", 0);
    size_t moved = 0;
    EXPECT_OK(store_put(tenant, source.layout, 0, ids, QUOTA - 1, &moved));
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_MEMORY, TEXT("there are not enough free slots to put 2 blocks (%d of the %d slots of the quota are used", QUOTA - 1, QUOTA),
                   store_put(tenant, source.layout, 10, ids, 2, &moved));
    EXPECT_OK(store_put(tenant, source.layout, 10, ids, 1, &moved));
}

TEST(a_description_has_names_and_quotas_and_no_keys) {
    SCRATCH_FILE(path, "store");
    OPENED(kv_side, source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    OWNED(kvmem_store) store = open_store(path, 0);
    OWNED(kvmem_store) plain = open_tenant(store, "plain", 0);
    OWNED(kvmem_store) sealed = open_tenant(store, "sealed", 7);
    size_t moved = 0;
    EXPECT_OK(store_put(sealed, source.layout, 0, ids, 1, &moved));
    OWN(kvmem_blob, text, kvmem_store_describe, path);
    CHECK_HAS(kvmem_blob_data(text), "namespace  plain: 0 of 2 slots\n");
    CHECK_HAS(kvmem_blob_data(text), "namespace  sealed: 1 of 2 slots, encrypted\n");
}

TEST(a_reader_gets_blocks_of_a_tenant_with_its_key) {
    SCRATCH_FILE(path, "store");
    KV_SIDES(source, destination, kv_aligned_config(&kv_kinds[0]), kv_aligned_config(&kv_kinds[2]));
    OWNED(kvmem_store) store = open_store(path, 0);
    OWNED(kvmem_store) reader = open_store(path, KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_READ_ONLY | KVMEM_DISK_BUFFERED);
    OWNED(kvmem_store) written = open_tenant(store, "tenant", 7);
    size_t moved = 0;
    EXPECT_OK(store_put(written, source.layout, 0, ids, QUOTA, &moved));
    OWNED(kvmem_store) read = open_tenant(reader, "tenant", 7);
    EXPECT_OK(store_get(read, destination.layout, 0, ids, BLOCKS, &moved));
    CHECK_EQ(moved, QUOTA);
    const kv_move two = KV_MOVE(3, {0, 0}, {1, 1});
    kv_side_check_moved(&destination, &source, &two);
    EXPECT_MESSAGE(KVMEM_STATUS_PERMISSION_DENIED, "only its writer", store_put(read, source.layout, 5, ids, 1, &moved));
    const kvmem_store_namespace_options other = OPTIONS(kvmem_store_namespace_options, it.name = "other", it.quota = 1 << 20);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "has no namespace 'other'", kvmem_store_open_namespace, reader, &other, PATIENCE);
}

TEST(what_encrypted_blocks_cannot_do_is_refused_before_blocks_are_evicted) {
    SCRATCH_FILE(path, "store");
    OPENED(kv_side, source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    OWNED(kvmem_store) store = open_store(path, 0);
    OWNED(kvmem_store) sealed = open_tenant(store, "sealed", 7);
    size_t moved = 0;
    EXPECT_OK(store_put(sealed, source.layout, 0, ids, QUOTA, &moved));
    unsigned char keys[STORE_KEY];
    store_keys(keys, 10, 1);
    const kvmem_store_blocks what = OPTIONS(kvmem_store_blocks, it.keys = keys, it.key_size = STORE_KEY, it.num_keys = 1,
                                            it.blocks = ids, it.num_blocks = 1);
    const kvmem_transfer_options options = OPTIONS(kvmem_transfer_options, it.flags = KVMEM_TRANSFER_NO_HOST_BOUNCE);
    kvmem_transfer *transfer = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "encrypted",
                   kvmem_store_put(sealed, source.layout, &options, &what, &transfer, &moved, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "set a higher quota", store_put(sealed, source.layout, 20, ids, QUOTA + 1, &moved));
    CHECK(store_has(sealed, 0) && store_has(sealed, 1));
    uint64_t removed = 0;
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "is open by 1 handle",
                   kvmem_store_remove_namespace(store, "sealed", PATIENCE, &removed, ERR));
}

static char logged[4096];

static void record(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level, (void)target, (void)user_data;
    const size_t length = strlen(logged);
    snprintf(logged + length, sizeof(logged) - length, "%s\n", message);
}

TEST(a_lost_list_of_namespaces_is_logged_and_the_other_blocks_stay) {
    SCRATCH_FILE(path, "store");
    OPENED(kv_side, source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    size_t moved = 0;
    {
        OWNED(kvmem_store) store = open_store(path, 0);
        OWNED(kvmem_store) sealed = open_tenant(store, "sealed", 7);
        EXPECT_OK(store_put(store, source.layout, 0, ids, 1, &moved));
        EXPECT_OK(store_put(sealed, source.layout, 0, ids, QUOTA, &moved));
    }
    write_file(TEXT("%s/namespaces", path), "damaged", 7);
    OWN(kvmem_blob, text, kvmem_store_describe, path);
    CHECK_HAS(kvmem_blob_data(text), "namespace  2 blocks of namespaces that the list lacks, which are misses\n");
    CHECK_HAS(kvmem_blob_data(text), "damage     the file namespaces: ");
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_WARN, record, NULL, ERR));
    OWNED(kvmem_store) store = open_store(path, 0);
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    CHECK_HAS(logged, "2 blocks of these are not found");
    CHECK(store_has(store, 0));
    OWNED(kvmem_store) sealed = open_tenant(store, "sealed", 8);
    CHECK(!store_has(sealed, 0));
    EXPECT_OK(store_put(sealed, source.layout, 0, ids, QUOTA, &moved));
    CHECK_EQ(moved, QUOTA);
}

/* The move of the bytes that were decrypted is a run of its own, of which the caller knows nothing. */
TEST(a_get_of_encrypted_blocks_is_an_access_with_the_user_data_of_its_caller) {
    SCRATCH_FILE(path, "store");
    OPENED(kv_side, source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    OWNED(kvmem_store) store = open_store(path, 0);
    OWNED(kvmem_store) sealed = open_tenant(store, "sealed", 7);
    size_t count = 0;
    EXPECT_OK(store_put(sealed, source.layout, 0, ids, 1, &count));
    OWNED(kvmem_layout) memory = layout_allocate_system(REF(kv_aligned_config(&kv_kinds[0])));
    GET(kvmem_block, piece, kvmem_layout_get_block, memory, 0, 0, 0);
    unsigned char keys[STORE_KEY];
    store_keys(keys, 0, 1);
    const kvmem_store_blocks what = OPTIONS(kvmem_store_blocks, it.keys = keys, it.key_size = STORE_KEY, it.num_keys = 1,
                                            it.blocks = ids, it.num_blocks = 1, it.user_data = 77);
    OWNED(kvmem_transfer) transfer = NULL;
    gate_close((void *)(uintptr_t)piece.address, 4096);
    EXPECT_OK(kvmem_store_get(sealed, memory, NULL, &what, &transfer, &count, ERR));
    gate_await();
    kvmem_block_access found[4];
    EXPECT_OK(kvmem_layout_get_accesses(memory, ids, 1, found, NUM(found), &count, ERR));
    CHECK(count > 0 && count <= NUM(found));
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ(found[i].accessor, KVMEM_ACCESSOR_RUN);
        CHECK_EQ(found[i].user_data, 77);
        CHECK_EQ(found[i].writes, 1);
    }
    gate_open();
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
}
