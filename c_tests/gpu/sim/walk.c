// SPDX-License-Identifier: Apache-2.0
// Lets the first call of an operation fail, then the second, and so on until it makes no more.
#include "walk.h"

#include "control.h"
#include "operations.h"
#include "stance.h"
#include "usage.h"

/* More driver calls than any operation makes. */
#define TOO_MANY 1000

#define MOST_OPERATIONS 40

static operation operations[MOST_OPERATIONS];
static size_t num_operations;

void operation_add(operation added) {
    CHECK(num_operations < MOST_OPERATIONS);
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
    kvmem_status status; /* what the library makes of it */
} answers[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", KVMEM_STATUS_OUT_OF_MEMORY},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", KVMEM_STATUS_CUDA},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", KVMEM_STATUS_CUDA},
};

/* One call of one operation that is made to fail. */
typedef struct step {
    const operation *operation;
    uint64_t nth;
    size_t answer;
    const char *failed; /* that call; NULL when the operation makes no more of them */
} step;

/* An error that is there because the driver's answer was not expected says whose answer, and which. */
static void check_error(const step *step, kvmem_status status) {
    kvmem_error_cause cause = {0};
    const kvmem_error *error = test_last_error();
    const kvmem_status stated = kvmem_error_status(error);
    kvmem_error_get_cause(error, &cause);
    const bool as_it_must_be = status == answers[step->answer].status && stated == status &&
                               cause.domain == KVMEM_DOMAIN_CUDA &&
                               cause.code == (int32_t)answers[step->answer].result &&
                               strcmp(cause.name, answers[step->answer].name) == 0 &&
                               strstr(test_last_message(), step->failed) != NULL &&
                               strstr(test_last_message(), cause.name) != NULL;
    if (!as_it_must_be)
        FAIL("%s, call %llu, %s answering %s: got %s: %s", step->operation->name,
             (unsigned long long)step->nth, step->failed, answers[step->answer].name,
             kvmem_status_name(status), test_last_message());
}

void walk_check_works(const operation *operation) {
    SIM(sim_reset());
    const kvmem_status status = operation->run();
    if (status != operation->expected)
        FAIL("%s: expected %s, got %s: %s", operation->name, kvmem_status_name(operation->expected),
             kvmem_status_name(status), test_last_message());
}

/* Lets the call fail and looks at what comes of it. */
static void take(step *step) {
    const operation *operation = step->operation;
    const sim_counts before = sim_live_now();
    const size_t depth = SIM(sim_current_context_depth());
    SIM(sim_reset());
    if (answers[step->answer].result != CUDA_ERROR_OUT_OF_MEMORY) {
        SIM(sim_spare_checks()); /* one walk over all of them is enough, and takes as long as the others */
    }
    SIM(sim_fail_nth_of_all(step->nth, answers[step->answer].result));
    const kvmem_status status = operation->run();
    await_live(&before);
    step->failed = SIM(sim_last_failed());
    SIM(sim_reset()); /* the checks call the driver too */
    CHECK_EQ(SIM(sim_current_context_depth()), depth);
    stance_check(__FILE__, __LINE__, operation->name);
    if (step->failed != NULL && status != operation->expected) check_error(step, status);
    walk_check_works(operation);
}

static void walk(const operation *operation, size_t answer) {
    walk_check_works(operation);
    const size_t files = count_open_files();
    const uint64_t resident = resident_memory();
    step step = {operation, 0, answer, ""};
    while (step.failed != NULL) {
        step.nth++;
        CHECK(step.nth < TOO_MANY);
        take(&step);
    }
    CHECK_EQ(count_open_files(), files);
    CHECK(resident_memory() < resident + 4 * MIB); /* what one leak of pinned memory would be */
}

void walk_failing_with(CUresult result) {
    size_t answer = 0;
    while (answers[answer].result != result) {
        answer++;
        CHECK(answer < NUM(answers));
    }
    operations_open();
    for (size_t i = 0; i < num_operations; i++) walk(&operations[i], answer);
    operations_close();
}

void walk_check_calls(void) {
    operations_open();
    for (size_t i = 0; i < num_operations; i++) {
        walk_check_works(&operations[i]);
        if (SIM(sim_call_count()) == 0) FAIL("%s calls no driver", operations[i].name);
    }
    operations_close();
}
