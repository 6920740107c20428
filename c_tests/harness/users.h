// SPDX-License-Identifier: Apache-2.0
// Other users: what tests of rights between users need.
#ifndef KVMEM_TEST_USERS_H
#define KVMEM_TEST_USERS_H

#include <stdbool.h>

/* Whether this process may become any other user. Where it may not, says what is not tried for that; a user namespace
 * is no way out, for without root's help it has one user in it. */
bool users_can_be_others(const char *what);

#endif
