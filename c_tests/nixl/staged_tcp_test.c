// SPDX-License-Identifier: Apache-2.0
// The cases of staged_test.c over TCP, where requests stay in flight and need the peer's help.
#define OVER_TCP 1
#include "staged_test.c"
