// SPDX-License-Identifier: Apache-2.0
// Other users, for tests of access rights. A user namespace does not help: without root it has one user.
#pragma once

#include <stdbool.h>

/* The user that owns nothing. */
#define NOBODY_UID 65534u

/* Whether this process may switch to any other user. If not, reports that this part of the case is
   skipped. */
bool can_test_other_users(const char *what);
/* The same for a whole case: skips it. */
void require_other_users(const char *what);
