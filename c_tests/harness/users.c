// SPDX-License-Identifier: Apache-2.0
// Only root may switch to another user.
#include "users.h"

#include "harness.h"

#define REASON "%s needs a switch to another user, and user %u may not; run as root"

bool can_test_other_users(const char *what) {
    const bool can = geteuid() == 0;
    if (!can) SKIP_PART(REASON, what, (unsigned)geteuid());
    return can;
}

void require_other_users(const char *what) {
    if (geteuid() != 0) SKIP(REASON, what, (unsigned)geteuid());
}
