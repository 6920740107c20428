// SPDX-License-Identifier: Apache-2.0
// A stand-in for NIXL's C API that knows of registered memory and of nothing else, for what NIXL does only when
// something is broken. A test whose environment names it gets it in place of NIXL.
#include "nixl_sim.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#define MOST_SPANS 256

typedef enum status { SUCCESS = 0, ERROR_BACKEND = -2, ERROR_INVALID_STATE = -3, ERROR_NOT_FOUND = -6 } status;

/* Memory that an agent knows. */
typedef struct span {
    void *agent;
    size_t address;
} span;

/* A list of spans; the library never puts more than one in it. */
typedef struct list {
    size_t address;
} list;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static span spans[MOST_SPANS];
static size_t num_spans;
static uint64_t failing_register;
static uint64_t failing_deregister;
static bool is_held;
static uint64_t num_waiting;

#define EXPORTED __attribute__((visibility("default")))
#define CAPI(name) EXPORTED int nixl_capi_##name

/* What has no business in the tests that use this. */
#define MISSING(name)                                                                                \
    CAPI(name)(void);                                                                                \
    CAPI(name)(void) {                                                                               \
        return ERROR_INVALID_STATE;                                                                  \
    }
MISSING(get_local_md) MISSING(load_remote_md) MISSING(invalidate_remote_md) MISSING(check_remote_md)
MISSING(send_local_md) MISSING(fetch_remote_md) MISSING(get_available_plugins)
MISSING(destroy_string_list) MISSING(string_list_size) MISSING(string_list_get)
MISSING(get_plugin_params) MISSING(destroy_mem_list) MISSING(destroy_params) MISSING(create_backend)
MISSING(destroy_backend) MISSING(create_opt_args) MISSING(destroy_opt_args) MISSING(opt_args_set_ip_addr)
MISSING(opt_args_set_port) MISSING(create_params) MISSING(params_add) MISSING(params_create_iterator)
MISSING(params_iterator_next) MISSING(params_destroy_iterator) MISSING(create_xfer_dlist)
MISSING(destroy_xfer_dlist) MISSING(xfer_dlist_add_desc) MISSING(prep_xfer_dlist)
MISSING(release_xfer_dlist_handle) MISSING(make_xfer_req) MISSING(create_xfer_req) MISSING(post_xfer_req)
MISSING(get_xfer_status) MISSING(release_xfer_req) MISSING(destroy_xfer_req) MISSING(gen_notif)
MISSING(create_notif_map) MISSING(destroy_notif_map) MISSING(get_notifs) MISSING(notif_map_size)
MISSING(notif_map_get_agent_at) MISSING(notif_map_get_notifs_size) MISSING(notif_map_get_notif)

CAPI(create_configured_agent)(const char *name, const void *config, void **agent);
CAPI(destroy_agent)(void *agent);
CAPI(create_reg_dlist)(int kind, list **made);
CAPI(destroy_reg_dlist)(list *ended);
CAPI(reg_dlist_add_desc)(list *list, size_t address, size_t size, uint64_t device, const void *data, size_t length);
CAPI(register_mem)(void *agent, const list *list, const void *options);
CAPI(deregister_mem)(void *agent, const list *list, const void *options);
EXPORTED bool nixl_capi_is_stub(void);

bool nixl_capi_is_stub(void) {
    return false;
}

CAPI(create_configured_agent)(const char *name, const void *config, void **agent) {
    (void)name;
    (void)config;
    *agent = malloc(1);
    return *agent != NULL ? SUCCESS : ERROR_BACKEND;
}

CAPI(destroy_agent)(void *agent) {
    free(agent);
    return SUCCESS;
}

CAPI(create_reg_dlist)(int kind, list **made) {
    (void)kind;
    *made = calloc(1, sizeof(list));
    return *made != NULL ? SUCCESS : ERROR_BACKEND;
}

CAPI(destroy_reg_dlist)(list *ended) {
    free(ended);
    return SUCCESS;
}

CAPI(reg_dlist_add_desc)(list *list, size_t address, size_t size, uint64_t device, const void *data, size_t length) {
    (void)size;
    (void)device;
    (void)data;
    (void)length;
    list->address = address;
    return SUCCESS;
}

/* Counts a call down to the one that is to fail. */
static bool fails(uint64_t *failing) {
    return *failing > 0 && --*failing == 0;
}

CAPI(register_mem)(void *agent, const list *list, const void *options) {
    (void)options;
    pthread_mutex_lock(&lock);
    const bool is_refused = fails(&failing_register) || num_spans == MOST_SPANS;
    if (!is_refused) {
        spans[num_spans++] = (span){agent, list->address};
    }
    pthread_mutex_unlock(&lock);
    return is_refused ? ERROR_BACKEND : SUCCESS;
}

static status deregister(const void *agent, size_t address) {
    num_waiting++;
    while (is_held) {
        pthread_cond_wait(&changed, &lock);
    }
    num_waiting--;
    if (fails(&failing_deregister)) {
        return ERROR_BACKEND;
    }
    for (size_t i = 0; i < num_spans; i++) {
        if (spans[i].agent == agent && spans[i].address == address) {
            spans[i] = spans[--num_spans];
            return SUCCESS;
        }
    }
    return ERROR_NOT_FOUND;
}

CAPI(deregister_mem)(void *agent, const list *list, const void *options) {
    (void)options;
    pthread_mutex_lock(&lock);
    const status answer = deregister(agent, list->address);
    pthread_mutex_unlock(&lock);
    return answer;
}

static void set(uint64_t *number, uint64_t value) {
    pthread_mutex_lock(&lock);
    *number = value;
    pthread_mutex_unlock(&lock);
}

void nixl_sim_fail_register(uint64_t nth) {
    set(&failing_register, nth);
}

void nixl_sim_fail_deregister(uint64_t nth) {
    set(&failing_deregister, nth);
}

static void set_held(bool held) {
    pthread_mutex_lock(&lock);
    is_held = held;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void nixl_sim_hold(void) {
    set_held(true);
}

void nixl_sim_go(void) {
    set_held(false);
}

uint64_t nixl_sim_waiting(void) {
    pthread_mutex_lock(&lock);
    const uint64_t waiting = num_waiting;
    pthread_mutex_unlock(&lock);
    return waiting;
}

uint64_t nixl_sim_registered(uint64_t address) {
    pthread_mutex_lock(&lock);
    uint64_t count = 0;
    for (size_t i = 0; i < num_spans; i++) {
        count += spans[i].address == address;
    }
    pthread_mutex_unlock(&lock);
    return count;
}
