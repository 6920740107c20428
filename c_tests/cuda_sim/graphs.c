// SPDX-License-Identifier: Apache-2.0
// Captures streams and launches graphs. Only the work of a single stream can be captured.
#include "graphs.h"

#include "captures.h"
#include "copying.h"
#include "kernels.h"

#include <stdlib.h>

/* Returns a copy of the work with a copy of its parameter. */
static work copy_of(const work *copied) {
    work copy = *copied;
    if (copied->blocks != NULL) copy.blocks = kernel_copy(copied->blocks);
    return copy;
}

void graph_add(graph *captured, const work *added) {
    if (added->kind == WORK_CHECKSUM) sim_crash("the checksum kernel is launched on a captured stream");
    if (added->kind == WORK_HOST) sim_crash("a host function is launched on a captured stream");
    work *works = realloc(captured->works, (captured->count + 1) * sizeof(*works));
    if (works == NULL) {
        sim_crash("no memory for a graph");
    }
    captured->works = works;
    captured->works[captured->count++] = *added;
}

static graph *find(const void *handle) {
    graph *found = list_find(sim.graphs, handle);
    if (found == NULL) sim_crash("%p is not a graph, or a destroyed one", handle);
    return found;
}

static void destroy(graph *ended) {
    for (size_t i = 0; i < ended->count; i++) work_free(&ended->works[i]);
    free(ended->works);
    record_release(ended->last_launch);
    list_remove(&ended->node);
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    DRIVER_CALL(cuStreamIsCapturing);
    TRY_GET(stream *, found, stream_find(handle, &found));
    INVALID_IF(status == NULL);
    RETURN_IF(captures_affect_legacy(found), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    *status = found->captured == NULL       ? CU_STREAM_CAPTURE_STATUS_NONE
              : found->capture.is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                          : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
    DRIVER_CALL(cuStreamBeginCapture_v2);
    TRY_GET(stream *, begun, stream_find(handle, &begun));
    RETURN_IF(handle == NULL || handle == CU_STREAM_LEGACY, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    INVALID_IF(begun->captured != NULL || (unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED);
    begun->captured = list_add(&sim.graphs, sizeof(graph));
    begun->capture = (capture){.mode = mode, .thread = pthread_self()};
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *captured) {
    DRIVER_CALL(cuStreamEndCapture);
    TRY_GET(stream *, ended, stream_find(handle, &ended));
    RETURN_IF(ended->captured == NULL || captured == NULL, CUDA_ERROR_ILLEGAL_STATE);
    *captured = ended->captured;
    ended->captured = NULL;
    if (ended->capture.is_invalid) {
        destroy(*captured);
        *captured = NULL;
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph handle, unsigned long long flags) {
    DRIVER_CALL(cuGraphInstantiateWithFlags);
    const graph *from = find(handle);
    INVALID_IF(executable == NULL || flags != 0);
    graph *made = list_add(&sim.graphs, sizeof(*made));
    for (size_t i = 0; i < from->count; i++) {
        const work copy = copy_of(&from->works[i]);
        graph_add(made, &copy);
    }
    *executable = (CUgraphExec)(void *)made;
    return CUDA_SUCCESS;
}

/* A launch begins when the previous launch is complete, on any stream. */
CUresult cuGraphLaunch(CUgraphExec handle, CUstream on) {
    DRIVER_CALL(cuGraphLaunch);
    graph *launched = find(handle);
    TRY_GET(stream *, found, find_healthy_stream(on, &found));
    if (!record_is_complete(launched->last_launch))
        queue_submit(&(work){.kind = WORK_WAIT, .stream = found,
                             .record = record_retain(launched->last_launch)});
    for (size_t i = 0; i < launched->count; i++) {
        work each = copy_of(&launched->works[i]);
        each.stream = found;
        queue_submit(&each);
    }
    record_release(launched->last_launch);
    launched->last_launch = record_create();
    queue_submit(&(work){.kind = WORK_RECORD, .stream = found,
                         .record = record_retain(launched->last_launch)});
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
    DRIVER_CALL(cuGraphExecDestroy);
    destroy(find(handle));
    return RELEASED(CUDA_SUCCESS);
}

CUresult cuGraphDestroy(CUgraph handle) {
    DRIVER_CALL(cuGraphDestroy);
    destroy(find(handle));
    return RELEASED(CUDA_SUCCESS);
}
