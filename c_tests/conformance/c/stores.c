/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of stores. */
#include "calls.h"

#include <kvmem/store.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_SIZE 32

static kvmem_store *store_of(struct step *step)
{
    return object(step_name(step), STORE);
}

static kvmem_status store_open(struct step *step, union handle *made, kvmem_error **error)
{
    char *items[MAX_LIST];
    kvmem_store_value values[MAX_LIST];
    kvmem_layout_config config = {.struct_size = sizeof(config)};
    kvmem_store_options options = {.struct_size = sizeof(options)};
    SET_SHAPE(config);
    config.order = has(step, "order") ? text_of(step, "order") : NULL;
    options.num_values = list_of(step, "values", items);
    for (size_t i = 0; i < options.num_values; i++) {
        char *colon = strchr(items[i], ':');
        if (!colon) fail("'%s' is not a pair", items[i]);
        *colon = '\0';
        values[i] = (kvmem_store_value){items[i], colon + 1, strlen(colon + 1)};
    }
    options.path = path_of(text_of(step, "path"));
    options.config = &config;
    options.identity = options.num_values ? values : NULL;
    SET(options, max_size);
    options.durability = (uint32_t)word_value(step, "durability", durabilities);
    options.eviction = (uint32_t)word_value(step, "eviction", evictions);
    options.flags = flags_value(step, "flags", disk_flags);
    return kvmem_store_open(&options, KVMEM_TIMEOUT_FOREVER, &made->store, error);
}

static const void *one_key(uint64_t number);

static kvmem_status store_open_namespace(struct step *step, union handle *made, kvmem_error **error)
{
    kvmem_store_namespace_options options = {.struct_size = sizeof(options)};
    options.name = text_of(step, "name");
    SET(options, quota);
    if (has(step, "key")) {
        options.key = one_key(number_of(step, "key"));
        options.key_size = KEY_SIZE;
    }
    kvmem_store *store = object(text_of(step, "store"), STORE);
    return kvmem_store_open_namespace(store, &options, KVMEM_TIMEOUT_FOREVER, &made->store, error);
}

static const void *one_key(uint64_t number)
{
    return memset(keep(malloc(KEY_SIZE)), (int)number, KEY_SIZE);
}

static size_t keys_of(struct step *step, const void **keys)
{
    uint32_t numbers[MAX_LIST];
    const size_t count = ids_of(step, "keys", numbers);
    unsigned char *bytes = keep(malloc(count * KEY_SIZE + 1));
    for (size_t i = 0; i < count; i++) memset(bytes + i * KEY_SIZE, (int)numbers[i], KEY_SIZE);
    *keys = bytes;
    return count;
}

typedef kvmem_status (*start)(kvmem_store *, const kvmem_layout *, const kvmem_transfer_options *, const kvmem_store_blocks *,
                              kvmem_transfer **, size_t *, kvmem_error **);

static kvmem_status move(struct step *step, start start, kvmem_error **error)
{
    uint32_t ids[MAX_LIST];
    size_t moved = 0;
    kvmem_transfer *transfer = NULL;
    kvmem_transfer_options options = {.struct_size = sizeof(options)};
    kvmem_store_blocks blocks = {.struct_size = sizeof(blocks), .key_size = KEY_SIZE, .blocks = ids};
    SET_SELECTION(options);
    blocks.num_keys = keys_of(step, &blocks.keys);
    blocks.num_blocks = ids_of(step, "blocks", ids);
    blocks.parent = has(step, "parent") ? one_key(number_of(step, "parent")) : NULL;
    blocks.flags = flags_value(step, "store_flags", store_flags);
    const kvmem_layout *layout = object(text_of(step, "layout"), LAYOUT);
    kvmem_status status = start(store_of(step), layout, &options, &blocks, &transfer, &moved, error);
    if (status >= 0 && transfer) status = kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, error);
    kvmem_transfer_destroy(transfer);
    if (status >= 0) add_number(step, "num_moved", moved);
    return status;
}

static kvmem_status store_put(struct step *step, kvmem_error **error)
{
    return move(step, kvmem_store_put, error);
}

static kvmem_status store_get(struct step *step, kvmem_error **error)
{
    return move(step, kvmem_store_get, error);
}

static kvmem_status store_contains(struct step *step, kvmem_error **error)
{
    const void *keys;
    uint8_t found[MAX_LIST];
    const size_t count = keys_of(step, &keys);
    const kvmem_status status = kvmem_store_contains(store_of(step), keys, KEY_SIZE, count, found, error);
    if (status < 0) return status;
    add_text(step, "found", "");
    for (size_t i = 0; i < count; i++) append_number(step, found[i]);
    return status;
}

static kvmem_status counted(struct step *step, kvmem_status status, uint64_t count)
{
    if (status >= 0) add_number(step, "count", count);
    return status;
}

static kvmem_status store_remove(struct step *step, kvmem_error **error)
{
    const void *keys;
    uint64_t removed = 0;
    const size_t count = keys_of(step, &keys);
    const kvmem_status status =
        kvmem_store_remove(store_of(step), keys, KEY_SIZE, count, KVMEM_TIMEOUT_FOREVER, &removed, error);
    return counted(step, status, removed);
}

static kvmem_status store_remove_namespace(struct step *step, kvmem_error **error)
{
    uint64_t removed = 0;
    const kvmem_status status = kvmem_store_remove_namespace(store_of(step), text_of(step, "name"),
                                                             KVMEM_TIMEOUT_FOREVER, &removed, error);
    return counted(step, status, removed);
}

static kvmem_status store_pin(struct step *step, kvmem_error **error)
{
    const void *keys;
    uint64_t found = 0;
    const size_t count = keys_of(step, &keys);
    const kvmem_status status = kvmem_store_pin(store_of(step), keys, KEY_SIZE, count, &found, error);
    return counted(step, status, found);
}

static kvmem_status store_unpin(struct step *step, kvmem_error **error)
{
    const void *keys;
    uint64_t found = 0;
    const size_t count = keys_of(step, &keys);
    const kvmem_status status = kvmem_store_unpin(store_of(step), keys, KEY_SIZE, count, &found, error);
    return counted(step, status, found);
}

static kvmem_status store_list(struct step *step, kvmem_error **error)
{
    kvmem_store_entry entries[MAX_LIST];
    size_t count = 0;
    const kvmem_status status = kvmem_store_list(store_of(step), number_of(step, "first_slot"), entries,
                                                 (size_t)number_of(step, "capacity"), &count, error);
    if (status < 0) return status;
    add_text(step, "entries", "");
    for (size_t i = 0; i < count; i++) {
        char parent[8] = "", text[32];
        if (entries[i].parent_size) snprintf(parent, sizeof parent, "%u", entries[i].parent[0]);
        snprintf(text, sizeof text, "%u:%s:%u", entries[i].key[0], parent, entries[i].is_pinned);
        append_item(step, text);
    }
    return status;
}

static kvmem_status store_get_info(struct step *step, kvmem_error **error)
{
    kvmem_store_info info;
    const kvmem_status status = kvmem_store_get_info(store_of(step), &info, error);
    if (status < 0) return status;
    NUMBER(info, num_slots);
    NUMBER(info, num_stored);
    NUMBER(info, num_retired);
    NUMBER(info, num_hits);
    NUMBER(info, num_misses);
    NUMBER(info, num_evicted);
    NUMBER(info, num_damaged);
    WORD(info, durability, durabilities);
    return status;
}

static kvmem_status store_flush(struct step *step, kvmem_error **error)
{
    return kvmem_store_flush(store_of(step), number_of(step, "timeout_ns"), error);
}

static kvmem_status store_verify(struct step *step, kvmem_error **error)
{
    uint64_t damaged = 0;
    return kvmem_store_verify(store_of(step), number_of(step, "timeout_ns"), &damaged, error);
}

const struct call store_calls[] = {
    {"store_open", .create = store_open, .type = STORE},
    {"store_open_namespace", .create = store_open_namespace, .type = STORE},
    {"store_remove_namespace", .run = store_remove_namespace},
    {"store_put", .run = store_put},
    {"store_get", .run = store_get},
    {"store_contains", .run = store_contains},
    {"store_remove", .run = store_remove},
    {"store_pin", .run = store_pin},
    {"store_unpin", .run = store_unpin},
    {"store_list", .run = store_list},
    {"store_get_info", .run = store_get_info},
    {"store_flush", .run = store_flush},
    {"store_verify", .run = store_verify},
    {.name = NULL},
};
