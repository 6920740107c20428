// SPDX-License-Identifier: Apache-2.0
// Requests of the stand-in. They move bytes only if the test says so; they complete with the post, or stay in
// flight until the test completes them, and every step can fail.
#include "nixl_sim.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>

typedef enum state { IDLE, IN_FLIGHT, FAILED } state;

typedef struct range {
    unsigned char *address;
    size_t size;
} range;

typedef struct list {
    range *ranges;
    size_t count, capacity;
} list;

/* A prepared list, and the peer that it is of. */
typedef struct target {
    char name[NAME_SIZE];
    list list;
} target;

typedef struct request {
    state state;
    bool is_released;
    bool reads;
    char peer[NAME_SIZE];
    list local, remote;
} request;

static uint64_t failing_post;
static uint64_t failing_write;
static uint64_t failing_status;
static uint64_t failing_release;
static uint64_t completing_status;
static int pending; /* NIXL_SIM_PENDING_* */
static uint64_t moving;
static int spoiling; /* NIXL_SIM_SPOIL_* */
static uint64_t spoiled_size;
static nixl_sim_requests counts;

CAPI(create_xfer_dlist)(int kind, list **made) {
    *made = calloc(1, sizeof(list));
    return *made != NULL ? SUCCESS : ERROR_BACKEND;
}

CAPI(destroy_xfer_dlist)(list *ended) {
    free(ended->ranges);
    return free_object(ended);
}

static status add(list *list, range range) {
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity > 0 ? 2 * list->capacity : 16;
        struct range *ranges = realloc(list->ranges, capacity * sizeof(range));
        if (ranges == NULL) return ERROR_BACKEND;
        list->ranges = ranges;
        list->capacity = capacity;
    }
    list->ranges[list->count++] = range;
    return SUCCESS;
}

CAPI(xfer_dlist_add_desc)(list *list, size_t address, size_t size, uint64_t device) {
    return add(list, (range){(unsigned char *)address, size});
}

/* Some ranges of a list; all of them without indices. */
static status add_some(list *to, const list *from, const int *indices, size_t count) {
    status added = SUCCESS;
    for (size_t i = 0; i < count && added == SUCCESS; i++)
        added = add(to, from->ranges[indices != NULL ? (size_t)indices[i] : i]);
    return added;
}

CAPI(prep_xfer_dlist)(agent *agent, const char *name, const list *list, target **made,
                      const arguments *arguments) {
    sim_pass(NIXL_SIM_PREPARE);
    *made = calloc(1, sizeof(target));
    if (*made == NULL) return ERROR_BACKEND;
    snprintf((*made)->name, NAME_SIZE, "%s", name);
    if (add_some(&(*made)->list, list, NULL, list->count) == SUCCESS) return SUCCESS;
    free((*made)->list.ranges);
    free(*made);
    return ERROR_BACKEND;
}

CAPI(release_xfer_dlist_handle)(agent *agent, target *ended) {
    sim_pass(NIXL_SIM_RELEASE_LIST);
    free(ended->list.ranges);
    return free_object(ended);
}

static status make_request(request **made, const char *peer, int operation) {
    sim_pass(NIXL_SIM_REQUEST);
    *made = calloc(1, sizeof(request));
    if (*made == NULL) return ERROR_BACKEND;
    snprintf((*made)->peer, NAME_SIZE, "%s", peer);
    (*made)->reads = operation == 0;
    LOCKED(counts.alive++);
    return SUCCESS;
}

/* Frees a request whose lists do not fit in memory. */
static status fill_request(request *made, status local, status remote) {
    if (local == SUCCESS && remote == SUCCESS) return SUCCESS;
    free(made->local.ranges);
    free(made->remote.ranges);
    free(made);
    LOCKED(counts.alive--);
    return ERROR_BACKEND;
}

CAPI(make_xfer_req)(agent *agent, int operation, const target *local, const int *local_indices,
                    size_t num_local,
                    const target *remote, const int *remote_indices, size_t num_remote, request **made, const arguments *arguments) {
    if (make_request(made, remote->name, operation) != SUCCESS) return ERROR_BACKEND;
    return fill_request(*made, add_some(&(*made)->local, &local->list, local_indices, num_local),
                        add_some(&(*made)->remote, &remote->list, remote_indices, num_remote));
}

CAPI(create_xfer_req)(agent *agent, int operation, const list *local, const list *remote, const char *name,
                      request **made, const arguments *arguments) {
    if (!LOCKED(sim_knows(agent, name))) return ERROR_NOT_FOUND;
    if (make_request(made, name, operation) != SUCCESS) return ERROR_BACKEND;
    return fill_request(*made, add_some(&(*made)->local, local, NULL, local->count),
                        add_some(&(*made)->remote, remote, NULL, remote->count));
}

/* A network adapter reads and writes aligned words whole. kvmem keeps control words in registered memory,
   which threads of both agents access at once. */
static void move_bytes(unsigned char *to, const unsigned char *from, uint64_t size) {
    const uintptr_t misaligned = ((uintptr_t)to | (uintptr_t)from | size) % sizeof(uint64_t);
    if (misaligned != 0 || size > 4096) {
        memcpy(to, from, size);
        return;
    }
    for (uint64_t at = 0; at < size; at += sizeof(uint64_t)) {
        const uint64_t word = __atomic_load_n((const uint64_t *)(from + at), __ATOMIC_ACQUIRE);
        __atomic_store_n((uint64_t *)(to + at), word, __ATOMIC_RELEASE);
    }
}

/* Both agents are in this process. */
static void complete(request *request) {
    request->state = IDLE;
    if (moving == 0) return;
    moving--;
    uint64_t size = 0;
    for (size_t i = 0; i < request->local.count; i++) size += request->local.ranges[i].size;
    const int spoils = size >= spoiled_size ? spoiling : NIXL_SIM_SPOIL_NONE;
    if (spoils != NIXL_SIM_SPOIL_NONE) spoiling = NIXL_SIM_SPOIL_NONE;
    if (spoils == NIXL_SIM_SPOIL_SKIP) return;
    if (size > 4096) counts.bytes += size;
    for (size_t i = 0; i < request->local.count; i++) {
        const range here = request->local.ranges[i], there = request->remote.ranges[i];
        unsigned char *to = request->reads ? here.address : there.address;
        move_bytes(to, request->reads ? there.address : here.address, here.size);
        if (spoils == NIXL_SIM_SPOIL_DAMAGE && i == request->local.count / 2) to[here.size / 2] ^= 1;
    }
}

static bool stays_pending(const request *request) {
    return pending == NIXL_SIM_PENDING_ALL || (pending == NIXL_SIM_PENDING_READS && request->reads);
}

static status post(request *request) {
    sim_wait_if_held(NIXL_SIM_POST);
    counts.posts++;
    counts.last_poster = gettid();
    counts.reposts += request->state == FAILED;
    if (request->state == IN_FLIGHT || sim_fails(&failing_post) || (!request->reads && sim_fails(&failing_write))) {
        request->state = FAILED;
        return ERROR_BACKEND;
    }
    if (stays_pending(request)) {
        request->state = IN_FLIGHT;
        counts.in_flight++;
    } else {
        complete(request);
    }
    return stays_pending(request) ? IN_PROGRESS : SUCCESS;
}

CAPI(post_xfer_req)(agent *agent, request *request, const arguments *arguments) {
    return LOCKED(post(request));
}

/* Of a request in flight NIXL reports no end once its peer is not loaded any more. */
static status get_status(const agent *agent, request *request) {
    sim_wait_if_held(NIXL_SIM_STATUS);
    if (request->state == IN_FLIGHT && !sim_knows(agent, request->peer)) return ERROR_NOT_FOUND;
    if (request->state == IN_FLIGHT && sim_fails(&failing_status)) {
        request->state = FAILED;
        counts.in_flight--;
    } else if (request->state == IN_FLIGHT && (!stays_pending(request) || sim_fails(&completing_status))) {
        complete(request);
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
    free(ended->local.ranges);
    free(ended->remote.ranges);
    return free_object(ended);
}

void nixl_sim_fail_post(uint64_t nth) { LOCKED(failing_post = nth); }

void nixl_sim_fail_write(uint64_t nth) { LOCKED(failing_write = nth); }

void nixl_sim_fail_status(uint64_t nth) { LOCKED(failing_status = nth); }

void nixl_sim_fail_release(uint64_t nth) { LOCKED(failing_release = nth); }

void nixl_sim_complete_one(void) { LOCKED(completing_status = 1); }

void nixl_sim_set_pending(int which) { LOCKED(pending = which); }

void nixl_sim_set_moving(uint64_t requests) { LOCKED(moving = requests); }

void nixl_sim_spoil_next(int how, uint64_t size) {
    pthread_mutex_lock(&sim_lock);
    spoiling = how;
    spoiled_size = size;
    pthread_mutex_unlock(&sim_lock);
}

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
