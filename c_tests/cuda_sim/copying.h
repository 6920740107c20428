// SPDX-License-Identifier: Apache-2.0
// Common to all copies: check both ranges, then copy the bytes now or on a stream.
#pragma once

#include "call.h"
#include "queue.h"
#include "reach.h"

typedef struct copy {
    CUdeviceptr destination, source;
    must_be destination_must_be, source_must_be;
    size_t size;
} copy;

/* Returns the device that a copy runs on: that of the current context; without one, that of the stream. */
CUdevice copy_device(const stream *on);
CUresult copy_check(const copy *copy, CUdevice device);

/* Waits for the legacy default stream of the current context, as synchronous work does, and returns its
   error. */
CUresult await_legacy_stream(void);
/* Finds the stream of a handle. Fails with the error of earlier work on it, if there is one. */
CUresult find_healthy_stream(CUstream handle, stream **found);
/* Submits the work, or, if a failure of the work is planned for this call, that failure. */
void submit_or_fail(const work *work, const call *call);

/* Submits a checked copy. Reads its source now if may_read_early. */
void copy_submit(const copy *copy, stream *on, bool may_read_early, const call *call);
/* Copies of the synchronous and the asynchronous functions. */
CUresult copy_now(const copy *copy);
CUresult copy_on_stream(const copy *copy, CUstream stream, const call *call);
