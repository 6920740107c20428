// SPDX-License-Identifier: Apache-2.0
// Runs the cases once without and once with a current context.
#include "caller_context.h"

static CUcontext expected;

void caller_context_check(const char *file, int line, const char *call) {
    const CUcontext current = current_context();
    if (current != expected) {
        CU(cuCtxSetCurrent(expected)); /* for the next case */
        test_fail(file, line, "%s: context %p was current before and %p is after", call, (void *)expected,
                  (void *)current);
    }
}

void caller_context_set(CUcontext context) {
    expected = context;
    CU(cuCtxSetCurrent(context));
}

/* As an engine that does not use CUDA on this thread. */
static int run_without_context(int argc, char **argv, const test_suite *suite) {
    printf("with no current context:\n");
    caller_context_set(NULL);
    return test_main(argc, argv, suite);
}

/* As an engine with its own context, on the last device, which the cases use least. */
static int run_with_own_context(int argc, char **argv, const test_suite *suite) {
    printf("with a current context of the test:\n");
    CU_GET(CUcontext, own, cuCtxCreate_v2(&own, 0, driver_devices() - 1));
    caller_context_set(own);
    const int result = test_main(argc, argv, suite);
    caller_context_set(NULL);
    CU(cuCtxDestroy_v2(own));
    return result;
}

/* Measurements of the stand-in mean nothing, so paths are chosen by the default rates. */
static void use_default_rates(void) {
    if (driver_symbol("sim_reset") == NULL) return;
    for (int device = 0; device < driver_devices(); device++)
        EXPECT_OK(kvmem_cuda_use_default_rates(device, ERR));
}

int caller_context_main(int argc, char **argv, const test_suite *suite) {
    if (argc > 1 && argv[1][0] == '-') {
        return test_main(argc, argv, suite); /* a peer has one role, and a list needs no driver */
    }
    if (suite->lacks != NULL && suite->lacks() != NULL) {
        return test_main(argc, argv, suite); /* skips every case, which needs no driver */
    }
    use_default_rates();
    const int without = run_without_context(argc, argv, suite);
    const int with = run_with_own_context(argc, argv, suite);
    if (without == EXIT_FAILURE || with == EXIT_FAILURE) return EXIT_FAILURE;
    return without == EXIT_SKIPPED ? without : with;
}
