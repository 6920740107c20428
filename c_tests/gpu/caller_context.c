// SPDX-License-Identifier: Apache-2.0
// Runs the cases without and with a current context.
#include "gpu_flight.h"
#include "caller_context.h"

static CUcontext expected;
static bool contexts_end;

void caller_context_let_contexts_end(void) { contexts_end = true; }

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

/* The cases of one of two rounds. With the stand-in both rounds have all of them. So do cases that are
   named. */
static test_suite round_of(const test_suite *suite, size_t number, int argc, test_case *cases) {
    test_suite round = *suite;
    if (driver_is_stand_in() || argc > 1) return round;
    round.cases = cases;
    round.num_cases = 0;
    for (size_t i = number; i < suite->num_cases; i += 2) cases[round.num_cases++] = suite->cases[i];
    return round;
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

/* Measurements of the stand-in mean nothing, so methods are chosen by the default rates. */
static void use_default_rates(void) {
    if (driver_symbol("sim_reset") == NULL) return;
    for (int device = 0; device < driver_devices(); device++)
        EXPECT_OK(kvmem_cuda_use_default_rates(device, ERR));
}

/* On a GPU creating a context takes up to a second, and kvmem compiles its kernels for the first layout,
   which takes 0.1 s each. So both are kept for all cases, unless these are about contexts. Peers open the
   memory of many cases, too. */
static void keep_context_of_hardware(bool with_kernels) {
    static flight kept;
    if (contexts_end || lacks_real_gpu() != NULL) return;
    keep_device();
    if (!with_kernels) return;
    flight_open(&kept, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    flight_create(&kept, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
}

int caller_context_main(int argc, char **argv, const test_suite *suite) {
    if (argc > 1 && argv[1][0] == '-') {
        if (strcmp(argv[1], PEER_ARGUMENT) == 0) keep_context_of_hardware(false);
        return test_main(argc, argv, suite); /* a peer has one role, and a list needs no driver */
    }
    if (suite->lacks != NULL && suite->lacks() != NULL) {
        return test_main(argc, argv, suite); /* skips every case, which needs no driver */
    }
    use_default_rates();
    keep_context_of_hardware(true);
    CLEANUP(test_free) test_case *cases = test_allocate(suite->num_cases * sizeof(*cases));
    const test_suite first = round_of(suite, 0, argc, cases);
    const int without = run_without_context(argc, argv, &first);
    const test_suite second = round_of(suite, 1, argc, cases);
    const int with = second.num_cases > 0 ? run_with_own_context(argc, argv, &second) : EXIT_SUCCESS;
    if (without == EXIT_FAILURE || with == EXIT_FAILURE) return EXIT_FAILURE;
    return without == EXIT_SKIPPED ? without : with;
}
