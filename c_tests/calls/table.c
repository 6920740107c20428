// SPDX-License-Identifier: Apache-2.0
// Slots with a lock each: shared while a call uses the handle, exclusive while it is stored or destroyed.
#include "table.h"

#include "driver.h"

#define SLOTS 10 /* per kind */

typedef struct slot {
    pthread_rwlock_t lock;
    void *handle;
} slot;

static slot slots[NUM_KINDS][SLOTS];

void table_open(void) {
    for (size_t i = 0; i < NUM_KINDS * SLOTS; i++)
        CHECK_EQ(pthread_rwlock_init(&slots[i / SLOTS][i % SLOTS].lock, NULL), 0);
}

static void destroy(fuzz *fuzz, kind kind, void *handle) {
#define DESTROY(kind, function)                                                                      \
    case kind:                                                                                       \
        DO(fuzz, function, handle);                                                                  \
        break;
    switch (kind) {
        DESTROY(REGIONS, kvmem_region_destroy)
        DESTROY(LAYOUTS, kvmem_layout_destroy)
        DESTROY(LEASES, kvmem_lease_destroy)
        DESTROY(TRANSFERS, kvmem_transfer_destroy)
        DESTROY(QUEUES, kvmem_queue_destroy)
        DESTROY(SHARES, kvmem_share_destroy)
        DESTROY(BROKERS, kvmem_broker_destroy)
        DESTROY(AGENTS, kvmem_agent_destroy)
        DESTROY(REGISTRATIONS, kvmem_registration_destroy)
        DESTROY(BLOBS, kvmem_blob_destroy)
        DESTROY(NOTIFICATIONS, kvmem_notifications_destroy)
        DESTROY(PLUGINS, kvmem_plugins_destroy)
        DESTROY(SEGMENTS, kvmem_segments_destroy)
        DESTROY(QUERIES, kvmem_query_destroy)
        DESTROY(VIEWS, kvmem_memory_view_destroy)
        DESTROY(PREPARED, kvmem_prepared_destroy)
        DESTROY(REQUESTS, kvmem_request_destroy)
        DESTROY(DIRECTORIES, kvmem_directory_destroy)
        DESTROY(ENTRIES, kvmem_directory_entry_destroy)
        DESTROY(EVENTS, kvmem_directory_events_destroy)
        DESTROY(RANGES, kvmem_vmm_range_destroy)
        DESTROY(MEMORIES, kvmem_vmm_memory_destroy)
        DESTROY(MAPPINGS, kvmem_vmm_mapping_destroy)
        DESTROY(ERRORS, kvmem_error_destroy)
    case STREAMS: if (handle != NULL) CU(cuStreamDestroy_v2(handle)); break;
    case NUM_KINDS: break;
    }
}

void table_add(fuzz *fuzz, kind kind, void *handle) {
    const uint64_t first = random_next(fuzz);
    for (size_t i = 0; i < SLOTS; i++) {
        slot *slot = &slots[kind][(first + i) % SLOTS];
        if (pthread_rwlock_trywrlock(&slot->lock) == 0) {
            const bool is_free = slot->handle == NULL;
            if (is_free) slot->handle = handle;
            pthread_rwlock_unlock(&slot->lock);
            if (is_free) return;
        }
    }
    destroy(fuzz, kind, handle);
}

void *table_pick_one(fuzz *fuzz, kind kind) {
    const uint64_t first = random_next(fuzz);
    for (size_t i = 0; i < SLOTS && fuzz->num_held < MAX_HELD; i++) {
        slot *slot = &slots[kind][(first + i) % SLOTS];
        if (pthread_rwlock_tryrdlock(&slot->lock) == 0) {
            if (slot->handle != NULL) {
                fuzz->held[fuzz->num_held++] = slot;
                return slot->handle;
            }
            pthread_rwlock_unlock(&slot->lock);
        }
    }
    return NULL;
}

void *table_pick(fuzz *fuzz, kind kind) {
    return random_one_in(fuzz, 60) ? NULL : table_pick_one(fuzz, kind);
}

bool table_has(kind kind) {
    bool has = false;
    for (size_t i = 0; i < SLOTS && !has; i++) {
        slot *slot = &slots[kind][i];
        if (pthread_rwlock_tryrdlock(&slot->lock) == 0) {
            has = slot->handle != NULL;
            pthread_rwlock_unlock(&slot->lock);
        }
    }
    return has;
}

void table_release(fuzz *fuzz) {
    while (fuzz->num_held > 0) pthread_rwlock_unlock(&fuzz->held[--fuzz->num_held]->lock);
}

static void *take_out(slot *slot) {
    void *handle = NULL;
    if (pthread_rwlock_trywrlock(&slot->lock) == 0) {
        handle = slot->handle;
        slot->handle = NULL;
        pthread_rwlock_unlock(&slot->lock);
    }
    return handle;
}

void table_destroy(fuzz *fuzz, kind kind) {
    const uint64_t first = random_next(fuzz);
    void *handle = NULL;
    for (size_t i = 0; i < SLOTS && handle == NULL; i++) handle = take_out(&slots[kind][(first + i) % SLOTS]);
    if (handle != NULL || random_one_in(fuzz, 20)) destroy(fuzz, kind, handle);
}

void table_destroy_all(fuzz *fuzz) {
    size_t order[NUM_KINDS * SLOTS];
    for (size_t i = 0; i < COUNT_OF(order); i++) {
        const size_t other = random_below(fuzz, i + 1);
        order[i] = order[other];
        order[other] = i;
    }
    for (size_t i = 0; i < COUNT_OF(order); i++) {
        void *handle = take_out(&slots[order[i] / SLOTS][order[i] % SLOTS]);
        if (handle != NULL) destroy(fuzz, (kind)(order[i] / SLOTS), handle);
    }
}
