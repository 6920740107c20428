// SPDX-License-Identifier: Apache-2.0
// Calls that are forbidden while streams are captured: in the capturing thread, unless its mode is RELAXED,
// and in every thread while the mode of a capture is GLOBAL. A thread may change its own mode. The list of
// functions was determined with driver 580.
#include "captures.h"

static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static bool is_forbidden(function which) {
    switch (which) {
    case CALL_cuEventQuery:
    case CALL_cuEventSynchronize:
    case CALL_cuStreamQuery:
    case CALL_cuStreamSynchronize:
    case CALL_cuMemAlloc_v2:
    case CALL_cuMemFree_v2:
    case CALL_cuMemHostAlloc:
    case CALL_cuMemFreeHost:
    case CALL_cuMemHostRegister_v2:
    case CALL_cuMemHostUnregister:
    case CALL_cuModuleUnload: return true;
    default: return false;
    }
}

static bool forbids(const stream *captured, function which) {
    if (captured->captured == NULL) return false;
    if (which == CALL_cuCtxSynchronize) {
        return true; /* in every mode */
    }
    const bool is_own = pthread_equal(captured->capture.thread, pthread_self());
    const CUstreamCaptureMode mode = captured->capture.mode;
    switch (thread_mode) {
    case CU_STREAM_CAPTURE_MODE_GLOBAL:
        return is_own ? mode != CU_STREAM_CAPTURE_MODE_RELAXED : mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    case CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: return is_own && mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    default: return false;
    }
}

CUresult captures_permit(function which) {
    RETURN_IF(!is_forbidden(which) && which != CALL_cuCtxSynchronize, CUDA_SUCCESS);
    CUresult result = CUDA_SUCCESS;
    EACH(stream, known, sim.streams) {
        if (forbids(known, which)) {
            known->capture.is_invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

bool captures_invalidate_of(const context *of) {
    bool any = false;
    EACH(stream, known, sim.streams) {
        if (known->context != of || known->captured == NULL) continue;
        known->capture.is_invalid = true;
        any = true;
    }
    return any;
}

bool captures_affect_legacy(const stream *queried) {
    bool any = false;
    if (queried != &queried->context->legacy) return false;
    EACH(stream, known, sim.streams) {
        any |= known->context == queried->context && known->is_blocking && known->captured != NULL;
    }
    return any;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    DRIVER_CALL(cuThreadExchangeStreamCaptureMode);
    INVALID_IF(mode == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED);
    const CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
