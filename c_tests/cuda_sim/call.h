// SPDX-License-Identifier: Apache-2.0
// The beginning and end of each driver call: the lock, the count, the planned failure, the preconditions.
#pragma once

#include "cuda_api.h"
#include "state.h"

typedef enum function {
#define FUNCTION(name, need, manner, parameters) CALL_##name,
    CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
    NUM_FUNCTIONS, } function;

typedef enum need { NOTHING, DRIVER, HANDLE, LIVE, CONTEXT } need;
typedef enum manner { ACTS, RELEASES, SUBMITS } manner;

typedef struct function_info {
    const char *name;
    need need;
    manner manner;
} function_info;
extern const function_info functions[NUM_FUNCTIONS];

/* When a call fails on demand: without effect, after it has released, or after its work has run. */
typedef enum failure_time { AT_ONCE, AFTERWARDS, LATER } failure_time;

typedef struct call {
    CUresult result;     /* if not CUDA_SUCCESS, the call returns it without effect */
    CUresult afterwards; /* the result after the function has released */
    CUresult later;      /* the result of the submitted work */
} call;

/* The first line of every driver function. The rest runs under the lock, which is released when it
   returns. */
#define DRIVER_CALL(name)                                                                            \
    const call this_call __attribute__((cleanup(call_end))) = call_begin(CALL_##name);               \
    if (this_call.result != CUDA_SUCCESS) {                                                          \
        return this_call.result;                                                                     \
    }                                                                                                \
    (void)0

/* The result of a function that RELEASES: the planned failure if there is one. */
#define RELEASED(result) call_released(&this_call, (result))

call call_begin(function which);
void call_end(const call *call);
CUresult call_released(const call *call, CUresult result);

/* In primary_contexts.c: resets the device if a reset is planned before this call and no thread is between a
   check of a context and its use. */
void resets_take(bool is_check);

/* In faults.c. Returns whether sim_exempt_thread applies to the calling thread. */
bool faults_is_exempt(void);
/* Blocks the call if a test holds it. */
void faults_wait_if_held(function which);
/* Makes every call of a function fail; `text` is its name and the result: "cuCtxCreate_v3 2". Under the
   lock. */
void faults_plan(const char *text);
/* Counts the call. Returns whether a failure is planned for it, and which. */
bool faults_take(function which, failure_time *when, CUresult *result);

/* Returns from the function with the result of the call if it fails. */
#define TRY(call)                                                                                    \
    do {                                                                                             \
        const CUresult tried_ = (call);                                                              \
        RETURN_IF(tried_ != CUDA_SUCCESS, tried_);                                                   \
    } while (0)

/* Declares a pointer that such a call sets: `TRY_GET(stream *, on, stream_find(handle, &on));`. */
#define TRY_GET(type, name, call)                                                                    \
    type name = NULL;                                                                                \
    TRY(call)

/* Returns CUDA_ERROR_INVALID_VALUE if the condition holds. */
#define INVALID_IF(condition) RETURN_IF(condition, CUDA_ERROR_INVALID_VALUE)

/* Returns this result if the condition holds. */
#define RETURN_IF(condition, result)                                                                 \
    do {                                                                                             \
        if (condition) {                                                                             \
            return result;                                                                           \
        }                                                                                            \
    } while (0)
