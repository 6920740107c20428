// SPDX-License-Identifier: Apache-2.0
// Streams and graphs of an engine, on which it submits transfers.
#pragma once

#include "driver.h"

/* A non-blocking stream in the primary context of a device, which it retains. */
typedef struct stream {
    int device;
    CUstream handle;
} stream;

void stream_open(stream *stream, int device);
/* With these CU_STREAM_* flags. */
void stream_open_with(stream *stream, int device, unsigned flags);
/* Destroys it; the driver still runs its work. */
void stream_close(stream *stream);
/* Waits for all of its work. */
void stream_await(const stream *stream);
/* Between any memory that the device can access. */
void stream_copy(const stream *stream, uint64_t to, uint64_t from, size_t size);

void stream_begin_capture(const stream *stream, CUstreamCaptureMode mode);
/* Ends the capture, and returns an executable graph. */
CUgraphExec stream_end_capture(const stream *stream);
/* Ends the capture without a graph. */
void stream_drop_capture(const stream *stream);
/* Launches the graph on the stream, and waits for its end. */
void stream_launch(const stream *stream, CUgraphExec graph);
void stream_destroy_graph(const stream *stream, CUgraphExec graph);

/* Returns a stream of a new context on the device, which is destroyed with the context. */
CUstream stream_in_new_context(int device, CUcontext *context);
