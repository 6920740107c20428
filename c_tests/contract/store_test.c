// SPDX-License-Identifier: Apache-2.0
// The functions of stores: NULL in every pointer argument, and handles of a parent in a forked child.
#include "contract.h"

static kvmem_store *store;
static kvmem_layout *layout;
static unsigned char key[STORE_KEY];
static const uint32_t block = 0;

static kvmem_store_blocks blocks(void) {
    return OPTIONS(kvmem_store_blocks, it.keys = key, it.key_size = STORE_KEY, it.num_keys = 1, it.blocks = &block,
                   it.num_blocks = 1);
}

TEST(open_one) {
    static scratch directory;
    directory = scratch_create(temporary_directory());
    layout = layout_allocate_system(REF(kv_aligned_config(&kv_kinds[0])));
    store_setup setup;
    store_setup_init(&setup, scratch_file(&directory, "store"), REF(kv_aligned_config(&kv_kinds[0])));
    EXPECT_OK(kvmem_store_open(&setup.options, PATIENCE, &store, ERR));
}

TEST(null_is_refused) {
    kvmem_store *made = NULL;
    INVALID_NULLS(made, kvmem_store_open, NULL, PATIENCE, &made);
    store_setup setup;
    store_setup_init(&setup, NULL, REF(kv_aligned_config(&kv_kinds[0])));
    INVALID_NULLS(made, kvmem_store_open, &setup.options, PATIENCE, &made); /* its path is NULL */
    store_setup_init(&setup, "/tmp/store", REF(kv_aligned_config(&kv_kinds[0])));
    setup.options.config = NULL;
    INVALID_NULLS(made, kvmem_store_open, &setup.options, PATIENCE, &made);
    setup.options.config = &setup.config;
    setup.identity[0].name = NULL;
    INVALID_NULLS(made, kvmem_store_open, &setup.options, PATIENCE, &made);
    INVALID(kvmem_store_open, &setup.options, PATIENCE, NULL);
    kvmem_transfer *transfer = NULL;
    size_t count = 0;
    const kvmem_store_blocks what = blocks();
    INVALID_NULLS(transfer, kvmem_store_put, NULL, layout, NULL, &what, &transfer, &count);
    INVALID_NULLS(transfer, kvmem_store_put, store, NULL, NULL, &what, &transfer, &count);
    INVALID_NULLS(transfer, kvmem_store_put, store, layout, NULL, NULL, &transfer, &count);
    INVALID(kvmem_store_put, store, layout, NULL, &what, NULL, &count);
    INVALID_NULLS(transfer, kvmem_store_put, store, layout, NULL, &what, &transfer, NULL);
    INVALID_NULLS(transfer, kvmem_store_get, NULL, layout, NULL, &what, &transfer, &count);
    INVALID_NULLS(transfer, kvmem_store_get, store, NULL, NULL, &what, &transfer, &count);
    INVALID_NULLS(transfer, kvmem_store_get, store, layout, NULL, NULL, &transfer, &count);
    INVALID(kvmem_store_get, store, layout, NULL, &what, NULL, &count);
    INVALID_NULLS(transfer, kvmem_store_get, store, layout, NULL, &what, &transfer, NULL);
    kvmem_store_blocks without = WITH(what, it.keys = NULL);
    INVALID_NULLS(transfer, kvmem_store_put, store, layout, NULL, &without, &transfer, &count);
    without = WITH(what, it.blocks = NULL);
    INVALID_NULLS(transfer, kvmem_store_put, store, layout, NULL, &without, &transfer, &count);
}

TEST(null_keys_and_outputs_are_refused) {
    uint8_t found = 0;
    uint64_t number = 0;
    INVALID_KEEPS(found, kvmem_store_contains, NULL, key, STORE_KEY, 1, &found);
    INVALID_KEEPS(found, kvmem_store_contains, store, NULL, STORE_KEY, 1, &found);
    INVALID(kvmem_store_contains, store, key, STORE_KEY, 1, NULL);
    INVALID_KEEPS(number, kvmem_store_remove, NULL, key, STORE_KEY, 1, 0, &number);
    INVALID_KEEPS(number, kvmem_store_remove, store, NULL, STORE_KEY, 1, 0, &number);
    INVALID(kvmem_store_remove, store, key, STORE_KEY, 1, 0, NULL);
    INVALID_KEEPS(number, kvmem_store_pin, NULL, key, STORE_KEY, 1, &number);
    INVALID_KEEPS(number, kvmem_store_pin, store, NULL, STORE_KEY, 1, &number);
    INVALID(kvmem_store_pin, store, key, STORE_KEY, 1, NULL);
    INVALID_KEEPS(number, kvmem_store_unpin, NULL, key, STORE_KEY, 1, &number);
    INVALID_KEEPS(number, kvmem_store_unpin, store, NULL, STORE_KEY, 1, &number);
    INVALID(kvmem_store_unpin, store, key, STORE_KEY, 1, NULL);
    kvmem_store_entry entry;
    size_t count = 0;
    INVALID_KEEPS(count, kvmem_store_list, NULL, 0, &entry, 1, &count);
    INVALID_KEEPS(count, kvmem_store_list, store, 0, NULL, 1, &count);
    INVALID(kvmem_store_list, store, 0, &entry, 1, NULL);
    INVALID_KEEPS(number, kvmem_store_verify, NULL, 0, &number);
    INVALID(kvmem_store_verify, store, 0, NULL);
    kvmem_store_info info;
    INVALID_KEEPS(info, kvmem_store_get_info, NULL, &info);
    INVALID(kvmem_store_get_info, store, NULL);
    INVALID(kvmem_store_flush, NULL, 0);
    kvmem_store *made = NULL;
    const kvmem_store_namespace_options space = OPTIONS(kvmem_store_namespace_options, it.name = "a", it.quota = 24576);
    INVALID_NULLS(made, kvmem_store_open_namespace, NULL, &space, PATIENCE, &made);
    INVALID_NULLS(made, kvmem_store_open_namespace, store, NULL, PATIENCE, &made);
    INVALID_NULLS(made, kvmem_store_open_namespace, store, REF(WITH(space, it.name = NULL)), PATIENCE, &made);
    INVALID_NULLS(made, kvmem_store_open_namespace, store, REF(WITH(space, it.key_size = 32)), PATIENCE, &made);
    INVALID_NULLS(made, kvmem_store_open_namespace, store, REF(WITH(space, it.key = key)), PATIENCE, &made);
    INVALID(kvmem_store_open_namespace, store, &space, PATIENCE, NULL);
    INVALID_KEEPS(number, kvmem_store_remove_namespace, NULL, "a", PATIENCE, &number);
    INVALID_KEEPS(number, kvmem_store_remove_namespace, store, NULL, PATIENCE, &number);
    INVALID(kvmem_store_remove_namespace, store, "a", PATIENCE, NULL);
    kvmem_blob *text = NULL;
    INVALID_NULLS(text, kvmem_store_describe, NULL, &text);
    INVALID(kvmem_store_describe, "/", NULL);
    kvmem_store_destroy(NULL);
}

static void use_in_a_child(void) {
    kvmem_transfer *transfer = NULL;
    size_t count = 0;
    uint8_t found = 0;
    uint64_t number = 0;
    kvmem_store_info info;
    kvmem_store_entry entry;
    const kvmem_store_blocks what = blocks();
    REFUSED_NULLS(transfer, KVMEM_STATUS_INVALID_STATE, kvmem_store_put, store, layout, NULL, &what, &transfer, &count);
    REFUSED_NULLS(transfer, KVMEM_STATUS_INVALID_STATE, kvmem_store_get, store, layout, NULL, &what, &transfer, &count);
    REFUSED_KEEPS(found, KVMEM_STATUS_INVALID_STATE, kvmem_store_contains, store, key, STORE_KEY, 1, &found);
    REFUSED_KEEPS(number, KVMEM_STATUS_INVALID_STATE, kvmem_store_remove, store, key, STORE_KEY, 1, 0, &number);
    REFUSED_KEEPS(number, KVMEM_STATUS_INVALID_STATE, kvmem_store_pin, store, key, STORE_KEY, 1, &number);
    REFUSED_KEEPS(number, KVMEM_STATUS_INVALID_STATE, kvmem_store_unpin, store, key, STORE_KEY, 1, &number);
    REFUSED_KEEPS(count, KVMEM_STATUS_INVALID_STATE, kvmem_store_list, store, 0, &entry, 1, &count);
    REFUSED_KEEPS(info, KVMEM_STATUS_INVALID_STATE, kvmem_store_get_info, store, &info);
    REFUSED_KEEPS(number, KVMEM_STATUS_INVALID_STATE, kvmem_store_verify, store, 0, &number);
    FORKED(kvmem_store_flush, store, 0);
    kvmem_store *made = NULL;
    const kvmem_store_namespace_options space = OPTIONS(kvmem_store_namespace_options, it.name = "a", it.quota = 24576);
    REFUSED_NULLS(made, KVMEM_STATUS_INVALID_STATE, kvmem_store_open_namespace, store, &space, 0, &made);
    REFUSED_KEEPS(number, KVMEM_STATUS_INVALID_STATE, kvmem_store_remove_namespace, store, "a", 0, &number);
    kvmem_store_destroy(store);
}

TEST(a_child_cannot_use_a_store_of_its_parent) {
    in_a_forked_child(use_in_a_child);
    size_t moved = 0;
    EXPECT_OK(store_put(store, layout, 0, &block, 1, &moved));
    CHECK_EQ(moved, 1);
}

TEST(close_it) {
    kvmem_store_destroy(store);
    kvmem_layout_destroy(layout);
}
