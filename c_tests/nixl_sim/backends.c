// SPDX-License-Identifier: Apache-2.0
// Plugins of the stand-in, the backends that agents create from them, and what backends report about memory
// that they are queried for.
#include "nixl_sim.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>

enum { HOST, GPU, BLOCK, OBJECT, FILE_MEMORY };

#define MAX_KINDS 4

/* A plugin, and the kinds of memory that it accepts. */
static const struct plugin {
    const char *name;
    size_t num_kinds;
    unsigned kinds[MAX_KINDS];
} plugins[NUM_PLUGINS] = {
    {"AZURE_BLOB", 2, {HOST, OBJECT}},
    {"GUSLI", 2, {HOST, BLOCK}},
    {"OBJ", 2, {HOST, OBJECT}},
    {"POSIX", 4, {HOST, GPU, BLOCK, FILE_MEMORY}},
    {"UCX", 4, {HOST, GPU, BLOCK, FILE_MEMORY}},
};

/* The backend that all requests have; NUM_PLUGINS: none. */
static size_t chosen = NUM_PLUGINS;
static int query_outcome = NIXL_SIM_QUERY_FAILS;
static uint64_t num_queries[NUM_PLUGINS];

/* NUM_PLUGINS: there is none. */
static size_t plugin_named(const char *name) {
    size_t plugin = 0;
    while (plugin < NUM_PLUGINS && (name == NULL || strcmp(plugins[plugin].name, name) != 0)) plugin++;
    return plugin;
}

CAPI(get_available_plugins)(agent *agent, void **made) {
    sim_pass(NIXL_SIM_PLUGINS);
    return make_object(made);
}

RETURNS(destroy_string_list, free_object(list), void *list)

CAPI(string_list_size)(const void *list, size_t *size) {
    *size = NUM_PLUGINS;
    return SUCCESS;
}

CAPI(string_list_get)(const void *list, size_t index, const char **text) {
    *text = plugins[index].name;
    return SUCCESS;
}

/* A list of kinds is its plugin. */
CAPI(get_plugin_params)(agent *agent, const char *name, const struct plugin **memory, void **made) {
    const size_t plugin = plugin_named(name);
    if (plugin == NUM_PLUGINS) return ERROR_NOT_FOUND;
    *memory = &plugins[plugin];
    return make_object(made);
}

CAPI(mem_list_size)(const struct plugin *list, size_t *size) {
    *size = list->num_kinds;
    return SUCCESS;
}

CAPI(mem_list_get)(const struct plugin *list, size_t index, unsigned *kind) {
    *kind = list->kinds[index];
    return SUCCESS;
}

RETURNS(destroy_mem_list, SUCCESS, const struct plugin *list)

RETURNS(create_params, make_object(made), void **made)
RETURNS(params_add, SUCCESS, void *params, const char *key, const char *value)
RETURNS(destroy_params, free_object(ended), void *ended)
RETURNS(params_create_iterator, make_object(made), const void *params, void **made)

CAPI(params_iterator_next)(void *iterator, const char **key, const char **value, bool *has_next) {
    *key = *value = NULL;
    *has_next = false;
    return SUCCESS;
}

RETURNS(params_destroy_iterator, free_object(ended), void *ended)

static status make_backend(agent *agent, size_t plugin, backend **made) {
    *made = malloc(sizeof(backend));
    if (*made == NULL) return ERROR_BACKEND;
    **made = (backend){&agent->has_plugin[plugin], agent, plugin};
    return SUCCESS;
}

CAPI(create_backend)(agent *agent, const char *name, const void *params, backend **made) {
    const size_t plugin = plugin_named(name);
    sim_pass(NIXL_SIM_BACKEND);
    if (plugin == NUM_PLUGINS || agent->has_plugin[plugin]) return ERROR_INVALID_PARAM;
    const status outcome = make_backend(agent, plugin, made);
    agent->has_plugin[plugin] = outcome == SUCCESS;
    return outcome;
}

CAPI(get_backend_params)(agent *agent, const backend *backend, const struct plugin **memory, void **made) {
    sim_pass(NIXL_SIM_PARAMETERS);
    return nixl_capi_get_plugin_params(agent, plugins[backend->plugin].name, memory, made);
}

RETURNS(destroy_backend, free_object(ended), backend *ended)

CAPI(query_xfer_backend)(agent *agent, const void *request, backend **made) {
    sim_pass(NIXL_SIM_CHOSEN);
    const size_t plugin = LOCKED(chosen);
    return plugin < NUM_PLUGINS ? make_backend(agent, plugin, made) : ERROR_BACKEND;
}

RETURNS(create_query_resp_list, make_object(made), void **made)
RETURNS(destroy_query_resp_list, free_object(ended), void *ended)

/* The library has to name the backend. */
CAPI(query_mem)(agent *agent, const void *list, void *results, const arguments *arguments) {
    if (arguments == NULL || arguments->backend == NULL) return ERROR_INVALID_PARAM;
    pthread_mutex_lock(&sim_lock);
    sim_wait_if_held(NIXL_SIM_QUERY);
    num_queries[arguments->backend->plugin]++;
    const status outcome = query_outcome == NIXL_SIM_QUERY_FAILS ? ERROR_BACKEND : SUCCESS;
    pthread_mutex_unlock(&sim_lock);
    return outcome;
}

CAPI(query_resp_list_size)(const void *results, size_t *size) {
    *size = 1;
    return SUCCESS;
}

CAPI(query_resp_list_has_value)(const void *results, size_t index, bool *has_value) {
    *has_value = LOCKED(query_outcome) == NIXL_SIM_QUERY_EXISTS;
    return SUCCESS;
}

RETURNS(query_resp_list_get_params, make_object(params), const void *results, size_t index, void **params)

void nixl_sim_choose_backend(const char *plugin) { LOCKED(chosen = plugin_named(plugin)); }

void nixl_sim_set_query(int outcome) { LOCKED(query_outcome = outcome); }

uint64_t nixl_sim_queries(const char *plugin) { return LOCKED(num_queries[plugin_named(plugin)]); }
