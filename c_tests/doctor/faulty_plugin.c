// SPDX-License-Identifier: Apache-2.0
// A plugin of NIXL that ends the process that loads it, or does not return.
#include <stdlib.h>
#include <unistd.h>

static void __attribute__((constructor)) load(void) {
#ifdef HANGS
    for (;;) pause();
#else
    abort();
#endif
}
