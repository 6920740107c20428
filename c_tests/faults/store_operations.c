// SPDX-License-Identifier: Apache-2.0
// Stores: creating, putting, getting, removing, and opening what another handle has left.
#include "walk.h"

FAULT_WALK_CASES

const bool operations_have_peer = false;

static kv_side host;
static const uint32_t ids[] = {0, 1, 2};
#define SLOT_SIZE 24576 /* 3 layers, keys and values, 16 tokens of 256 bytes */

void operations_open(void) { kv_side_open(&host, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1); }

void operations_close(void) { kv_side_close(&host); }

void operations_check(void) { kv_side_check(&host); }

/* The folder is removed after each operation. */
static kvmem_status open_store(uint32_t durability, kvmem_store **store) {
    store_setup setup;
    store_setup_init(&setup, TEXT("%s/cluster", fault_folder()), REF(kv_aligned_config(&kv_kinds[0])));
    setup.options.durability = durability;
    return kvmem_store_open(&setup.options, SECONDS(10), store, ERR);
}

static kvmem_status put(uint32_t durability) {
    OWNED(kvmem_store) store = NULL;
    size_t moved = 0;
    kvmem_status status = open_store(durability, &store);
    THEN(status, store_put(store, host.layout, 0, ids, NUM(ids), &moved));
    THEN(status, kvmem_store_flush(store, SECONDS(10), ERR));
    return status;
}

OPERATION_CALL(put_with_strict_durability, put(KVMEM_DURABILITY_STRICT))
OPERATION_CALL(put_with_relaxed_durability, put(KVMEM_DURABILITY_RELAXED))
OPERATION_CALL(put_without_durability, put(KVMEM_DURABILITY_NONE))

/* A put that has failed leaves all slots free. */
OPERATION(put_again_after_a_failure) {
    static const uint32_t all[] = {0, 1, 2, 3, 4, 5, 6};
    OWNED(kvmem_store) store = NULL;
    size_t moved = 0;
    kvmem_status status = open_store(KVMEM_DURABILITY_NONE, &store);
    THEN(status, store_put(store, host.layout, 0, ids, NUM(ids), &moved));
    if (store == NULL || status == KVMEM_STATUS_OK) return status;
    if (store_put(store, host.layout, 0, all, NUM(all), &moved) != KVMEM_STATUS_OK || moved != NUM(all))
        return KVMEM_STATUS_PANIC;
    return status;
}

OPERATION(open_again_and_remove) {
    OWNED(kvmem_store) store = NULL;
    unsigned char keys[2 * STORE_KEY];
    uint64_t removed = 0;
    store_keys(keys, 0, 2);
    kvmem_status status = put(KVMEM_DURABILITY_STRICT);
    THEN(status, open_store(KVMEM_DURABILITY_STRICT, &store));
    THEN(status, kvmem_store_remove(store, keys, STORE_KEY, 2, SECONDS(10), &removed, ERR));
    return status;
}

OPERATION(get) {
    OWNED(kvmem_store) store = NULL;
    size_t moved = 0;
    kvmem_status status = open_store(KVMEM_DURABILITY_NONE, &store);
    THEN(status, store_put(store, host.layout, 0, ids, NUM(ids), &moved));
    THEN(status, store_get(store, host.layout, 0, ids, NUM(ids), &moved)); /* the bytes that are there */
    return status;
}

/* A tenant whose blocks are encrypted, opened again, and removed. */
OPERATION(put_in_an_encrypted_namespace_and_remove_it) {
    static const unsigned char key[32] = {1};
    const kvmem_store_namespace_options options =
        OPTIONS(kvmem_store_namespace_options, it.name = "tenant", it.quota = NUM(ids) * SLOT_SIZE, it.key = key, it.key_size = sizeof key);
    OWNED(kvmem_store) store = NULL;
    OWNED(kvmem_store) tenant = NULL;
    size_t moved = 0;
    uint64_t removed = 0;
    kvmem_status status = open_store(KVMEM_DURABILITY_STRICT, &store);
    THEN(status, kvmem_store_open_namespace(store, &options, SECONDS(10), &tenant, ERR));
    THEN(status, store_put(tenant, host.layout, 0, ids, NUM(ids), &moved));
    THEN(status, store_get(tenant, host.layout, 0, ids, NUM(ids), &moved)); /* the bytes that are there */
    if (status != KVMEM_STATUS_OK) return status;
    DESTROYED(kvmem_store, tenant);
    return kvmem_store_remove_namespace(store, "tenant", SECONDS(10), &removed, ERR);
}

OPERATION(describe) {
    const kvmem_status status = put(KVMEM_DURABILITY_NONE);
    if (status != KVMEM_STATUS_OK) return status;
    return TRIED(kvmem_blob, kvmem_store_describe, TEXT("%s/cluster", fault_folder()));
}

/* A reader beside the writer: it looks at what the writer has published. */
OPERATION(read_beside_the_writer) {
    OWNED(kvmem_store) store = NULL;
    OWNED(kvmem_store) reader = NULL;
    store_setup setup;
    size_t moved = 0;
    kvmem_status status = open_store(KVMEM_DURABILITY_STRICT, &store);
    THEN(status, store_put(store, host.layout, 0, ids, NUM(ids), &moved));
    store_setup_init(&setup, TEXT("%s/cluster", fault_folder()), REF(kv_aligned_config(&kv_kinds[0])));
    setup.options.flags = KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_READ_ONLY;
    THEN(status, kvmem_store_open(&setup.options, SECONDS(10), &reader, ERR));
    THEN(status, store_get(reader, host.layout, 0, ids, NUM(ids), &moved)); /* the bytes that are there */
    return status;
}

OPERATION(verify) {
    OWNED(kvmem_store) store = NULL;
    size_t moved = 0;
    uint64_t damaged = 0, found = 0;
    unsigned char keys[2 * STORE_KEY];
    store_keys(keys, 0, 2);
    kvmem_status status = open_store(KVMEM_DURABILITY_RELAXED, &store);
    THEN(status, store_put(store, host.layout, 0, ids, NUM(ids), &moved));
    THEN(status, kvmem_store_pin(store, keys, STORE_KEY, 2, &found, ERR));
    THEN(status, kvmem_store_verify(store, SECONDS(10), &damaged, ERR));
    THEN(status, kvmem_store_unpin(store, keys, STORE_KEY, 2, &found, ERR));
    return status;
}
