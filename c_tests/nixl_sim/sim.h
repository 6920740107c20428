// SPDX-License-Identifier: Apache-2.0
// What the files of the stand-in share: its objects, its one lock, and calls that fail or wait on demand.
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOST_PEERS 8
#define NUM_PLUGINS 2
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

/* A plugin of one agent. */
typedef struct backend {
    agent *owner;
    size_t plugin;
} backend;

struct agent {
    char name[NAME_SIZE];
    bool has_plugin[NUM_PLUGINS];
    char peers[MOST_PEERS][NAME_SIZE]; /* "" is free */
};

/* Optional arguments; the library names at most one backend. */
typedef struct arguments {
    const backend *backend;
} arguments;

extern pthread_mutex_t sim_lock;
extern pthread_cond_t sim_changed;

/* Whether the agent has loaded metadata of this name, or has it itself. With the lock held. */
bool sim_knows(const agent *agent, const char *name);
/* Counts a call down to the one that fails. With the lock held. */
bool sim_fails(uint64_t *failing);
/* Waits if calls of this kind are held. With the lock held. */
void sim_pass(int call);
/* Whether such a call never returns. With the lock held. */
bool sim_is_held_for_ever(int call);

/* The value of an expression, computed with the lock held. */
#define LOCKED(expression)                                                                           \
    __extension__({                                                                                  \
        pthread_mutex_lock(&sim_lock);                                                               \
        const __typeof__(expression) value = (expression);                                           \
        pthread_mutex_unlock(&sim_lock);                                                             \
        value;                                                                                       \
    })

/* Not every function needs all that NIXL's has. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define EXPORTED __attribute__((visibility("default")))
#define CAPI(name) EXPORTED int nixl_capi_##name
