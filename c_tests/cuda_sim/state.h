// SPDX-License-Identifier: Apache-2.0
// All that the stand-in driver knows, behind one lock.
#pragma once

#include "cuda_types.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MAX_DEVICES 16
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define NO_ORDINAL (-1)

/* The head of everything that is kept in a list. */
typedef struct node {
    struct node *next;
} node;

#define EACH(type, name, list) \
    for (type *name = (type *)(list); name != NULL; name = (type *)name->node.next)
/* The same where items are removed meanwhile. */
#define EACH_TO_REMOVE(type, name, list)                                                             \
    for (type *name = (type *)(list), *next_ = NULL;                                                 \
         name != NULL && (next_ = (type *)name->node.next, true); name = next_)

typedef struct CUctx_st context;
typedef struct CUstream_st stream;
typedef struct CUevent_st event;
typedef struct CUgraph_st graph;
struct mark;
struct piece;

/* How a stream is captured: see captures.h. */
typedef struct capture {
    CUstreamCaptureMode mode;
    pthread_t thread;
    bool is_invalid;
} capture;

struct CUstream_st {
    node node;
    context *context;
    struct piece *first, *last; /* what is left to do */
    CUresult error;   /* of work that failed, until a call reports it */
    bool destroyed;   /* and freed when nothing is left to do */
    bool is_blocking; /* it and the legacy default stream wait for each other */
    graph *captured;  /* what work goes into instead of being done */
    capture capture;  /* how, while there is that */
};

struct CUevent_st {
    node node;
    context *context;
    bool is_timed;
    struct mark *mark; /* what it stands for since it was recorded last; NULL before */
};

/* Kept for ever, so that a stale one is known for what it is. */
struct CUctx_st {
    node node;
    CUdevice device;
    uint64_t id; /* another each time a primary context comes back to life */
    bool is_primary;
    bool is_alive;
    uint32_t peers; /* devices whose plain memory its kernels reach, a bit for each */
    stream legacy;
    stream per_thread;
};

typedef struct device {
    int physical; /* its number before CUDA_VISIBLE_DEVICES */
    uint64_t used;
    uint64_t retains;
    context *primary; /* NULL until first retained */
} device;

/* Memory as such: a file in memory, and a mapping of it that only the stand-in uses. */
typedef struct memory {
    node node;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    CUdevice owner; /* NO_ORDINAL for host memory */
    int fd;
    unsigned char *bytes;
    size_t size;
    uint64_t references; /* to the handle */
    uint64_t spans;      /* that show it */
    bool is_accounted;   /* counts towards what its device has used */
} memory;

typedef enum span_kind {
    SPAN_ALLOCATION, SPAN_IPC, SPAN_MAPPING, SPAN_HOST_ALLOCATION, SPAN_REGISTRATION, } span_kind;

/* A range of addresses with memory behind it. */
typedef struct span {
    node node;
    span_kind kind;
    CUdeviceptr start;
    size_t size;
    memory *memory;       /* NULL for registrations and host allocations: they are their own bytes */
    context *context;     /* NULL for mappings */
    uint64_t buffer;      /* a number of its own */
    uint64_t openings;    /* of SPAN_IPC */
    bool is_managed;      /* of SPAN_ALLOCATION: its pages move between the host and devices */
    CUmemAccess_flags device_access[MAX_DEVICES]; /* of SPAN_MAPPING */
    CUmemAccess_flags host_access;
} span;

/* Addresses that were reserved for mappings. */
typedef struct reservation {
    node node;
    CUdeviceptr start;
    size_t size;
} reservation;

typedef struct state {
    pthread_mutex_t lock;
    pthread_cond_t work_done;
    pid_t initialised_in; /* 0 until cuInit */
    int num_devices;
    device devices[MAX_DEVICES];
    uint64_t memory_per_device;
    uint64_t last_number; /* of handles and buffers */
    uint64_t last_context_id;
    uint64_t illegal_accesses; /* by kernels and copies; never falls */
    uint64_t lost_with_context;
    bool no_peer_access;
    size_t allocation_offset; /* of the device's memory, behind a page */
    bool ipc_is_of_opener; /* what a pointer's ordinal says of memory opened by an IPC handle */
    node *contexts, *streams, *events, *memories, *spans, *reservations, *modules, *graphs;
} state;

extern state sim;

/* Holds the lock from here to the end of the scope. */
#define LOCKED __attribute__((cleanup(sim_unlock))) const bool is_locked_ = sim_lock()
bool sim_lock(void);
void sim_unlock(const bool *is_locked);

/* Zeroed memory: the stand-in has no use for a NULL. */
void *sim_allocate(size_t size);
/* Zeroed, at the head of a list. */
void *list_add(node **list, size_t size);
/* The item of this address; NULL if the list has none. */
void *list_find(node *list, const void *item);
uint64_t list_length(const node *list);
/* Unlinks and frees. */
void list_remove(node **list, node *item);
/* Unlinks an item whose address is a handle of the program's. The address is no new handle soon: a stale one
   is detected. */
void list_retire(node **list, node *item);
uint64_t next_number(void);

/* Ends the process with a sentence: where the real driver would crash. */
_Noreturn void sim_crash(const char *format, ...) __attribute__((format(printf, 1, 2)));
