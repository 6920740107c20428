// SPDX-License-Identifier: Apache-2.0
// Streams and graphs of an engine's, on which it submits transfers.
#pragma once

#include "driver.h"

/* A stream in the primary context of a device, which it keeps alive. It does not wait for the default
   stream. */
typedef struct stream {
    int device;
    CUstream handle;
} stream;

void stream_open(stream *stream, int device);
/* With these CU_STREAM_*. */
void stream_open_with(stream *stream, int device, unsigned flags);
/* Destroys it; the driver does what is left on it. */
void stream_close(stream *stream);
/* Waits for all that is left on it. */
void stream_await(const stream *stream);
/* Between any memory that the device can access. */
void stream_copy(const stream *stream, uint64_t to, uint64_t from, size_t size);

void stream_begin_capture(const stream *stream, CUstreamCaptureMode mode);
/* The graph that was captured, which can be launched. */
CUgraphExec stream_end_capture(const stream *stream);
/* Ends the capture without a graph. */
void stream_drop_capture(const stream *stream);
/* Launches it on the stream, and waits for its end. */
void stream_launch(const stream *stream, CUgraphExec graph);
void stream_destroy_graph(const stream *stream, CUgraphExec graph);

/* A stream of a new context on the device, which is destroyed with that. */
CUstream stream_in_new_context(int device, CUcontext *context);
