// SPDX-License-Identifier: Apache-2.0
// Records: points in the work of a stream. An event refers to its latest one.
#pragma once

#include "state.h"

/* Reference-counted, by the task that completes it, the tasks that wait for it, and the event. */
typedef struct record {
    uint64_t references;
    bool is_complete;
    const context *context; /* if the work of a context was recorded: the context, */
    uint64_t number;        /* and the number of the last task of the device then */
    CUresult error;      /* the error of its stream at completion */
    double completed_at; /* milliseconds of the monotonic clock */
} record;

/* Creates a record with one reference. */
record *record_create(void);
record *record_retain(record *held);
/* NULL is ignored. */
void record_release(record *released);
/* Marks the record as complete. Called when the work before it is complete. */
void record_complete(record *reached, CUresult error);
bool record_is_complete(const record *queried);
