// SPDX-License-Identifier: Apache-2.0
// How a driver call begins and ends: the lock, the count, the failure on demand, what must be there before.
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

/* When a call fails on demand: at once, after it has let go, or when its work is done. */
typedef enum failing { AT_ONCE, AFTERWARDS, LATER } failing;

typedef struct call {
    CUresult result; /* the answer, when there is nothing to do */
    CUresult afterwards;
    CUresult later;
} call;

/* The first line of every driver function. The rest runs under the lock, which its end releases. */
#define DRIVER_CALL(name)                                                                            \
    const call this_call __attribute__((cleanup(call_end))) = call_begin(CALL_##name);               \
    if (this_call.result != CUDA_SUCCESS) {                                                          \
        return this_call.result;                                                                     \
    }                                                                                                \
    (void)0

/* The answer of a function that RELEASES: the one that is demanded, once it has let go. */
#define RELEASED(result) call_released(&this_call, (result))

call call_begin(function which);
void call_end(const call *call);
CUresult call_released(const call *call, CUresult result);

/* In primary_contexts.c: resets the device if that is planned before this call, and no thread has just checked a
   context. */
void resets_take(bool is_check);

/* In faults.c: counts the call and takes the failure that is planned for it. */
bool faults_is_spared(void);
/* Has a function fail from here on: "cuCtxCreate_v3 2". Under the lock. */
void faults_plan(const char *text);
bool faults_take(function which, failing *when, CUresult *result);

/* Ends a function with the result of a call that fails. */
#define TRY(call)                                                                                    \
    do {                                                                                             \
        const CUresult tried_ = (call);                                                              \
        RETURN_IF(tried_ != CUDA_SUCCESS, tried_);                                                   \
    } while (0)

/* Ends a function with CUDA_ERROR_INVALID_VALUE if the condition holds. */
#define INVALID_IF(condition) RETURN_IF(condition, CUDA_ERROR_INVALID_VALUE)

/* Ends a function with this result if the condition holds. */
#define RETURN_IF(condition, result)                                                                 \
    do {                                                                                             \
        if (condition) {                                                                             \
            return result;                                                                           \
        }                                                                                            \
    } while (0)
