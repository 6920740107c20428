// SPDX-License-Identifier: Apache-2.0
// The beginning and end of a driver call.
#include "call.h"

#include "captures.h"
#include "contexts.h"

#include <unistd.h>

const function_info functions[NUM_FUNCTIONS] = {
#define FUNCTION(name, need, manner, parameters) {#name, need, manner},
    CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/* In a forked child the driver is not initialised. */
static CUresult check_need(function which) {
    const need need = functions[which].need;
    RETURN_IF(need == NOTHING, CUDA_SUCCESS);
    RETURN_IF(sim.initialised_in != getpid(), CUDA_ERROR_NOT_INITIALIZED);
    const context *current = context_current();
    RETURN_IF(need == CONTEXT && current == NULL, CUDA_ERROR_INVALID_CONTEXT);
    RETURN_IF(need >= LIVE && current != NULL && !current->is_alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return captures_permit(which);
}

call call_begin(function which) {
    pthread_mutex_lock(&sim.lock);
    faults_wait_if_held(which);
    call begun = {.result = CUDA_SUCCESS};
    failure_time when = AT_ONCE;
    CUresult result = CUDA_SUCCESS;
    if (!faults_is_exempt()) resets_take(which == CALL_cuCtxGetId);
    if (!faults_take(which, &when, &result)) {
        begun.result = check_need(which);
    } else if (when == AT_ONCE) {
        begun.result = result;
    } else {
        begun.result = check_need(which);
        *(when == LATER ? &begun.later : &begun.afterwards) = result;
    }
    return begun;
}

void call_end(const call *call) {
    (void)call;
    pthread_mutex_unlock(&sim.lock);
}

CUresult call_released(const call *call, CUresult result) {
    return result == CUDA_SUCCESS ? call->afterwards : result;
}
