// SPDX-License-Identifier: Apache-2.0
// A stand-in for the two functions of the CUDA runtime that NIXL's GDS plugins call.

#define EXPORT __attribute__((visibility("default")))

/* The current device is not stored, because nothing here reads it. */
EXPORT int cudaSetDevice(int device) { return device >= 0 ? 0 : 101; }

EXPORT const char *cudaGetErrorString(int error) {
    return error == 0 ? "no error" : "invalid device ordinal";
}
