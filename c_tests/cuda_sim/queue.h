// SPDX-License-Identifier: Apache-2.0
// Work on streams: done when it is submitted, unless a test holds it back.
#ifndef CUDA_SIM_QUEUE_H
#define CUDA_SIM_QUEUE_H

#include "call.h"
#include "state.h"

typedef enum work_kind { WORK_COPY, WORK_FILL, WORK_RECORD, WORK_LAUNCH, WORK_CHECKSUM, WORK_FAIL } work_kind;

typedef struct work {
    node node;
    work_kind kind;
    stream *stream;
    CUdeviceptr destination, source; /* of WORK_COPY; WORK_FILL has no source */
    size_t size;
    unsigned char value; /* of WORK_FILL */
    event *event;        /* of WORK_RECORD */
    const struct kvmem_copy *blocks; /* of WORK_LAUNCH: a copy of the kernel's parameter */
    const struct kvmem_checksum *tiles; /* of WORK_CHECKSUM, likewise; it goes into no graph */
    CUresult error;      /* of WORK_FAIL: the work was to fail */
} work;

/* Does the work, or puts a copy of it behind all that waits; on a captured stream it goes into the graph. */
void queue_submit(const work *work);
/* Frees what it owns. */
void work_free(const work *done);
/* Does what waits, and holds nothing back any more. */
void queue_go(void);

/* Block until nothing waits: anywhere, on a stream, before an event. */
void queue_drain(void);
void queue_wait_for_stream(const stream *stream);
void queue_wait_for_event(const event *event);

/* The stream of this handle, NULL and the other special ones too; the result says why there is none. */
CUresult stream_find(CUstream handle, stream **found);
/* Notes the time. */
void event_happens(event *recorded);
/* What failed on it, which is then forgotten. */
CUresult stream_take_error(stream *stream);
/* The same for the first stream of a context on which something failed. */
CUresult streams_take_error_of(const context *context);

/* Destroy all that belong to a context, and answer how many. */
uint64_t streams_destroy_of(const context *context);
uint64_t events_destroy_of(const context *context);
/* Free destroyed ones that no work needs any more. */
void streams_sweep(void);
void events_sweep(void);

#endif
