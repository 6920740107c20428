// SPDX-License-Identifier: Apache-2.0
// Registered memory of the stand-in, and calls that fail or wait as the test requests.
#include "nixl_sim.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SPANS 256

/* Memory registered with a backend. */
typedef struct span {
    const agent *agent;
    size_t plugin;
    size_t address;
} span;

/* A list of spans; the library never uses more than one. */
typedef struct list {
    size_t address;
} list;

static span spans[MAX_SPANS];
static size_t num_spans;
static uint64_t failing_register;
static uint64_t failing_deregister;
static bool is_held[NIXL_SIM_NUM_CALLS];
static bool is_held_forever[NIXL_SIM_NUM_CALLS];
static bool holds_next[NIXL_SIM_NUM_CALLS];
static int (*asked)(const char *name);
static const char *const names[NIXL_SIM_NUM_CALLS] = {
    [NIXL_SIM_REGISTER] = "register", [NIXL_SIM_DEREGISTER] = "deregister", [NIXL_SIM_POST] = "post",
    [NIXL_SIM_DESTROY] = "destroy", [NIXL_SIM_CREATE] = "create", [NIXL_SIM_BACKEND] = "backend",
    [NIXL_SIM_PLUGINS] = "plugins", [NIXL_SIM_PARAMETERS] = "parameters", [NIXL_SIM_METADATA] = "metadata",
    [NIXL_SIM_LOAD] = "load", [NIXL_SIM_INVALIDATE] = "invalidate", [NIXL_SIM_CHECK] = "check",
    [NIXL_SIM_NOTIFY] = "notify", [NIXL_SIM_TAKE] = "take", [NIXL_SIM_QUERY] = "query",
    [NIXL_SIM_CONNECT] = "connect", [NIXL_SIM_PREPARE] = "prepare", [NIXL_SIM_RELEASE_LIST] = "release list",
    [NIXL_SIM_REQUEST] = "request", [NIXL_SIM_STATUS] = "status", [NIXL_SIM_RELEASE] = "release",
    [NIXL_SIM_CHOSEN] = "chosen", [NIXL_SIM_ESTIMATE] = "estimate", [NIXL_SIM_MEASURED] = "measured",
    [NIXL_SIM_VIEW] = "view", [NIXL_SIM_RELEASE_VIEW] = "release view",
};
static uint64_t num_goes;
static uint64_t num_waiting;

CAPI(create_reg_dlist)(int kind, list **made) {
    *made = calloc(1, sizeof(list));
    return *made != NULL ? SUCCESS : ERROR_BACKEND;
}

CAPI(destroy_reg_dlist)(list *ended) {
    free(ended);
    return SUCCESS;
}

CAPI(reg_dlist_add_desc)(list *list, size_t address, size_t size, uint64_t device, const void *data,
                         size_t length) {
    list->address = address;
    return SUCCESS;
}

bool sim_fails(uint64_t *failing) { return *failing > 0 && --*failing == 0; }

void sim_wait_if_held(int call) {
    num_waiting++;
    const uint64_t before = num_goes;
    const bool is_asked = asked != NULL && asked(names[call]);
    const bool is_chosen = holds_next[call] || is_asked;
    holds_next[call] = false;
    while (is_chosen && num_goes == before) pthread_cond_wait(&sim_changed, &sim_lock);
    while (is_held[call] || is_held_forever[call]) pthread_cond_wait(&sim_changed, &sim_lock);
    num_waiting--;
}

/* The library has to name the backend. */
CAPI(register_mem)(const agent *agent, const list *list, const arguments *arguments) {
    if (arguments == NULL || arguments->backend == NULL || arguments->backend->owner != agent)
        return ERROR_INVALID_PARAM;
    pthread_mutex_lock(&sim_lock);
    sim_wait_if_held(NIXL_SIM_REGISTER);
    const bool is_refused = sim_fails(&failing_register) || num_spans == MAX_SPANS;
    if (!is_refused) spans[num_spans++] = (span){agent, arguments->backend->plugin, list->address};
    pthread_mutex_unlock(&sim_lock);
    return is_refused ? ERROR_BACKEND : SUCCESS;
}

static status deregister(const agent *agent, size_t plugin, size_t address) {
    sim_wait_if_held(NIXL_SIM_DEREGISTER);
    if (sim_fails(&failing_deregister)) return ERROR_BACKEND;
    for (size_t i = 0; i < num_spans; i++) {
        if (spans[i].agent == agent && spans[i].plugin == plugin && spans[i].address == address) {
            spans[i] = spans[--num_spans];
            return SUCCESS;
        }
    }
    return ERROR_NOT_FOUND;
}

CAPI(deregister_mem)(const agent *agent, const list *list, const arguments *arguments) {
    if (arguments == NULL || arguments->backend == NULL || arguments->backend->owner != agent)
        return ERROR_INVALID_PARAM;
    return LOCKED(deregister(agent, arguments->backend->plugin, list->address));
}

void nixl_sim_fail_register(uint64_t nth) { LOCKED(failing_register = nth); }

void nixl_sim_fail_deregister(uint64_t nth) { LOCKED(failing_deregister = nth); }

void nixl_sim_hold(int call) { LOCKED(is_held[call] = true); }

void nixl_sim_ask(int (*is_held)(const char *name)) { LOCKED((asked = is_held) != NULL); }

void nixl_sim_hold_next(int call) { LOCKED(holds_next[call] = true); }

void nixl_sim_go(void) {
    pthread_mutex_lock(&sim_lock);
    memset(holds_next, 0, sizeof(holds_next));
    num_goes++;
    memset(is_held, 0, sizeof(is_held));
    pthread_cond_broadcast(&sim_changed);
    pthread_mutex_unlock(&sim_lock);
}

void nixl_sim_hold_forever(int call) { LOCKED(is_held_forever[call] = true); }

void sim_pass(int call) {
    pthread_mutex_lock(&sim_lock);
    sim_wait_if_held(call);
    pthread_mutex_unlock(&sim_lock);
}

bool sim_is_held_forever(int call) { return is_held_forever[call]; }

uint64_t nixl_sim_waiting(void) { return LOCKED(num_waiting); }

uint64_t nixl_sim_registered(uint64_t address) {
    pthread_mutex_lock(&sim_lock);
    uint64_t count = 0;
    for (size_t i = 0; i < num_spans; i++) count += spans[i].address == address;
    pthread_mutex_unlock(&sim_lock);
    return count;
}
