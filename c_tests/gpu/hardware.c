// SPDX-License-Identifier: Apache-2.0
// Loads the driver without kvmem, so that a program whose cases are skipped does not need a working libkvmem.
#include "hardware.h"

#include "driver.h"

#include <dlfcn.h>

const char *lacks_real_gpu(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) return "a real GPU: this machine has no CUDA driver";
    /* The driver stays loaded: closing a library that has started threads is not safe. */
    return dlsym(driver, "sim_reset") != NULL ? "a real GPU: the driver is the stand-in" : NULL;
}

const char *lacks_two_gpus(void) { return driver_devices() < 2 ? "two GPUs: this machine has one" : NULL; }
