// SPDX-License-Identifier: Apache-2.0
// The cases of served_test.c over TCP.
#define OVER_TCP 1
#include "served_test.c"
