// SPDX-License-Identifier: Apache-2.0
// Notifications of the stand-in for NIXL. Those that agents send never arrive; a test says what arrives instead.
#include "nixl_sim.h"
#include "sim.h"

#include <string.h>

#define SENDER "far"

/* Messages with consecutive numbers. */
typedef struct messages {
    uint64_t first;
    uint64_t count;
    size_t size;
    unsigned char *bytes; /* of the message that was read last */
} messages;

static uint64_t num_polls;
static bool polls_fail;
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
    num_polls++;
    if (polls_fail) return ERROR_BACKEND;
    *map = arriving;
    arriving.count = 0;
    map->bytes = calloc(1, map->size + 1);
    return map->bytes != NULL ? SUCCESS : ERROR_BACKEND;
}

CAPI(get_notifs)(const agent *agent, messages *map, const arguments *arguments) { return LOCKED(deliver(map)); }

CAPI(notif_map_size)(const messages *map, size_t *size) {
    *size = map->count > 0;
    return SUCCESS;
}

CAPI(notif_map_get_agent_at)(const messages *map, size_t index, const char **name) {
    *name = SENDER;
    return index == 0 ? SUCCESS : ERROR_NOT_FOUND;
}

CAPI(notif_map_get_notifs_size)(const messages *map, const char *name, size_t *size) {
    *size = map->count;
    return SUCCESS;
}

CAPI(notif_map_get_notif)(const messages *map, const char *name, size_t index, const void **data, size_t *size) {
    const uint64_t number = map->first + index;
    memcpy(map->bytes, &number, sizeof(number) < map->size ? sizeof(number) : map->size);
    *data = map->bytes;
    *size = map->size;
    return SUCCESS;
}

uint64_t nixl_sim_notification_polls(void) { return LOCKED(num_polls); }

void nixl_sim_set_notifications_fail(int fail) { LOCKED(polls_fail = fail != 0); }

void nixl_sim_deliver(uint64_t first, uint64_t count, size_t size) {
    pthread_mutex_lock(&sim_lock);
    arriving.first = first;
    arriving.count = count;
    arriving.size = size;
    pthread_mutex_unlock(&sim_lock);
}
