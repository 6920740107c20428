// SPDX-License-Identifier: Apache-2.0
// A stand-in for NIXL's C API, for what NIXL does only when something is broken: agents, backends, metadata that is only
// a name, and notifications that never come. Registered memory is in memory.c, requests are in requests.c.
// A test whose environment names it gets it instead of NIXL.
#include "nixl_sim.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METADATA "metadata of "

pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t sim_changed = PTHREAD_COND_INITIALIZER;
static const char *const plugins[NUM_PLUGINS] = {"POSIX", "UCX"};
static uint64_t num_polls;
static bool polls_fail;

CAPI(create_configured_agent)(const char *name, const void *config, agent **made);
CAPI(destroy_agent)(agent *ended);
CAPI(get_local_md)(agent *agent, void **data, size_t *size);
CAPI(load_remote_md)(agent *agent, const void *data, size_t size, char **name);
CAPI(invalidate_remote_md)(agent *agent, const char *name);
CAPI(check_remote_md)(agent *agent, const char *name, const void *list);
CAPI(send_local_md)(agent *agent, const arguments *arguments);
CAPI(fetch_remote_md)(agent *agent, const char *name, const arguments *arguments);
CAPI(get_available_plugins)(agent *agent, void **made);
CAPI(destroy_string_list)(void *list);
CAPI(string_list_size)(const void *list, size_t *size);
CAPI(string_list_get)(const void *list, size_t index, const char **text);
CAPI(get_plugin_params)(agent *agent, const char *name, void **memory, void **made);
CAPI(mem_list_size)(const void *list, size_t *size);
CAPI(mem_list_get)(const void *list, size_t index, unsigned *kind);
CAPI(destroy_mem_list)(void *list);
CAPI(destroy_params)(void *ended);
CAPI(create_backend)(agent *agent, const char *name, const void *params, backend **made);
CAPI(get_backend_params)(agent *agent, const backend *backend, void **memory, void **made);
CAPI(destroy_backend)(backend *ended);
CAPI(create_opt_args)(arguments **made);
CAPI(destroy_opt_args)(arguments *ended);
CAPI(opt_args_add_backend)(arguments *arguments, const backend *backend);
CAPI(opt_args_set_ip_addr)(arguments *arguments, const char *address);
CAPI(opt_args_set_port)(arguments *arguments, uint16_t port);
CAPI(create_params)(void **made);
CAPI(params_add)(void *params, const char *key, const char *value);
CAPI(params_create_iterator)(const void *params, void **made);
CAPI(params_iterator_next)(void *iterator, const char **key, const char **value, bool *has_next);
CAPI(params_destroy_iterator)(void *ended);
CAPI(gen_notif)(agent *agent, const char *peer, const void *data, size_t size, const arguments *arguments);
CAPI(create_notif_map)(void **made);
CAPI(destroy_notif_map)(void *ended);
CAPI(get_notifs)(const agent *agent, void *map, const arguments *arguments);
CAPI(notif_map_size)(const void *map, size_t *size);
CAPI(notif_map_get_agent_at)(const void *map, size_t index, const char **name);
CAPI(notif_map_get_notifs_size)(const void *map, const char *name, size_t *size);
CAPI(notif_map_get_notif)(const void *map, const char *name, size_t index, const void **data, size_t *size);
EXPORTED bool nixl_capi_is_stub(void);

bool nixl_capi_is_stub(void) {
    return false;
}

/* An object without contents. */
static status make_object(void **made) {
    *made = malloc(1);
    return *made != NULL ? SUCCESS : ERROR_BACKEND;
}

static status free_object(void *ended) {
    free(ended);
    return SUCCESS;
}

CAPI(create_configured_agent)(const char *name, const void *config, agent **made) {
    (void)config;
    *made = calloc(1, sizeof(agent));
    if (*made == NULL || strlen(name) >= NAME_SIZE) {
        return ERROR_BACKEND;
    }
    strcpy((*made)->name, name);
    return SUCCESS;
}

CAPI(destroy_agent)(agent *ended) {
    return free_object(ended);
}

bool sim_knows(const agent *agent, const char *name) {
    for (size_t i = 0; i < MOST_PEERS; i++) {
        if (strcmp(agent->peers[i], name) == 0) {
            return true;
        }
    }
    return strcmp(agent->name, name) == 0;
}

CAPI(get_local_md)(agent *agent, void **data, size_t *size) {
    *size = strlen(METADATA) + strlen(agent->name) + 1;
    *data = malloc(*size);
    if (*data == NULL) {
        return ERROR_BACKEND;
    }
    snprintf(*data, *size, "%s%s", METADATA, agent->name);
    return SUCCESS;
}

static status add_peer(agent *agent, const char *name) {
    if (sim_knows(agent, name)) {
        return SUCCESS;
    }
    for (size_t i = 0; i < MOST_PEERS; i++) {
        if (agent->peers[i][0] == '\0') {
            strcpy(agent->peers[i], name);
            return SUCCESS;
        }
    }
    return ERROR_BACKEND;
}

CAPI(load_remote_md)(agent *agent, const void *data, size_t size, char **name) {
    const char *text = data;
    const size_t before = strlen(METADATA);
    if (size <= before || text[size - 1] != '\0' || size - before > NAME_SIZE) {
        return ERROR_BACKEND;
    }
    pthread_mutex_lock(&sim_lock);
    const status outcome = add_peer(agent, text + before);
    pthread_mutex_unlock(&sim_lock);
    *name = outcome == SUCCESS ? strdup(text + before) : NULL;
    return *name != NULL ? SUCCESS : ERROR_BACKEND;
}

CAPI(invalidate_remote_md)(agent *agent, const char *name) {
    status outcome = ERROR_NOT_FOUND;
    pthread_mutex_lock(&sim_lock);
    for (size_t i = 0; i < MOST_PEERS; i++) {
        if (strcmp(agent->peers[i], name) == 0) {
            agent->peers[i][0] = '\0';
            outcome = SUCCESS;
        }
    }
    pthread_mutex_unlock(&sim_lock);
    return outcome;
}

CAPI(check_remote_md)(agent *agent, const char *name, const void *list) {
    (void)list;
    pthread_mutex_lock(&sim_lock);
    const bool is_known = sim_knows(agent, name);
    pthread_mutex_unlock(&sim_lock);
    return is_known ? SUCCESS : ERROR_NOT_FOUND;
}

/* It has no listen thread. */
CAPI(send_local_md)(agent *agent, const arguments *arguments) {
    (void)agent, (void)arguments;
    return ERROR_INVALID_STATE;
}

CAPI(fetch_remote_md)(agent *agent, const char *name, const arguments *arguments) {
    (void)agent, (void)name, (void)arguments;
    return ERROR_INVALID_STATE;
}

CAPI(get_available_plugins)(agent *agent, void **made) {
    (void)agent;
    return make_object(made);
}

CAPI(destroy_string_list)(void *list) {
    return free_object(list);
}

CAPI(string_list_size)(const void *list, size_t *size) {
    (void)list;
    *size = NUM_PLUGINS;
    return SUCCESS;
}

CAPI(string_list_get)(const void *list, size_t index, const char **text) {
    (void)list;
    *text = plugins[index];
    return SUCCESS;
}

CAPI(get_plugin_params)(agent *agent, const char *name, void **memory, void **made) {
    (void)agent, (void)name;
    return make_object(memory) == SUCCESS ? make_object(made) : ERROR_BACKEND;
}

static const unsigned kinds[] = {0, 1, 4}; /* host memory, GPU memory, files */

CAPI(mem_list_size)(const void *list, size_t *size) {
    (void)list;
    *size = sizeof(kinds) / sizeof(kinds[0]);
    return SUCCESS;
}

CAPI(mem_list_get)(const void *list, size_t index, unsigned *kind) {
    (void)list;
    *kind = kinds[index];
    return SUCCESS;
}

CAPI(destroy_mem_list)(void *list) {
    return free_object(list);
}

CAPI(destroy_params)(void *ended) {
    return free_object(ended);
}

CAPI(create_backend)(agent *agent, const char *name, const void *params, backend **made) {
    (void)params;
    for (size_t i = 0; i < NUM_PLUGINS; i++) {
        if (strcmp(plugins[i], name) == 0 && !agent->has_plugin[i]) {
            *made = malloc(sizeof(backend));
            if (*made == NULL) {
                return ERROR_BACKEND;
            }
            **made = (backend){agent, i};
            agent->has_plugin[i] = true;
            return SUCCESS;
        }
    }
    return ERROR_INVALID_PARAM;
}

CAPI(get_backend_params)(agent *agent, const backend *backend, void **memory, void **made) {
    return nixl_capi_get_plugin_params(agent, plugins[backend->plugin], memory, made);
}

CAPI(destroy_backend)(backend *ended) {
    return free_object(ended);
}

CAPI(create_opt_args)(arguments **made) {
    *made = calloc(1, sizeof(arguments));
    return *made != NULL ? SUCCESS : ERROR_BACKEND;
}

CAPI(destroy_opt_args)(arguments *ended) {
    return free_object(ended);
}

CAPI(opt_args_add_backend)(arguments *arguments, const backend *backend) {
    arguments->backend = backend;
    return SUCCESS;
}

CAPI(opt_args_set_ip_addr)(arguments *arguments, const char *address) {
    (void)arguments, (void)address;
    return SUCCESS;
}

CAPI(opt_args_set_port)(arguments *arguments, uint16_t port) {
    (void)arguments, (void)port;
    return SUCCESS;
}

CAPI(create_params)(void **made) {
    return make_object(made);
}

CAPI(params_add)(void *params, const char *key, const char *value) {
    (void)params, (void)key, (void)value;
    return SUCCESS;
}

CAPI(params_create_iterator)(const void *params, void **made) {
    (void)params;
    return make_object(made);
}

CAPI(params_iterator_next)(void *iterator, const char **key, const char **value, bool *has_next) {
    (void)iterator;
    *key = *value = NULL;
    *has_next = false;
    return SUCCESS;
}

CAPI(params_destroy_iterator)(void *ended) {
    return free_object(ended);
}

CAPI(gen_notif)(agent *agent, const char *peer, const void *data, size_t size, const arguments *arguments) {
    (void)data, (void)size;
    return nixl_capi_check_remote_md(agent, peer, arguments);
}

CAPI(create_notif_map)(void **made) {
    return make_object(made);
}

CAPI(destroy_notif_map)(void *ended) {
    return free_object(ended);
}

CAPI(get_notifs)(const agent *agent, void *map, const arguments *arguments) {
    (void)agent, (void)map, (void)arguments;
    pthread_mutex_lock(&sim_lock);
    num_polls++;
    const status outcome = polls_fail ? ERROR_BACKEND : SUCCESS;
    pthread_mutex_unlock(&sim_lock);
    return outcome;
}

CAPI(notif_map_size)(const void *map, size_t *size) {
    (void)map;
    *size = 0;
    return SUCCESS;
}

CAPI(notif_map_get_agent_at)(const void *map, size_t index, const char **name) {
    (void)map, (void)index, (void)name;
    return ERROR_NOT_FOUND;
}

CAPI(notif_map_get_notifs_size)(const void *map, const char *name, size_t *size) {
    (void)map, (void)name, (void)size;
    return ERROR_NOT_FOUND;
}

CAPI(notif_map_get_notif)(const void *map, const char *name, size_t index, const void **data, size_t *size) {
    (void)map, (void)name, (void)index, (void)data, (void)size;
    return ERROR_NOT_FOUND;
}

uint64_t nixl_sim_notification_polls(void) {
    pthread_mutex_lock(&sim_lock);
    const uint64_t polls = num_polls;
    pthread_mutex_unlock(&sim_lock);
    return polls;
}

void nixl_sim_set_notifications_fail(int fail) {
    pthread_mutex_lock(&sim_lock);
    polls_fail = fail != 0;
    pthread_mutex_unlock(&sim_lock);
}
