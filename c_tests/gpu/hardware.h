// SPDX-License-Identifier: Apache-2.0
// The hardware that all cases of a program need, for `lacks` of a test_suite. Each function returns NULL, or
// the hardware that this machine lacks, as the reason to skip the cases.
#pragma once

/* A GPU with its driver, not the stand-in. */
const char *lacks_real_gpu(void);
const char *lacks_two_gpus(void);
