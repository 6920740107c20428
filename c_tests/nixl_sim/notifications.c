// SPDX-License-Identifier: Apache-2.0
// Notifications of the stand-in for NIXL. Those that agents send never arrive; a test says what arrives instead.
#include "nixl_sim.h"
#include "sim.h"

#include <stdio.h>
#include <string.h>

#define SENDER "far"

/* Messages with consecutive numbers. */
typedef struct messages {
    uint64_t first;
    uint64_t count;
    size_t size;
    bool is_from_each;    /* each has its own sender */
    char name[NAME_SIZE]; /* of the sender that was read last */
    unsigned char *bytes; /* of the message that was read last */
} messages;

static uint64_t num_polls;
static bool polls_fail;
static uint64_t num_steps;
static messages arriving;

CAPI(create_notif_map)(messages **made) {
    *made = calloc(1, sizeof(messages));
    return *made != NULL ? SUCCESS : ERROR_BACKEND;
}

CAPI(destroy_notif_map)(messages *ended) {
    free(ended->bytes);
    return free_object(ended);
}

static status deliver(messages *map) {
    sim_wait_if_held(NIXL_SIM_TAKE);
    num_polls++;
    *map = arriving;
    arriving.count = 0;
    map->bytes = calloc(1, map->size + 1);
    return map->bytes != NULL && !polls_fail ? SUCCESS : ERROR_BACKEND;
}

CAPI(get_notifs)(const agent *agent, messages *map, const arguments *arguments) { return LOCKED(deliver(map)); }

CAPI(notif_map_size)(const messages *map, size_t *size) {
    *size = map->is_from_each ? map->count : map->count > 0;
    return SUCCESS;
}

CAPI(notif_map_get_agent_at)(messages *map, size_t index, const char **name) {
    size_t size;
    nixl_capi_notif_map_size(map, &size);
    LOCKED(num_steps += index);
    if (map->is_from_each)
        snprintf(map->name, NAME_SIZE, "%s %ju", SENDER, (uintmax_t)(map->first + index));
    else
        strcpy(map->name, SENDER);
    *name = map->name;
    return index < size ? SUCCESS : ERROR_NOT_FOUND;
}

/* The number of the first message of a sender. */
static bool find(const messages *map, const char *name, uint64_t *first) {
    *first = map->first;
    if (!map->is_from_each) return map->count > 0 && strcmp(name, SENDER) == 0;
    uintmax_t number;
    if (sscanf(name, SENDER " %ju", &number) != 1) return false;
    *first = number;
    return number - map->first < map->count;
}

CAPI(notif_map_get_notifs_size)(const messages *map, const char *name, size_t *size) {
    uint64_t number;
    *size = map->is_from_each ? 1 : map->count;
    return find(map, name, &number) ? SUCCESS : ERROR_NOT_FOUND;
}

CAPI(notif_map_get_notif)(const messages *map, const char *name, size_t index, const void **data, size_t *size) {
    uint64_t number;
    if (!find(map, name, &number)) return ERROR_NOT_FOUND;
    number += index;
    memcpy(map->bytes, &number, sizeof(number) < map->size ? sizeof(number) : map->size);
    *data = map->bytes;
    *size = map->size;
    return SUCCESS;
}

uint64_t nixl_sim_steps(void) { return LOCKED(num_steps); }

uint64_t nixl_sim_notification_polls(void) { return LOCKED(num_polls); }

void nixl_sim_set_notifications_fail(int fail) { LOCKED(polls_fail = fail != 0); }

static void set_arriving(messages next) {
    pthread_mutex_lock(&sim_lock);
    arriving = next;
    pthread_mutex_unlock(&sim_lock);
}

void nixl_sim_deliver(uint64_t first, uint64_t count, size_t size) {
    set_arriving((messages){.first = first, .count = count, .size = size});
}

void nixl_sim_deliver_from_each(uint64_t first, uint64_t count) {
    set_arriving((messages){.first = first, .count = count, .size = sizeof(uint64_t), .is_from_each = true});
}
