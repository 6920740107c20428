// SPDX-License-Identifier: Apache-2.0
// A stand-in for NIXL's C API, for behaviour that NIXL shows only in case of a fault: agents, metadata that
// is only a name. Plugins, backends and queries are in backends.c, registered memory is in memory.c, requests
// are in requests.c, notifications are in notifications.c. A test whose environment names it gets it instead
// of NIXL.
#include "nixl_sim.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* NIXL's metadata: fields with the length of their values, each with a '|' after it. The backend of an agent
   is reached by the agent's number. */
#define METADATA "nixlSerDes|Agent"
#define PLUGIN "UCX"
typedef struct __attribute__((packed)) connections {
    char bar_of_name;
    char tag[5];
    uint64_t size;
    uint64_t count;
    char bar;
} connections;
typedef struct __attribute__((packed)) connection {
    char tag_of_plugin;
    uint64_t size_of_plugin;
    char plugin[3];
    char bar_of_plugin;
    char tag;
    uint64_t size;
    uint64_t number;
    char bar;
} connection;

pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t sim_changed = PTHREAD_COND_INITIALIZER;

EXPORTED bool nixl_capi_is_stub(void) { return false; }

/* NIXL's static objects: they exist from the first agent to the end of the process, and its agents need
   them. */
static uint64_t num_sent;
static bool is_over;
static uint64_t num_destroying;

static void require(bool is_met, const char *what) {
    if (is_met) return;
    fprintf(stderr, "the stand-in for NIXL: %s\n", what);
    _Exit(EXIT_FAILURE);
}

static void end_static_objects(void) {
    pthread_mutex_lock(&sim_lock);
    const bool is_hopeless = sim_is_held_forever(NIXL_SIM_DESTROY);
    require(num_destroying == 0 || is_hopeless, "its static objects end while an agent is being destroyed");
    is_over = true;
    pthread_mutex_unlock(&sim_lock);
}

static void begin_static_objects(void) { require(atexit(end_static_objects) == 0, "atexit failed"); }

CAPI(create_configured_agent)(const char *name, const void *config, agent **made) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static uint64_t num_created;
    pthread_once(&once, begin_static_objects);
    sim_pass(NIXL_SIM_CREATE);
    require(!LOCKED(is_over), "an agent is created after the end of its static objects");
    *made = calloc(1, sizeof(agent));
    if (*made == NULL || strlen(name) >= NAME_SIZE) return ERROR_BACKEND;
    strcpy((*made)->name, name);
    /* Other processes have other numbers. */
    (*made)->number = ((uint64_t)getpid() << 32) + LOCKED(++num_created);
    return SUCCESS;
}

CAPI(destroy_agent)(agent *ended) {
    pthread_mutex_lock(&sim_lock);
    require(!is_over, "an agent is destroyed after the end of its static objects");
    num_destroying++;
    sim_wait_if_held(NIXL_SIM_DESTROY);
    num_destroying--;
    sim_note_end_of_agent();
    pthread_mutex_unlock(&sim_lock);
    return free_object(ended);
}

bool sim_knows(const agent *agent, const char *name) {
    for (size_t i = 0; i < MAX_PEERS; i++) {
        if (strcmp(agent->peers[i].name, name) == 0) return true;
    }
    return strcmp(agent->name, name) == 0;
}

#define ANY 0 /* the number in metadata that can be that of any agent of the name */
static char disguise[NAME_SIZE];

void nixl_sim_disguise(const char *name) {
    pthread_mutex_lock(&sim_lock);
    strncpy(disguise, name, NAME_SIZE - 1);
    pthread_mutex_unlock(&sim_lock);
}

static status describe(const agent *agent, uint64_t count, void **data, size_t *size) {
    char name[NAME_SIZE];
    uint64_t number = agent->number;
    connections head = {'|', "Conns", sizeof(count), count, '|'};
    pthread_mutex_lock(&sim_lock);
    strcpy(name, disguise[0] != '\0' ? disguise : agent->name);
    if (disguise[0] != '\0') {
        head.tag[0] = '?';
        number = ANY;
    }
    disguise[0] = '\0';
    pthread_mutex_unlock(&sim_lock);
    const uint64_t length = strlen(name);
    const connection only = {'t', strlen(PLUGIN), PLUGIN, '|', 'c', sizeof(number), number, '|'};
    *size = strlen(METADATA) + sizeof(length) + length + sizeof(head) + count * sizeof(only);
    *data = malloc(*size);
    if (*data == NULL) return ERROR_BACKEND;
    char *to = mempcpy(*data, METADATA, strlen(METADATA));
    to = mempcpy(to, &length, sizeof(length));
    to = mempcpy(to, name, length);
    to = mempcpy(to, &head, sizeof(head));
    memcpy(to, &only, count * sizeof(only));
    return SUCCESS;
}

CAPI(get_local_md)(agent *agent, void **data, size_t *size) {
    sim_pass(NIXL_SIM_METADATA);
    return describe(agent, 1, data, size);
}

/* Metadata of another agent of the same name is refused. */
static status add_peer(agent *agent, const char *name, uint64_t number) {
    if (strcmp(agent->name, name) == 0) return ERROR_INVALID_PARAM;
    for (size_t i = 0; i < MAX_PEERS; i++) {
        if (strcmp(agent->peers[i].name, name) == 0)
            return number == ANY || agent->peers[i].number == number ? SUCCESS : ERROR_INVALID_PARAM;
    }
    for (size_t i = 0; i < MAX_PEERS; i++) {
        if (agent->peers[i].name[0] == '\0') {
            strcpy(agent->peers[i].name, name);
            agent->peers[i].number = number;
            return SUCCESS;
        }
    }
    return ERROR_BACKEND;
}

CAPI(load_remote_md)(agent *agent, const void *data, size_t size, char **name) {
    uint64_t length;
    connection only;
    const size_t before = strlen(METADATA) + sizeof(length);
    sim_pass(NIXL_SIM_LOAD);
    *name = NULL;
    if (size <= before || memcmp(data, METADATA, strlen(METADATA)) != 0) return ERROR_BACKEND;
    const char *text = (const char *)data + before;
    memcpy(&length, text - sizeof(length), sizeof(length));
    if (length >= NAME_SIZE || size - before != length + sizeof(connections) + sizeof(only))
        return ERROR_BACKEND;
    memcpy(&only, text + length + sizeof(connections), sizeof(only));
    char *copy = strndup(text, length);
    if (copy == NULL) return ERROR_BACKEND;
    const status outcome = LOCKED(add_peer(agent, copy, only.number));
    if (outcome == SUCCESS)
        *name = copy;
    else
        free(copy);
    return outcome;
}

CAPI(invalidate_remote_md)(agent *agent, const char *name) {
    status outcome = ERROR_NOT_FOUND;
    sim_pass(NIXL_SIM_INVALIDATE);
    pthread_mutex_lock(&sim_lock);
    for (size_t i = 0; i < MAX_PEERS; i++) {
        if (strcmp(agent->peers[i].name, name) == 0) {
            agent->peers[i].name[0] = '\0';
            outcome = SUCCESS;
        }
    }
    pthread_mutex_unlock(&sim_lock);
    return outcome;
}

static status check_peer(const agent *agent, const char *name) {
    return LOCKED(sim_knows(agent, name)) ? SUCCESS : ERROR_NOT_FOUND;
}

static uint64_t failing_check;

CAPI(check_remote_md)(agent *agent, const char *name, const void *list) {
    sim_pass(NIXL_SIM_CHECK);
    return LOCKED(sim_fails(&failing_check)) ? ERROR_BACKEND : check_peer(agent, name);
}

void nixl_sim_fail_check(uint64_t nth) { LOCKED(failing_check = nth); }

/* Without a connection, so that agents have no identity, which would be registered beside the memory of
   tests. */
CAPI(get_local_partial_md)(agent *agent, const void *list, void **data, size_t *size,
                           const arguments *arguments) {
    sim_pass(NIXL_SIM_METADATA);
    return describe(agent, 0, data, size);
}

/* It has no listen thread. */
RETURNS(send_local_md, ERROR_INVALID_STATE, agent *agent, const arguments *arguments)
RETURNS(fetch_remote_md, ERROR_INVALID_STATE, agent *agent, const char *name, const arguments *arguments)
RETURNS(send_local_partial_md, ERROR_INVALID_STATE, agent *agent, const void *list,
        const arguments *arguments)
RETURNS(invalidate_local_md, ERROR_INVALID_STATE, agent *agent, const arguments *arguments)

CAPI(agent_make_connection)(agent *agent, const char *name, const arguments *arguments) {
    sim_pass(NIXL_SIM_CONNECT);
    return check_peer(agent, name);
}

CAPI(create_opt_args)(arguments **made) {
    *made = calloc(1, sizeof(arguments));
    return *made != NULL ? SUCCESS : ERROR_BACKEND;
}

RETURNS(destroy_opt_args, free_object(ended), arguments *ended)

CAPI(opt_args_add_backend)(arguments *arguments, const backend *backend) {
    arguments->backend = backend;
    return SUCCESS;
}

RETURNS(opt_args_set_notif_msg, SUCCESS, arguments *arguments, const void *data, size_t size)
RETURNS(opt_args_set_has_notif, SUCCESS, arguments *arguments, bool has_notification)
RETURNS(opt_args_set_skip_desc_merge, SUCCESS, arguments *arguments, bool skips)
RETURNS(opt_args_set_ip_addr, SUCCESS, arguments *arguments, const char *address)
RETURNS(opt_args_set_port, SUCCESS, arguments *arguments, uint16_t port)
CAPI(gen_notif)(agent *agent, const char *peer, const void *data, size_t size, const arguments *arguments) {
    sim_pass(NIXL_SIM_NOTIFY);
    const status known = check_peer(agent, peer);
    pthread_mutex_lock(&sim_lock);
    num_sent++;
    if (known == SUCCESS) sim_route(agent, peer, data, size);
    pthread_mutex_unlock(&sim_lock);
    return known;
}

uint64_t nixl_sim_notifications_sent(void) { return LOCKED(num_sent); }
