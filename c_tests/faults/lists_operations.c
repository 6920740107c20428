// SPDX-License-Identifier: Apache-2.0
// Operations with long lists of the caller or of a peer, for which a lack of memory is an error.
#include "walk.h"

FAULT_WALK_CASES

const bool operations_have_peer = false;

#define MANY 20000

static kv_side source, destination;
static kvmem_block_pair *many;
static kvmem_layout *wide_source, *wide_destination;

static kvmem_layout_config wide(const char *order) {
    return OPTIONS(kvmem_layout_config, it.num_blocks = MANY, it.num_layers = 1, it.outer_dim = 1, it.page_size = 1,
                   it.inner_dim = 8, it.dtype_width = 1, it.order = order);
}

void operations_open(void) {
    const kvmem_layout_config one = wide(kv_kinds[0].order), other = wide(kv_kinds[1].order);
    kv_side_open(&source, REF(kv_config(&kv_kinds[0])), NULL, 1);
    kv_side_open(&destination, REF(kv_config(&kv_kinds[1])), NULL, 2);
    const kvmem_system_options shareable = OPTIONS(kvmem_system_options, it.flags = KVMEM_SYSTEM_SHAREABLE);
    EXPECT_OK(kvmem_layout_build(REF(OPTIONS(kvmem_layout_options, it.config = &one, it.system = &shareable,
                                             it.source = KVMEM_LAYOUT_ALLOCATE)),
                                 &wide_source, ERR));
    wide_destination = layout_allocate_system(&other);
    many = test_allocate(MANY * sizeof(*many));
    /* Every other one, so that no two are adjacent on both sides. */
    for (uint64_t i = 0; i < MANY; i++) many[i] = (kvmem_block_pair){i, i * 7919 % MANY};
}

void operations_check(void) {}

void operations_close(void) {
    free(many);
    kvmem_layout_destroy(wide_destination);
    kvmem_layout_destroy(wide_source);
    kv_side_close(&destination);
    kv_side_close(&source);
}

static kvmem_status move(const kvmem_layout *from, const kvmem_layout *to, const kv_move *pairs) {
    OWNED(kvmem_transfer) transfer = NULL;
    kvmem_status status = kv_prepare(from, to, REF(kv_job_of(pairs)), &transfer, ERR);
    THEN(status, kvmem_transfer_submit(transfer, NULL, ERR));
    THEN(status, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    return status;
}

OPERATION(move_few_blocks) {
    const kv_move few = KV_MOVE(3, {0, 0}, {6, 1});
    return move(source.layout, destination.layout, &few);
}

OPERATION(move_many_blocks) {
    const kv_move all = {many, MANY, 0, 0, 1};
    return move(wide_source, wide_destination, &all);
}

OPERATION(checksum_many_blocks) {
    static uint32_t ids[MANY], sums[MANY];
    for (uint32_t i = 0; i < MANY; i++) ids[i] = i;
    return kvmem_layout_checksum(wide_source, ids, MANY, PATIENCE, sums, ERR);
}

OPERATION(read_the_bytes_of_a_share) {
    static unsigned char bytes[4 * 65536];
    OWNED(kvmem_share) share = NULL;
    const kvmem_status status = kvmem_share_create_received(bytes, sizeof(bytes), NULL, 0, &share, ERR);
    return status == KVMEM_STATUS_CORRUPT ? KVMEM_STATUS_OK : status;
}

OPERATION(write_many_blocks) {
    const kvmem_layout_config config = wide(kv_kinds[0].order);
    const kv_move all = {many, MANY, 0, 0, 1};
    const kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.flags = KVMEM_DISK_BUFFERED);
    OWNED(kvmem_layout) file = NULL;
    kvmem_status status = kvmem_layout_build(
        REF(OPTIONS(kvmem_layout_options, it.config = &config, it.disk = &disk, it.source = KVMEM_LAYOUT_ALLOCATE)), &file, ERR);
    THEN(status, move(wide_source, file, &all));
    return status;
}

/* A put without memory leaves all slots free. */
OPERATION(put_many_blocks_into_a_store) {
    static uint32_t ids[MANY];
    for (uint32_t i = 0; i < MANY; i++) ids[i] = i;
    store_setup setup;
    store_setup_init(&setup, TEXT("%s/cluster", fault_folder()), REF(wide(kv_kinds[0].order)));
    setup.options.flags = KVMEM_DISK_BUFFERED;
    setup.options.durability = KVMEM_DURABILITY_NONE;
    OWNED(kvmem_store) store = NULL;
    size_t moved = 0;
    kvmem_status status = kvmem_store_open(&setup.options, PATIENCE, &store, ERR);
    THEN(status, store_put(store, wide_source, 0, ids, MANY, &moved));
    if (store == NULL || status == KVMEM_STATUS_OK) return status;
    const kvmem_status again = store_put(store, wide_source, 0, ids, MANY, &moved);
    return again == KVMEM_STATUS_OK && moved == MANY ? status : KVMEM_STATUS_PANIC;
}

OPERATION(share_a_layout) {
    OWNED(kvmem_share) share = NULL;
    kvmem_status status = kvmem_share_create_layout(wide_source, NULL, &share, ERR);
    THEN(status, TRIED(kvmem_layout, kvmem_share_open_layout, share, NULL));
    return status;
}

OPERATION(create_regions) {
    OWNED(kvmem_region) memory = NULL;
    OWNED(kvmem_region) view = NULL;
    kvmem_status status = kvmem_region_create_system(REF(OPTIONS(kvmem_system_options, it.size = MIB)), &memory, ERR);
    THEN(status, kvmem_region_create_view(memory, 4096, 8192, &view, ERR));
    return status;
}

