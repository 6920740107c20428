// SPDX-License-Identifier: Apache-2.0
// The state of the stand-in driver, under one lock.
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

/* The first member of each type of which there are lists. */
typedef struct node {
    struct node *next;
    struct node **link; /* the pointer to it: that of the previous item, or the list */
} node;

#define EACH(type, name, list) \
    for (type *name = (type *)(list); name != NULL; name = (type *)name->node.next)
/* As EACH; the body may remove the item. */
#define EACH_TO_REMOVE(type, name, list)                                                             \
    for (type *name = (type *)(list), *next_ = NULL;                                                 \
         name != NULL && (next_ = (type *)name->node.next, true); name = next_)

typedef struct CUctx_st context;
typedef struct CUstream_st stream;
typedef struct CUevent_st event;
typedef struct CUgraph_st graph;
struct record;
struct task;

/* How a stream is captured; see captures.h. */
typedef struct capture {
    CUstreamCaptureMode mode;
    pthread_t thread;
    bool is_invalid;
} capture;

struct CUstream_st {
    node node;
    context *context;
    struct task *first, *last; /* the tasks that have not run */
    CUresult error;   /* of failed work, until a call reports it */
    bool destroyed;   /* it is freed when it has no tasks */
    bool is_blocking; /* it and the legacy default stream wait for each other */
    graph *captured;  /* while the stream is captured: the graph that its work is added to */
    capture capture;  /* valid while the stream is captured */
};

struct CUevent_st {
    node node;
    context *context;
    bool is_timed;
    struct record *record; /* the latest one; NULL if it was never recorded */
};

/* Never freed, so that the use of a destroyed context is detected. */
struct CUctx_st {
    node node;
    CUdevice device;
    uint64_t id; /* a primary context gets a new one each time it is created again */
    bool is_primary;
    bool is_alive;
    uint32_t peers; /* a bit for each device whose memory from cuMemAlloc its kernels may access */
    stream legacy;
    stream per_thread;
};

typedef struct device {
    int physical; /* its number on the machine, regardless of CUDA_VISIBLE_DEVICES */
    uint64_t used;
    uint64_t retains;
    context *primary; /* NULL until first retained */
} device;

/* Backing memory: a memfd, and a mapping of it that only the stand-in uses. */
typedef struct memory {
    node node;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    CUdevice owner; /* NO_ORDINAL for host memory */
    int fd;
    unsigned char *bytes;
    size_t size;
    uint64_t references; /* to the handle */
    uint64_t spans;      /* number of spans that map it */
    bool is_accounted;   /* its size is part of `used` of its device */
} memory;

typedef enum span_kind {
    SPAN_ALLOCATION, SPAN_IPC, SPAN_MAPPING, SPAN_HOST_ALLOCATION, SPAN_REGISTRATION, } span_kind;

/* A range of addresses that are mapped to memory. */
typedef struct span {
    node node;
    span_kind kind;
    CUdeviceptr start;
    size_t size;
    /* NULL for registrations and host allocations: the host accesses the bytes at `start` */
    memory *memory;
    context *context;     /* NULL for mappings */
    uint64_t buffer;      /* a unique number */
    uint64_t openings;    /* of SPAN_IPC */
    bool is_managed;      /* of SPAN_ALLOCATION: managed memory */
    CUmemAccess_flags device_access[MAX_DEVICES]; /* of SPAN_MAPPING */
    CUmemAccess_flags host_access;
} span;

/* A range of addresses that is reserved for mappings. */
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
    uint64_t illegal_accesses; /* by kernels and copies; never decreases */
    uint64_t lost_with_context;
    bool no_peer_access;
    size_t allocation_offset; /* of device memory in its first page */
    bool ipc_ordinal_of_opener; /* see sim_set_ipc_ordinal_of_opener */
    node *contexts, *streams, *events, *memories, *spans, *reservations, *modules, *linkers, *graphs;
} state;

extern state sim;

/* Holds the lock until the end of the scope. */
#define LOCKED __attribute__((cleanup(sim_unlock))) const bool is_locked_ = sim_lock()
bool sim_lock(void);
void sim_unlock(const bool *is_locked);

/* Allocates zeroed memory, and ends the process if there is none. */
void *sim_allocate(size_t size);
/* Allocates a zeroed item at the head of a list. */
void *list_add(node **list, size_t size);
/* Returns the item at this address, or NULL if it is not in the list. */
void *list_find(node *list, const void *item);
uint64_t list_length(const node *list);
/* Unlinks and frees. */
void list_remove(node *item);
/* Unlinks an item whose address the program has as a handle. The address is not reused for a while, so that
   the use of a destroyed handle is detected. */
void list_retire(node *item);
uint64_t next_number(void);

/* Ends the process with a message where the real driver would crash. */
_Noreturn void sim_crash(const char *format, ...) __attribute__((format(printf, 1, 2)));
