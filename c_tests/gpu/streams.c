// SPDX-License-Identifier: Apache-2.0
// Each driver call is made with the device's primary context current. The caller's current context is
// unchanged.
#include "streams.h"

void stream_open(stream *stream, int device) { stream_open_with(stream, device, CU_STREAM_NON_BLOCKING); }

void stream_open_with(stream *stream, int device, unsigned flags) {
    *stream = (struct stream){.device = device};
    retain_device(device);
    CU_ON(device, cuStreamCreate(&stream->handle, flags));
}

void stream_close(stream *stream) {
    CU_ON(stream->device, cuStreamDestroy_v2(stream->handle));
    release_device(stream->device);
}

void stream_await(const stream *stream) { CU_ON(stream->device, cuStreamSynchronize(stream->handle)); }

void stream_copy(const stream *stream, uint64_t to, uint64_t from, size_t size) {
    CU_ON(stream->device, cuMemcpyAsync(to, from, size, stream->handle));
}

void stream_begin_capture(const stream *stream, CUstreamCaptureMode mode) {
    CU_ON(stream->device, cuStreamBeginCapture_v2(stream->handle, mode));
}

CUgraphExec stream_end_capture(const stream *stream) {
    enter_device(stream->device);
    CU_GET(CUgraph, graph, cuStreamEndCapture(stream->handle, &graph));
    CU_GET(CUgraphExec, executable, cuGraphInstantiateWithFlags(&executable, graph, 0));
    CU(cuGraphDestroy(graph));
    leave_device(stream->device);
    return executable;
}

void stream_drop_capture(const stream *stream) { stream_destroy_graph(stream, stream_end_capture(stream)); }

void stream_launch(const stream *stream, CUgraphExec graph) {
    CU_ON(stream->device, cuGraphLaunch(graph, stream->handle));
    stream_await(stream);
}

void stream_destroy_graph(const stream *stream, CUgraphExec graph) {
    CU_ON(stream->device, cuGraphExecDestroy(graph));
}

CUstream stream_in_new_context(int device, CUcontext *context) {
    CU(cuCtxCreate_v2(context, 0, device));
    CU_GET(CUstream, stream, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU_GET(CUcontext, popped, cuCtxPopCurrent_v2(&popped));
    return stream;
}
