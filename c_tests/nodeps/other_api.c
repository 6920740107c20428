// SPDX-License-Identifier: Apache-2.0
// A library of the versioned C API that NIXL plans: its SONAME has a version, and a known function has other
// parameters. It must not be called.
#include <stdlib.h>

int nixl_capi_is_stub(int *is_stub);

int nixl_capi_is_stub(int *is_stub) {
    if (is_stub == NULL) abort();
    *is_stub = 0;
    abort(); /* a caller with the older signature passes no pointer */
}
