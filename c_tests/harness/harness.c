// SPDX-License-Identifier: Apache-2.0
// Runs the table of cases; a failed check jumps out of its case, and the rest still runs.
#include "harness.h"

#include "peer.h"
#include "resources.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* No process of the tests outlives this, whatever ctest or the terminal does. */
#define DEADLINE_SECONDS 110

static _Thread_local jmp_buf *case_exit;
static _Thread_local kvmem_error *last_error;
static _Thread_local bool slot_given;
static const char *running = "start";

void test_fail(const char *file, int line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    flockfile(stdout);
    printf("%s:%d: [%d] ", file, line, (int)getpid());
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    funlockfile(stdout);
    va_end(arguments);
    if (case_exit == NULL) {
        _exit(EXIT_FAILURE);
    }
    longjmp(*case_exit, 1);
}

void test_leave_cases(void) {
    case_exit = NULL;
}

void test_check_equal(const char *file, int line, const char *what, long long got, long long expected) {
    if (got != expected) {
        test_fail(file, line, "%s: expected %lld (0x%llx), got %lld (0x%llx)", what, expected,
                  (unsigned long long)expected, got, (unsigned long long)got);
    }
}

void test_check_string(const char *file, int line, const char *what, const char *got, const char *expected) {
    if (got == NULL || strcmp(got, expected) != 0) {
        test_fail(file, line, "%s: expected \"%s\", got \"%s\"", what, expected, got ? got : "(null)");
    }
}

void test_check_contains(const char *file, int line, const char *text, const char *part) {
    if (text == NULL || strstr(text, part) == NULL) {
        test_fail(file, line, "expected \"%s\" in \"%s\"", part, text ? text : "(null)");
    }
}

void test_check_bytes(const char *file, int line, const char *what, const void *got, const void *expected,
                      size_t size) {
    const unsigned char *a = got;
    const unsigned char *b = expected;
    if (size == 0 || memcmp(a, b, size) == 0) {
        return;
    }
    size_t first = 0;
    while (a[first] == b[first]) {
        first++;
    }
    size_t different = 0;
    for (size_t i = first; i < size; i++) {
        different += a[i] != b[i];
    }
    test_fail(file, line, "%s: %zu of %zu bytes differ, first at %zu: expected 0x%02x, got 0x%02x", what,
              different, size, first, b[first], a[first]);
}

void test_check_filled(const char *file, int line, const char *what, const void *got, unsigned char value,
                       size_t size) {
    const unsigned char *bytes = got;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != value) {
            test_fail(file, line, "%s: expected 0x%02x at byte %zu, got 0x%02x", what, value, i, bytes[i]);
        }
    }
}

kvmem_error **test_error_slot(void) {
    kvmem_error_destroy(last_error);
    last_error = NULL;
    slot_given = true;
    return &last_error;
}

const kvmem_error *test_last_error(void) {
    slot_given = false; /* whoever looks at the error by hand has seen its call's status */
    return last_error;
}

const char *test_last_message(void) {
    return kvmem_error_message(last_error, NULL);
}

/* An error object says what the status says, with a message that is one non-empty C string. */
static void check_error_agrees(const char *file, int line, const char *call, kvmem_status status) {
    if (status >= 0) {
        if (last_error != NULL) {
            test_fail(file, line, "%s: status %d left an error: %s", call, status, test_last_message());
        }
        return;
    }
    if (last_error == NULL) {
        test_fail(file, line, "%s: status %d filled no error", call, status);
    }
    size_t length = 0;
    const char *message = kvmem_error_message(last_error, &length);
    if (kvmem_error_status(last_error) != status) {
        test_fail(file, line, "%s: returned %d, its error says %d: %s", call, status,
                  kvmem_error_status(last_error), message);
    }
    if (length == 0 || strlen(message) != length) {
        test_fail(file, line, "%s: message of length %zu, stated %zu", call, strlen(message), length);
    }
}

void test_check_status(const char *file, int line, const char *call, kvmem_status got,
                       kvmem_status expected) {
    const bool with_slot = slot_given;
    slot_given = false;
    if (got != expected) {
        test_fail(file, line, "%s: expected %s, got %s: %s", call, kvmem_status_name(expected),
                  kvmem_status_name(got), with_slot ? test_last_message() : "(no error asked for)");
    }
    if (with_slot) {
        check_error_agrees(file, line, call, got);
    }
}

void *test_allocate(size_t size) {
    void *memory = calloc(1, size ? size : 1);
    CHECK(memory != NULL);
    return memory;
}

/* Only async-signal-safe calls: names the case that hangs, and ends the process; its peers die with it. */
static void on_deadline(int signal_number) {
    (void)signal_number;
    static const char text[] = "deadline reached in ";
    ssize_t written = write(STDOUT_FILENO, text, sizeof(text) - 1);
    written += write(STDOUT_FILENO, running, strlen(running));
    written += write(STDOUT_FILENO, "\n", 1);
    _exit(written > 0 ? 3 : 4);
}

void test_forget_error(void) {
    kvmem_error_destroy(last_error);
    last_error = NULL;
    slot_given = false;
}

static bool run_case(const test_case *test) {
    jmp_buf exit_point;
    running = test->name;
    case_exit = &exit_point;
    const bool passed = setjmp(exit_point) == 0;
    if (passed) {
        test->run();
    }
    case_exit = NULL;
    test_forget_error();
    peer_reap_all(!passed);
    scratch_remove_all();
    printf("%-6s %s\n", passed ? "ok" : "FAILED", test->name);
    fflush(stdout);
    return passed;
}

static bool is_wanted(const char *name, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return true;
        }
    }
    return argc < 2;
}

static int run_cases(const test_suite *suite, int argc, char **argv) {
    size_t failed = 0;
    size_t ran = 0;
    for (size_t i = 0; i < suite->num_cases; i++) {
        if (is_wanted(suite->cases[i].name, argc, argv)) {
            failed += !run_case(&suite->cases[i]);
            ran++;
        }
    }
    peer_finish_common();
    printf("%zu cases, %zu failed\n", ran, failed);
    return ran > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run_role(const test_suite *suite, const char *name) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    running = name;
    for (size_t i = 0; i < suite->num_roles; i++) {
        if (strcmp(suite->roles[i].name, name) == 0) {
            suite->roles[i].run(PEER_SOCKET);
            test_forget_error();
            return EXIT_SUCCESS;
        }
    }
    FAIL("no role %s", name);
}

/* Longer where somebody says so: a context on a real GPU takes its time. */
static unsigned deadline(void) {
    const char *said = getenv("KVMEM_TEST_DEADLINE");
    return said != NULL ? (unsigned)strtoul(said, NULL, 10) : DEADLINE_SECONDS;
}

int test_main(int argc, char **argv, const test_suite *suite) {
    signal(SIGALRM, on_deadline);
    signal(SIGPIPE, SIG_IGN);
    alarm(deadline());
    if (argc == 3 && strcmp(argv[1], PEER_ARGUMENT) == 0) {
        return run_role(suite, argv[2]);
    }
    return run_cases(suite, argc, argv);
}
