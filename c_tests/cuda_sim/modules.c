// SPDX-License-Identifier: Apache-2.0
// Compiles PTX and loads modules. Of the PTX only names are read, and the name of a kernel selects its implementation here.
#include "modules.h"

#include "contexts.h"
#include "copying.h"
#include "kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 1024

static module *find(CUmodule handle) {
    module *found = list_find(sim.modules, handle);
    if (found == NULL) sim_crash("%p is not a module, or an unloaded one", (void *)handle);
    return found;
}

static void unload(module *ended) {
    free(ended->text);
    list_retire(&ended->node);
}

uint64_t modules_destroy_of(const context *ended) {
    uint64_t count = 0;
    EACH_TO_REMOVE(module, known, sim.modules) {
        if (known->context == ended) {
            unload(known);
            count++;
        }
    }
    return count;
}

static linker *find_linker(CUlinkState handle) {
    linker *found = list_find(sim.linkers, handle);
    if (found == NULL) sim_crash("%p is not a linker, or a destroyed one", (void *)handle);
    return found;
}

CUresult cuLinkCreate_v2(unsigned count, CUjit_option *options, void **values, CUlinkState *state) {
    DRIVER_CALL(cuLinkCreate_v2);
    INVALID_IF(count != 0 || options != NULL || values != NULL || state == NULL);
    *state = list_add(&sim.linkers, sizeof(**state));
    return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                          unsigned count, CUjit_option *options, void **values) {
    DRIVER_CALL(cuLinkAddData_v2);
    linker *found = find_linker(state);
    INVALID_IF(type != CU_JIT_INPUT_PTX || data == NULL || size == 0 || name == NULL || found->text != NULL);
    INVALID_IF(count != 0 || options != NULL || values != NULL);
    RETURN_IF(memchr(data, 0, size) == NULL || strstr(data, ".version") == NULL || strstr(data, ".target") == NULL,
              CUDA_ERROR_INVALID_PTX);
    found->text = strdup(data);
    if (found->text == NULL) sim_crash("no memory for a text of %zu bytes", size);
    return CUDA_SUCCESS;
}

/* Waits for no work, as a real driver. */
CUresult cuLinkComplete(CUlinkState state, void **code, size_t *size) {
    DRIVER_CALL(cuLinkComplete);
    linker *found = find_linker(state);
    INVALID_IF(found->text == NULL || code == NULL || size == NULL);
    *code = found->text;
    *size = strlen(found->text) + 1;
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
    DRIVER_CALL(cuLinkDestroy);
    linker *ended = find_linker(state);
    free(ended->text);
    list_retire(&ended->node);
    return RELEASED(CUDA_SUCCESS);
}

CUresult cuModuleLoadData(CUmodule *loaded, const void *image) {
    DRIVER_CALL(cuModuleLoadData);
    INVALID_IF(loaded == NULL || image == NULL);
    RETURN_IF(strstr(image, ".version") == NULL || strstr(image, ".target") == NULL,
              CUDA_ERROR_INVALID_IMAGE);
    queue_drain(context_current()); /* as a real driver does, also for lazy loading */
    module *added = list_add(&sim.modules, sizeof(*added));
    added->context = context_current();
    added->text = strdup(image);
    if (added->text == NULL) {
        sim_crash("no memory for a module");
    }
    *loaded = added;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule handle) {
    DRIVER_CALL(cuModuleUnload);
    module *ended = find(handle);
    RETURN_IF(ended->context != context_current(), CUDA_ERROR_INVALID_CONTEXT);
    queue_drain(ended->context);
    unload(ended);
    return RELEASED(CUDA_SUCCESS);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule handle, const char *name) {
    DRIVER_CALL(cuModuleGetFunction);
    module *found = find(handle);
    char entry[128];
    snprintf(entry, sizeof(entry), ".entry %s(", name);
    INVALID_IF(function == NULL);
    RETURN_IF(strstr(found->text, entry) == NULL, CUDA_ERROR_NOT_FOUND);
    found->function.module = found;
    found->function.kind = strcmp(name, KERNEL_NAME) == 0      ? KERNEL_COPY
                           : strcmp(name, ROWS_NAME) == 0      ? KERNEL_ROWS
                           : strcmp(name, TRANSPOSE_NAME) == 0 ? KERNEL_TRANSPOSE
                           : strcmp(name, VECTORS_NAME) == 0   ? KERNEL_VECTORS
                           : strcmp(name, CHECKSUM_NAME) == 0  ? KERNEL_CHECKSUM : KERNEL_OTHER;
    *function = &found->function;
    return CUDA_SUCCESS;
}

static bool is_live(CUfunction function) {
    EACH(module, known, sim.modules) {
        if (&known->function == function) return true;
    }
    return false;
}

/* The kernel runs after the call, so the work gets a copy of the parameter. */
CUresult cuLaunchKernel(CUfunction function, unsigned ctas_x, unsigned ctas_y, unsigned ctas_z,
                        unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                        CUstream handle, void **parameters, void **extra) {
    DRIVER_CALL(cuLaunchKernel);
    if (!is_live(function) || function->kind == KERNEL_OTHER)
        sim_crash("%p is not a kernel that the stand-in runs, or its module was unloaded", (void *)function);
    RETURN_IF(context_current() == NULL, CUDA_ERROR_INVALID_CONTEXT);
    TRY_GET(stream *, on, find_healthy_stream(handle, &on));
    const unsigned long threads = (unsigned long)threads_x * threads_y * threads_z;
    INVALID_IF(ctas_x == 0 || ctas_y != 1 || ctas_z != 1 || threads == 0 || threads > MAX_THREADS);
    INVALID_IF(shared_bytes > 49152 || parameters == NULL || extra != NULL);
    RETURN_IF(on->context != function->module->context, CUDA_ERROR_INVALID_HANDLE);
    work launched = {.kind = function->kind == KERNEL_CHECKSUM ? WORK_CHECKSUM : WORK_LAUNCH, .stream = on};
    if (this_call.later == CUDA_SUCCESS && launched.kind == WORK_CHECKSUM) {
        launched.tiles = checksum_parameter(parameters[0], threads);
    } else if (this_call.later == CUDA_SUCCESS) {
        const copy_kernel kernel = function->kind == KERNEL_TRANSPOSE ? TRANSPOSE_BLOCKS
                                   : function->kind == KERNEL_VECTORS ? TRANSPOSE_VECTORS
                                   : function->kind == KERNEL_ROWS    ? COPY_ROWS : COPY_BLOCKS;
        launched.blocks = kernel_parameter(parameters[0], threads, kernel);
    }
    submit_or_fail(&launched, &this_call);
    return CUDA_SUCCESS;
}
