// SPDX-License-Identifier: Apache-2.0
// The cases of python_test.c over TCP, where UCX may not map the memory of the other process.
#define OVER_TCP 1
#include "python_test.c"
