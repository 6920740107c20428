// SPDX-License-Identifier: Apache-2.0
// Makes the first call of an operation fail, then the second, and so on until it makes no more calls. With KVMEM_FAULTS=all each call fails
// with each result, else each with one of them.
#include "walk.h"

#include "control.h"
#include "operations.h"
#include "caller_context.h"
#include "usage.h"

/* More driver calls than any operation makes. */
#define TOO_MANY 1000

#define MAX_OPERATIONS 40

static operation operations[MAX_OPERATIONS];
static size_t num_operations;

void operation_add(operation added) {
    CHECK(num_operations < MAX_OPERATIONS);
    operations[num_operations++] = added;
}

const operation *walk_find(const char *name) {
    size_t i = 0;
    while (strcmp(operations[i].name, name) != 0) {
        i++;
        CHECK(i < num_operations);
    }
    return &operations[i];
}

static const struct {
    CUresult result;
    const char *name;
    kvmem_status status; /* that kvmem returns for it */
} failures[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", KVMEM_STATUS_OUT_OF_MEMORY},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", KVMEM_STATUS_CUDA},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", KVMEM_STATUS_CUDA},
};

/* One call of one operation that fails. */
typedef struct step {
    const operation *operation;
    uint64_t nth;
    size_t failure; /* index in `failures` */
    const char *failed; /* the name of the driver function; NULL if the operation makes fewer calls */
} step;

/* Checks that the error contains the failed driver function and its result. */
static void check_error(const step *step, kvmem_status status) {
    kvmem_error_cause cause = {0};
    const kvmem_error *error = test_last_error();
    const kvmem_status stated = kvmem_error_status(error);
    kvmem_error_get_cause(error, &cause);
    const bool is_expected = status == failures[step->failure].status && stated == status &&
                             cause.domain == KVMEM_DOMAIN_CUDA &&
                             cause.code == (int32_t)failures[step->failure].result &&
                             strcmp(cause.name, failures[step->failure].name) == 0 &&
                             strstr(test_last_message(), step->failed) != NULL &&
                             strstr(test_last_message(), cause.name) != NULL;
    if (!is_expected)
        FAIL("%s, call %llu, %s returned %s: got %s: %s", step->operation->name,
             (unsigned long long)step->nth, step->failed, failures[step->failure].name,
             kvmem_status_name(status), test_last_message());
}

void walk_check_works(const operation *operation) {
    SIM(sim_reset());
    const kvmem_status status = operation->run();
    if (status != operation->expected)
        FAIL("%s: expected %s, got %s: %s", operation->name, kvmem_status_name(operation->expected),
             kvmem_status_name(status), test_last_message());
}

/* Runs the operation with the failure, and checks the result. */
static void run_step(step *step) {
    const operation *operation = step->operation;
    const sim_counts before = sim_live_now();
    const size_t depth = SIM(sim_current_context_depth());
    SIM(sim_reset());
    if (failures[step->failure].result != CUDA_ERROR_OUT_OF_MEMORY) {
        /* failing them once is enough, and takes as long as the other calls */
        SIM(sim_exempt_context_checks());
    }
    SIM(sim_fail_nth_of_all(step->nth, failures[step->failure].result));
    const kvmem_status status = operation->run();
    await_live(&before);
    step->failed = SIM(sim_last_failed());
    SIM(sim_reset()); /* the checks call the driver, too */
    CHECK_EQ(SIM(sim_current_context_depth()), depth);
    caller_context_check(__FILE__, __LINE__, operation->name);
    if (step->failed != NULL && status != operation->expected) check_error(step, status);
    /* With the other results a run at the end is enough: each step repeats the calls of the steps before. */
    const bool is_last = step->failed == NULL;
    if (is_last || failures[step->failure].result == CUDA_ERROR_OUT_OF_MEMORY) walk_check_works(operation);
}

static void walk(const operation *operation, size_t failure) {
    walk_check_works(operation);
    const size_t files = count_open_files();
    const uint64_t resident = resident_memory();
    const char *chosen = getenv("KVMEM_FAULTS");
    const bool all = chosen != NULL && strcmp(chosen, "all") == 0;
    const uint64_t first = all ? 1 : 1 + failure;
    const uint64_t stride = all ? 1 : NUM(failures);
    step step = {operation, first, failure, ""};
    while (run_step(&step), step.failed != NULL) {
        step.nth += stride;
        CHECK(step.nth < TOO_MANY);
    }
    CHECK_EQ(count_open_files(), files);
    CHECK(resident_memory() < resident + 4 * MIB); /* less than one leak of pinned memory */
}

void walk_failing_with(CUresult result) {
    size_t failure = 0;
    while (failures[failure].result != result) {
        failure++;
        CHECK(failure < NUM(failures));
    }
    operations_open();
    for (size_t i = 0; i < num_operations; i++) walk(&operations[i], failure);
    operations_close();
}

void walk_check_calls(void) {
    operations_open();
    for (size_t i = 0; i < num_operations; i++) {
        walk_check_works(&operations[i]);
        if (SIM(sim_call_count()) == 0) FAIL("%s makes no driver call", operations[i].name);
    }
    operations_close();
}
