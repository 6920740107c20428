// SPDX-License-Identifier: Apache-2.0
// What the files of the stand-in share: its objects, its only lock, and calls that fail or wait on request.
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define MAX_PEERS 8
#define NUM_PLUGINS 5
#define NAME_SIZE 64

typedef enum status {
    SUCCESS = 0,
    IN_PROGRESS = 1,
    ERROR_INVALID_PARAM = -1,
    ERROR_BACKEND = -2,
    ERROR_INVALID_STATE = -3,
    ERROR_NOT_FOUND = -6
} status;

typedef struct agent agent;

/* A handle of a backend: NIXL makes one each time it returns a backend. Handles of the same backend begin
   with the same pointer, as NIXL's do. */
typedef struct backend {
    const void *engine;
    agent *owner;
    size_t plugin;
} backend;

struct agent {
    char name[NAME_SIZE];
    bool has_plugin[NUM_PLUGINS];
    uint64_t number;                  /* which no other agent has */
    struct {
        char name[NAME_SIZE]; /* "": free */
        uint64_t number;
    } peers[MAX_PEERS];
};

/* Optional arguments; the library names at most one backend. */
typedef struct arguments {
    const backend *backend;
} arguments;

extern pthread_mutex_t sim_lock;
extern pthread_cond_t sim_changed;

/* Whether this is the agent's own name, or that of loaded metadata. The caller holds the lock. */
bool sim_knows(const agent *agent, const char *name);
/* Counts down to the call that fails. The caller holds the lock. */
bool sim_fails(uint64_t *failing);
/* Waits while calls of this kind are blocked. The caller holds the lock. */
void sim_wait_if_held(int call);
/* The same without the lock. */
void sim_pass(int call);
/* Passes a notification on, if notifications are routed. The caller holds the lock. */
void sim_route(const agent *from, const char *to, const void *data, size_t size);
/* Counts the memory views that an agent leaves. The caller holds the lock. */
void sim_note_end_of_agent(void);
/* Whether such a call never returns. The caller holds the lock. */
bool sim_is_held_forever(int call);

/* The value of an expression, computed with the lock held. */
#define LOCKED(expression)                                                                           \
    __extension__({                                                                                  \
        pthread_mutex_lock(&sim_lock);                                                               \
        const __typeof__(expression) value = (expression);                                           \
        pthread_mutex_unlock(&sim_lock);                                                             \
        value;                                                                                       \
    })

/* Not every function uses all parameters of NIXL's. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define EXPORTED __attribute__((visibility("default")))
#define CAPI(name) EXPORTED int nixl_capi_##name

/* A function that only returns a status. */
#define RETURNS(name, result, ...)                                                                   \
    CAPI(name)(__VA_ARGS__) {                                                                        \
        return result;                                                                               \
    }

/* An object without contents. */
static inline status make_object(void **made) {
    *made = malloc(1);
    return *made != NULL ? SUCCESS : ERROR_BACKEND;
}

static inline status free_object(void *ended) {
    free(ended);
    return SUCCESS;
}
