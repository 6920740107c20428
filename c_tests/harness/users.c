// SPDX-License-Identifier: Apache-2.0
// Root may become anybody; all others may not, and are told what that costs.
#include "users.h"

#include <stdio.h>
#include <unistd.h>

bool users_can_be_others(const char *what) {
    const bool can = geteuid() == 0;
    if (!can) {
        printf("NOT TRIED: %s, for which user %u would have to become another; run this as root\n", what,
               (unsigned)geteuid());
        fflush(stdout);
    }
    return can;
}
