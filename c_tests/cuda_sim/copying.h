// SPDX-License-Identifier: Apache-2.0
// What every copy does: check both sides, then move the bytes now or on a stream.
#pragma once

#include "call.h"
#include "queue.h"
#include "reach.h"

typedef struct copy {
    CUdeviceptr destination, source;
    must_be destination_must_be, source_must_be;
    size_t size;
} copy;

/* The device that a copy runs on: that of the current context, or else of the stream. */
CUdevice copy_device(const stream *on);
CUresult copy_check(const copy *copy, CUdevice device);

/* Waits for the legacy default stream of the current context, as synchronous work does; tells its error. */
CUresult await_legacy_stream(void);
/* The stream of this handle, unless something failed on it before: that is told now. */
CUresult find_healthy_stream(CUstream handle, stream **found);
/* Submits the work, or in its place the failure that is planned for this call. */
void submit_or_fail(const work *work, const call *call);

/* Submits a copy that was checked. If that may be, its source is read now. */
void copy_submit(const copy *copy, stream *on, bool may_be_early, const call *call);
/* As the synchronous functions copy, and the asynchronous ones. */
CUresult copy_now(const copy *copy);
CUresult copy_on_stream(const copy *copy, CUstream stream, const call *call);
