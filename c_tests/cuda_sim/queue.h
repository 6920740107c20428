// SPDX-License-Identifier: Apache-2.0
// Work on streams. Each stream has a queue, and nothing runs when it is submitted. The device runs a few
// tasks in each query, and runs tasks in each call that waits until its condition holds. order.h specifies
// the order.
#pragma once

#include "call.h"
#include "records.h"
#include "state.h"

typedef enum work_kind {
    WORK_COPY, WORK_FILL, WORK_RECORD, WORK_WAIT, WORK_LAUNCH, WORK_CHECKSUM, WORK_FAIL, WORK_HOST, } work_kind;

typedef struct work {
    node node;
    work_kind kind;
    stream *stream;
    CUdeviceptr destination, source; /* of WORK_COPY; WORK_FILL has no source */
    size_t size;
    unsigned char value; /* of WORK_FILL */
    record *record;      /* a reference; WORK_RECORD completes it, WORK_WAIT waits for it */
    /* of WORK_COPY: the bytes of its source if the call read them; otherwise NULL */
    const unsigned char *early;
    const struct kvmem_copy *blocks; /* of WORK_LAUNCH: a copy of the kernel's parameter */
    const struct kvmem_checksum *tiles; /* of WORK_CHECKSUM, likewise; graphs do not support it */
    CUresult error;      /* of WORK_FAIL: the planned failure */
    CUhostFn function;   /* of WORK_HOST, which passes it `data`; graphs do not support it */
    void *data;
} work;

/* Work in the queue of its stream. */
typedef struct task {
    node node;
    work work;
    uint64_t number; /* of all streams, in order of submission */
    bool destination_was_known, source_was_known;
} task;

/* Adds a copy of the work at the end of its stream's queue, or to the graph if the stream is captured. */
void queue_submit(const work *work);
/* Frees the buffers and the reference that the work owns. */
void work_free(const work *done);
/* Runs all tasks, and ends the hold. */
void queue_go(void);
/* Drops the tasks of a context's streams. Calls that wait for them continue. */
void queue_discard(context *of);

/* Called by queries: runs up to this number of tasks, unless work is held back, or that fraction of all tasks if there are more. So few queries
   complete much work, as a device would while a program that asks for it waits for a processor. */
#define TASKS_PER_QUERY 16
void queue_advance(void);
/* Runs the tasks of a context up to this number, unless work is held back: the device has executed them
 * since, however rarely the program queries it. Returns whether none is unfinished. */
bool queue_catch_up(const context *of, uint64_t number);
/* Returns whether a stream has no unfinished tasks; for the legacy default stream, whether the streams that
 * it waits for have none, either. */
bool queue_is_done(const stream *queried);

/* Run tasks, or block while work is held back, until the tasks that were submitted before the call are
 * complete: of a context (NULL for all), on a stream, before a record. */
/* The number of the last task that was submitted. */
uint64_t queue_last_number(void);
void queue_drain(const context *of);
void queue_wait_for_stream(const stream *stream);
void queue_wait_for_record(record *record);

/* Finds the stream of a handle, including NULL and the handles of the default streams. */
CUresult stream_find(CUstream handle, stream **found);
/* Returns the error of the stream, and clears it. */
CUresult stream_take_error(stream *stream);
/* The same for the first stream of a context that has an error. */
CUresult streams_take_error_of(context *context);

/* Destroy all streams or events of a context, and return their number. */
uint64_t streams_destroy_of(const context *context);
uint64_t events_destroy_of(const context *context);
/* Frees destroyed streams without tasks. */
void streams_sweep(void);
