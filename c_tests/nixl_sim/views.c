// SPDX-License-Identifier: Apache-2.0
// Memory views of the stand-in.
#include "nixl_sim.h"
#include "sim.h"

/* A view; only the agent that has made it releases it. */
typedef struct view {
    const agent *owner;
} view;

static nixl_sim_views views;

static status prepare(const agent *agent, view **made) {
    sim_pass(NIXL_SIM_VIEW);
    *made = malloc(sizeof(view));
    if (*made == NULL) return ERROR_BACKEND;
    **made = (view){agent};
    LOCKED(views.alive++);
    return SUCCESS;
}

CAPI(prep_mem_view_local)(const agent *agent, const void *list, view **made, const arguments *arguments) {
    return prepare(agent, made);
}

CAPI(prep_mem_view_remote)(const agent *agent, const void *list, view **made, const arguments *arguments) {
    return prepare(agent, made);
}

CAPI(release_mem_view)(const agent *agent, view *ended) {
    sim_pass(NIXL_SIM_RELEASE_VIEW);
    if (ended->owner != agent) return ERROR_INVALID_PARAM;
    pthread_mutex_lock(&sim_lock);
    views.alive--;
    views.released++;
    pthread_mutex_unlock(&sim_lock);
    return free_object(ended);
}

RETURNS(remote_dlist_add_desc, SUCCESS, void *list, size_t address, size_t size, uint64_t device,
        const char *agent)

CAPI(create_remote_dlist)(int kind, void **made) { return make_object(made); }

CAPI(destroy_remote_dlist)(void *ended) { return free_object(ended); }

void sim_note_end_of_agent(void) { views.alive_at_end += views.alive; }

nixl_sim_views nixl_sim_get_views(void) { return LOCKED(views); }
