// SPDX-License-Identifier: Apache-2.0
// Notifications of the stand-in for NIXL. Those that agents send arrive only if a test has them routed;
// otherwise it says what arrives.
#include "nixl_sim.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SENDER "far"

/* A notification that was sent, and not taken yet. */
typedef struct routed {
    struct routed *next;
    char from[NAME_SIZE], to[NAME_SIZE];
    size_t size;
    unsigned char bytes[];
} routed;

/* Messages with consecutive numbers, or those that a sender has sent. */
typedef struct messages {
    uint64_t first;
    uint64_t count;
    size_t size;
    bool is_from_each;    /* each has its own sender */
    char name[NAME_SIZE]; /* of the sender that was read last */
    unsigned char *bytes; /* of the message that was read last */
    routed *sent;         /* the first one */
} messages;

static uint64_t num_polls;
static bool polls_fail;
static uint64_t num_steps;
static messages arriving;
static bool routes;
static routed *sent;

static void free_routed(routed *first) {
    while (first != NULL) {
        routed *next = first->next;
        free(first);
        first = next;
    }
}

void sim_route(const agent *from, const char *to, const void *data, size_t size) {
    if (!routes) return;
    routed *made = calloc(1, sizeof(routed) + size);
    if (made == NULL) abort();
    strcpy(made->from, from->name);
    strcpy(made->to, to);
    made->size = size;
    memcpy(made->bytes, data, size);
    routed **end = &sent;
    while (*end != NULL) end = &(*end)->next;
    *end = made;
}

/* Takes those that one sender has sent to an agent. */
static void take_routed(const agent *agent, messages *map) {
    routed **end = &map->sent;
    for (routed **each = &sent; *each != NULL;) {
        routed *found = *each;
        if (strcmp(found->to, agent->name) != 0 ||
            (map->sent != NULL && strcmp(found->from, map->sent->from) != 0)) {
            each = &found->next;
            continue;
        }
        *each = found->next;
        found->next = NULL;
        *end = found;
        end = &found->next;
        map->count++;
    }
}

CAPI(create_notif_map)(messages **made) {
    *made = calloc(1, sizeof(messages));
    return *made != NULL ? SUCCESS : ERROR_BACKEND;
}

CAPI(destroy_notif_map)(messages *ended) {
    free(ended->bytes);
    free_routed(ended->sent);
    return free_object(ended);
}

static status deliver(const agent *agent, messages *map) {
    sim_wait_if_held(NIXL_SIM_TAKE);
    num_polls++;
    free(map->bytes);
    free_routed(map->sent);
    *map = arriving;
    arriving.count = 0;
    if (map->count == 0) take_routed(agent, map);
    map->bytes = calloc(1, map->size + 1);
    return map->bytes != NULL && !polls_fail ? SUCCESS : ERROR_BACKEND;
}

CAPI(get_notifs)(const agent *agent, messages *map,
                 const arguments *arguments) { return LOCKED(deliver(agent, map)); }

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
        strcpy(map->name, map->sent != NULL ? map->sent->from : SENDER);
    *name = map->name;
    return index < size ? SUCCESS : ERROR_NOT_FOUND;
}

/* The number of the first message of a sender. */
static bool find(const messages *map, const char *name, uint64_t *first) {
    *first = map->first;
    if (map->sent != NULL) return strcmp(name, map->sent->from) == 0;
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

CAPI(notif_map_get_notif)(const messages *map, const char *name, size_t index, const void **data,
                          size_t *size) {
    uint64_t number;
    if (!find(map, name, &number)) return ERROR_NOT_FOUND;
    if (map->sent != NULL) {
        const routed *message = map->sent;
        while (index-- > 0) message = message->next;
        *data = message->bytes;
        *size = message->size;
        return SUCCESS;
    }
    number += index;
    memcpy(map->bytes, &number, sizeof(number) < map->size ? sizeof(number) : map->size);
    *data = map->bytes;
    *size = map->size;
    return SUCCESS;
}

void nixl_sim_set_routing(int on) { LOCKED(routes = on != 0); }

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
