// SPDX-License-Identifier: Apache-2.0
// The primary context of each device: one per process, reference-counted. When it is created again, it has
// the same address and another id.
#include "call.h"
#include "contexts.h"
#include "cuda_sim.h"
#include "devices.h"
#include "queue.h"

static context *activate_primary(CUdevice device) {
    context **primary = &sim.devices[device].primary;
    if (*primary == NULL) {
        *primary = context_create(device);
        (*primary)->is_primary = true;
    }
    if (!(*primary)->is_alive) {
        (*primary)->is_alive = true;
        (*primary)->id = ++sim.last_context_id;
    }
    return *primary;
}

static void destroy_if_alive(context *primary) {
    if (primary != NULL && primary->is_alive) context_destroy(primary);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    DRIVER_CALL(cuDevicePrimaryCtxRetain);
    INVALID_IF(context == NULL);
    RETURN_IF(!device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    *context = activate_primary(device);
    sim.devices[device].retains++;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    DRIVER_CALL(cuDevicePrimaryCtxRelease_v2);
    RETURN_IF(!device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    RETURN_IF(sim.devices[device].retains == 0, CUDA_ERROR_INVALID_CONTEXT);
    sim.devices[device].retains--;
    if (sim.devices[device].retains == 0) destroy_if_alive(sim.devices[device].primary);
    return RELEASED(CUDA_SUCCESS);
}

/* The references remain, but the context is destroyed until the next retain. */
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    DRIVER_CALL(cuDevicePrimaryCtxReset_v2);
    RETURN_IF(!device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    destroy_if_alive(sim.devices[device].primary);
    return RELEASED(CUDA_SUCCESS);
}

/* Drops work in flight. */
static void reset_at_once(context *primary) {
    if (primary != NULL && primary->is_alive) {
        queue_discard(primary);
        context_destroy(primary);
    }
}

/* Calls until the planned reset; 0 if none is planned. */
static uint64_t calls_to_reset;
static bool is_retained_then;
/* Plans so far, and the threads whose last call since the plan was a check. */
static uint64_t num_plans, num_checked;
static _Thread_local uint64_t checked_for_plan;
/* The last plan during which this thread made a call. Needed because a thread may have made a check just
   before. */
static _Thread_local uint64_t called_for_plan;

void resets_take(bool is_check) {
    if (calls_to_reset == 0) return;
    const bool has_checked = checked_for_plan == num_plans;
    const bool is_permitted = num_checked == 0 && (is_check || called_for_plan == num_plans);
    called_for_plan = num_plans;
    num_checked = num_checked - has_checked + is_check;
    checked_for_plan = is_check ? num_plans : 0;
    if (calls_to_reset > 1) {
        calls_to_reset--;
    } else if (is_permitted) {
        calls_to_reset = 0;
        reset_at_once(sim.devices[0].primary);
        if (is_retained_then) activate_primary(0);
    }
}

void sim_reset_device_before(uint64_t nth, bool is_retained) {
    LOCKED;
    calls_to_reset = nth;
    num_plans++;
    num_checked = 0;
    is_retained_then = is_retained;
}

bool sim_has_reset_device(void) {
    LOCKED;
    const bool has = calls_to_reset == 0;
    calls_to_reset = 0;
    return has;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    DRIVER_CALL(cuDevicePrimaryCtxGetState);
    INVALID_IF(flags == NULL || active == NULL);
    RETURN_IF(!device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    const context *primary = sim.devices[device].primary;
    *flags = 0;
    *active = primary != NULL && primary->is_alive;
    return CUDA_SUCCESS;
}
