// SPDX-License-Identifier: Apache-2.0
// Requests of the stand-in. They move no bytes; they complete with the post, or stay in flight until the test
// completes them, and every step can fail.
#include "nixl_sim.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>

typedef enum state { IDLE, IN_FLIGHT, FAILED } state;

/* The peer of a request, or of a prepared list. */
typedef struct target {
    char name[NAME_SIZE];
} target;

typedef struct request {
    state state;
    bool is_released;
    bool reads;
    target target;
} request;

static uint64_t failing_post;
static uint64_t failing_status;
static uint64_t failing_release;
static uint64_t completing_status;
static int pending; /* NIXL_SIM_PENDING_* */
static nixl_sim_requests counts;

static status make_list(void **made) {
    *made = malloc(1);
    return *made != NULL ? SUCCESS : ERROR_BACKEND;
}

CAPI(create_xfer_dlist)(int kind, void **made) { return make_list(made); }

CAPI(destroy_xfer_dlist)(void *ended) {
    free(ended);
    return SUCCESS;
}

CAPI(xfer_dlist_add_desc)(void *list, size_t address, size_t size, uint64_t device) { return SUCCESS; }

CAPI(prep_xfer_dlist)(agent *agent, const char *name, void *list, target **made, const arguments *arguments) {
    sim_pass(NIXL_SIM_PREPARE);
    *made = calloc(1, sizeof(target));
    if (*made == NULL) return ERROR_BACKEND;
    snprintf((*made)->name, NAME_SIZE, "%s", name);
    return SUCCESS;
}

CAPI(release_xfer_dlist_handle)(agent *agent, target *ended) {
    sim_pass(NIXL_SIM_RELEASE_LIST);
    free(ended);
    return SUCCESS;
}

static status make_request(request **made, const char *name, int operation) {
    sim_pass(NIXL_SIM_REQUEST);
    *made = calloc(1, sizeof(request));
    if (*made == NULL) return ERROR_BACKEND;
    snprintf((*made)->target.name, NAME_SIZE, "%s", name);
    (*made)->reads = operation == 0;
    LOCKED(counts.alive++);
    return SUCCESS;
}

CAPI(make_xfer_req)(agent *agent, int operation, void *local, const int *local_indices, size_t num_local,
                    const target *remote, const int *remote_indices, size_t num_remote, request **made, const arguments *arguments) {
    return make_request(made, remote->name, operation);
}

CAPI(create_xfer_req)(agent *agent, int operation, void *local, void *remote, const char *name,
                      request **made, const arguments *arguments) {
    return LOCKED(sim_knows(agent, name)) ? make_request(made, name, operation) : ERROR_NOT_FOUND;
}

static bool stays_pending(const request *request) {
    return pending == NIXL_SIM_PENDING_ALL || (pending == NIXL_SIM_PENDING_READS && request->reads);
}

static status post(request *request) {
    sim_wait_if_held(NIXL_SIM_POST);
    counts.posts++;
    counts.last_poster = gettid();
    counts.reposts += request->state == FAILED;
    if (request->state == IN_FLIGHT || sim_fails(&failing_post)) {
        request->state = FAILED;
        return ERROR_BACKEND;
    }
    request->state = stays_pending(request) ? IN_FLIGHT : IDLE;
    counts.in_flight += stays_pending(request);
    return stays_pending(request) ? IN_PROGRESS : SUCCESS;
}

CAPI(post_xfer_req)(agent *agent, request *request, const arguments *arguments) {
    return LOCKED(post(request));
}

/* Of a request in flight NIXL reports no end once its peer is not loaded any more. */
static status get_status(const agent *agent, request *request) {
    sim_wait_if_held(NIXL_SIM_STATUS);
    if (request->state == IN_FLIGHT && !sim_knows(agent, request->target.name)) return ERROR_NOT_FOUND;
    if (request->state == IN_FLIGHT && sim_fails(&failing_status)) {
        request->state = FAILED;
        counts.in_flight--;
    } else if (request->state == IN_FLIGHT && (!stays_pending(request) || sim_fails(&completing_status))) {
        request->state = IDLE;
        counts.in_flight--;
    }
    switch (request->state) {
    case IN_FLIGHT: return IN_PROGRESS;
    case FAILED: return ERROR_BACKEND;
    default: return SUCCESS;
    }
}

CAPI(get_xfer_status)(agent *agent, request *request) { return LOCKED(get_status(agent, request)); }

CAPI(release_xfer_req)(agent *agent, request *request) {
    pthread_mutex_lock(&sim_lock);
    sim_wait_if_held(NIXL_SIM_RELEASE);
    const bool fails = request->is_released || sim_fails(&failing_release);
    if (!fails) {
        counts.in_flight -= request->state == IN_FLIGHT;
        counts.alive--;
        request->is_released = true;
    }
    pthread_mutex_unlock(&sim_lock);
    return fails ? ERROR_BACKEND : SUCCESS;
}

CAPI(destroy_xfer_req)(request *ended) {
    if (!ended->is_released) return ERROR_INVALID_STATE;
    free(ended);
    return SUCCESS;
}

void nixl_sim_fail_post(uint64_t nth) { LOCKED(failing_post = nth); }

void nixl_sim_fail_status(uint64_t nth) { LOCKED(failing_status = nth); }

void nixl_sim_fail_release(uint64_t nth) { LOCKED(failing_release = nth); }

void nixl_sim_complete_one(void) { LOCKED(completing_status = 1); }

void nixl_sim_set_pending(int which) { LOCKED(pending = which); }

nixl_sim_requests nixl_sim_get_requests(void) { return LOCKED(counts); }

/* It neither estimates nor measures. */
CAPI(estimate_xfer_cost)(agent *agent, const request *request, const arguments *arguments, int64_t *duration,
                         int64_t *margin, unsigned *method) {
    sim_pass(NIXL_SIM_ESTIMATE);
    return ERROR_BACKEND;
}

CAPI(get_xfer_telemetry)(agent *agent, const request *request, void *telemetry) {
    sim_pass(NIXL_SIM_MEASURED);
    return ERROR_BACKEND;
}
