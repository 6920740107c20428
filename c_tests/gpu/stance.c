// SPDX-License-Identifier: Apache-2.0
// Takes a stance, runs the table, takes the next.
#include "stance.h"

static CUcontext held;

void stance_check(const char *file, int line, const char *call) {
    const CUcontext current = current_context();
    if (current != held) {
        CU(cuCtxSetCurrent(held)); /* the next case begins as it should */
        test_fail(file, line, "%s: context %p was current before and %p is after", call, (void *)held,
                  (void *)current);
    }
}

void stance_take(CUcontext context) {
    held = context;
    CU(cuCtxSetCurrent(context));
}

/* An engine without CUDA on this thread. */
static int run_without_context(int argc, char **argv, const test_suite *suite) {
    printf("with no current context:\n");
    stance_take(NULL);
    return test_main(argc, argv, suite);
}

/* An engine with a context of its own, on the device that the cases use least. */
static int run_with_own_context(int argc, char **argv, const test_suite *suite) {
    printf("with a current context of the test's own:\n");
    CUcontext own = NULL;
    CU(cuCtxCreate_v2(&own, 0, driver_devices() - 1));
    stance_take(own);
    const int result = test_main(argc, argv, suite);
    stance_take(NULL);
    CU(cuCtxDestroy_v2(own));
    return result;
}

/* What a stand-in's copies take says nothing: paths are chosen by the figures that the library brings. */
static void load_rates(void) {
    if (driver_symbol("sim_reset") == NULL) return;
    for (int device = 0; device < driver_devices(); device++)
        EXPECT_OK(kvmem_cuda_use_default_rates(device, ERR));
}

int stance_main(int argc, char **argv, const test_suite *suite) {
    if (argc > 1 && argv[1][0] == '-') {
        return test_main(argc, argv, suite); /* a peer has one role, and a list needs no driver */
    }
    if (suite->lacks != NULL && suite->lacks() != NULL) {
        return test_main(argc, argv, suite); /* skips every case, and needs no driver for that */
    }
    load_rates();
    const int without = run_without_context(argc, argv, suite);
    const int with = run_with_own_context(argc, argv, suite);
    if (without == EXIT_FAILURE || with == EXIT_FAILURE) return EXIT_FAILURE;
    return without == EXIT_SKIPPED ? without : with;
}
