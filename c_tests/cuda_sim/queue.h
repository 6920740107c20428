// SPDX-License-Identifier: Apache-2.0
// Work on streams. Each stream has a queue of its own, and nothing is done when it is submitted: the device
// gets on with it when somebody looks (a query: a few pieces further) or waits, in the order that order.h
// tells of.
#pragma once

#include "call.h"
#include "marks.h"
#include "state.h"

typedef enum work_kind {
    WORK_COPY, WORK_FILL, WORK_RECORD, WORK_WAIT, WORK_LAUNCH, WORK_CHECKSUM, WORK_FAIL, } work_kind;

typedef struct work {
    node node;
    work_kind kind;
    stream *stream;
    CUdeviceptr destination, source; /* of WORK_COPY; WORK_FILL has no source */
    size_t size;
    unsigned char value; /* of WORK_FILL */
    mark *mark;          /* held; WORK_RECORD reaches it, WORK_WAIT waits for it */
    const unsigned char *early; /* of WORK_COPY: its source as it was, where it was read at the call */
    const struct kvmem_copy *blocks; /* of WORK_LAUNCH: a copy of the kernel's parameter */
    const struct kvmem_checksum *tiles; /* of WORK_CHECKSUM, likewise; it goes into no graph */
    CUresult error;      /* of WORK_FAIL: the work was to fail */
} work;

/* Work on its stream's queue. */
typedef struct piece {
    node node;
    work work;
    uint64_t number; /* from one for all streams: later pieces have greater ones */
    bool knew_destination, knew_source;
} piece;

/* Puts a copy of the work at the end of its stream's queue; on a captured stream it goes into the graph. */
void queue_submit(const work *work);
/* Frees what it owns. */
void work_free(const work *done);
/* Does what waits, and holds nothing back any more. */
void queue_go(void);
/* Drops what a context's streams have not done: what waits for it goes on. */
void queue_discard(context *of);

/* Somebody looks: the device does so many pieces of what is left, unless all is held back. */
#define PIECES_A_LOOK 16
void queue_look(void);
/* Whether all that a stream was given until now is done; for the legacy default stream also all that it
 * waits for. */
bool queue_is_done(const stream *asked);

/* Have the device work, or block while all is held back, until that is done which was there at the call: of a
 * context (NULL for all), on a stream, before a mark. */
void queue_drain(const context *of);
void queue_wait_for_stream(const stream *stream);
void queue_wait_for_mark(mark *mark);

/* The stream of this handle, NULL and the other special ones too; the result says why there is none. */
CUresult stream_find(CUstream handle, stream **found);
/* What failed on it, which is then forgotten. */
CUresult stream_take_error(stream *stream);
/* The same for the first stream of a context on which something failed. */
CUresult streams_take_error_of(context *context);

/* Destroy all that belong to a context, and answer how many. */
uint64_t streams_destroy_of(const context *context);
uint64_t events_destroy_of(const context *context);
/* Frees destroyed ones that have no work any more. */
void streams_sweep(void);
