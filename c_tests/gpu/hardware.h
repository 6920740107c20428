// SPDX-License-Identifier: Apache-2.0
// The hardware that all cases of a program need. Each function returns what this machine lacks, as the reason
// to skip the cases, or NULL if it lacks nothing: for `lacks` of a test_suite.
#pragma once

/* A GPU, rather than the stand-in driver or none. */
const char *lacks_real_gpu(void);
const char *lacks_two_gpus(void);
