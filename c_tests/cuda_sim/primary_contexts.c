// SPDX-License-Identifier: Apache-2.0
// The primary context of each device: one for the process, counted, the same each time it comes back to life,
// but for its id.
#include "call.h"
#include "contexts.h"
#include "devices.h"

static context *revive(CUdevice device) {
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
    if (primary != NULL && primary->is_alive) {
        context_destroy(primary);
    }
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    DRIVER_CALL(cuDevicePrimaryCtxRetain);
    INVALID_IF(context == NULL);
    RETURN_IF(!device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    *context = revive(device);
    sim.devices[device].retains++;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    DRIVER_CALL(cuDevicePrimaryCtxRelease_v2);
    RETURN_IF(!device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    RETURN_IF(sim.devices[device].retains == 0, CUDA_ERROR_INVALID_CONTEXT);
    sim.devices[device].retains--;
    if (sim.devices[device].retains == 0) {
        destroy_if_alive(sim.devices[device].primary);
    }
    return RELEASED(CUDA_SUCCESS);
}

/* Whoever has retained it still has, but the context is dead until retained again. */
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    DRIVER_CALL(cuDevicePrimaryCtxReset_v2);
    RETURN_IF(!device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    destroy_if_alive(sim.devices[device].primary);
    return RELEASED(CUDA_SUCCESS);
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
