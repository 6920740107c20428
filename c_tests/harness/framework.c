// SPDX-License-Identifier: Apache-2.0
// Registers cases and runs them. A failed check jumps out of its case, and the other cases still run.
#include "framework.h"

#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/prctl.h>

/* No process of the tests lives longer, whatever ctest or the terminal does. It ends processes that hang, and
   is many times as long as any takes on an idle machine: others may keep its processors busy. */
#define DEADLINE_SECONDS 300

static _Thread_local jmp_buf *case_exit;
static _Thread_local kvmem_error *last_error;
static _Thread_local bool slot_given;
static const char *running = "start";
static bool in_role;

/* How the running case ended, set before the jump out of it. */
static enum { CASE_PASSED, CASE_FAILED, CASE_SKIPPED } ending;

/* The reasons for which the running case, or parts of it, are skipped. */
static char reasons[8][256];
static size_t num_reasons;

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
    if (case_exit == NULL) _exit(EXIT_FAILURE);
    ending = CASE_FAILED;
    longjmp(*case_exit, 1);
}

/* One line for the record of KVMEM_TEST_SKIPS: program, case, and reason, separated by tabs. */
static void record_skip(const char *reason) {
    const char *path = getenv("KVMEM_TEST_SKIPS");
    if (path == NULL || path[0] == '\0') return;
    char line[512];
    const int length =
        snprintf(line, sizeof(line), "%s\t%s\t%s\n", program_invocation_short_name, running, reason);
    CHECK(length > 0 && (size_t)length < sizeof(line));
    const int record = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    CHECK(record >= 0);
    const ssize_t written = write(record, line, (size_t)length); /* one call, so that lines are never mixed */
    close(record);
    CHECK_EQ(written, length);
}

/* Prints and records a reason; does nothing if this case has reported it. */
static void report_skip(const char *kind, const char *file, int line, const char *format, va_list arguments) {
    if (case_exit == NULL) {
        test_fail(file, line,
                  "a skip outside a case: check what the machine lacks before the fork or thread starts");
    }
    if (num_reasons == NUM(reasons))
        test_fail(file, line, "more than %zu reasons to skip parts of one case", NUM(reasons));
    char *reason = reasons[num_reasons];
    vsnprintf(reason, sizeof(reasons[0]), format, arguments);
    for (size_t i = 0; i < num_reasons; i++) {
        if (strcmp(reasons[i], reason) == 0) return;
    }
    num_reasons++;
    printf("%-7s %s: %s\n", kind, running, reason);
    fflush(stdout);
    record_skip(reason);
}

void test_skip(const char *file, int line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    report_skip("skipped", file, line, format, arguments);
    va_end(arguments);
    ending = CASE_SKIPPED;
    longjmp(*case_exit, 1);
}

void test_skip_part(const char *file, int line, const char *format, ...) {
    if (in_role) return;
    va_list arguments;
    va_start(arguments, format);
    report_skip("partly", file, line, format, arguments);
    va_end(arguments);
}

void test_leave_cases(void) { case_exit = NULL; }

void test_check_equal(const char *file, int line, const char *what, long long got, long long expected) {
    if (got != expected)
        test_fail(file, line, "%s: expected %lld (0x%llx), got %lld (0x%llx)", what, expected,
                  (unsigned long long)expected, got, (unsigned long long)got);
}

void test_check_string(const char *file, int line, const char *what, const char *got, const char *expected) {
    if (got == NULL || strcmp(got, expected) != 0)
        test_fail(file, line, "%s: expected \"%s\", got \"%s\"", what, expected, got ? got : "(null)");
}

void test_check_contains(const char *file, int line, const char *text, const char *part) {
    if (text == NULL || strstr(text, part) == NULL)
        test_fail(file, line, "expected \"%s\" in \"%s\"", part, text ? text : "(null)");
}

void test_check_bytes(const char *file, int line, const char *what, const void *got, const void *expected,
                      size_t size) {
    const unsigned char *a = got;
    const unsigned char *b = expected;
    if (size == 0 || memcmp(a, b, size) == 0) return;
    size_t first = 0;
    while (a[first] == b[first]) first++;
    size_t different = 0;
    for (size_t i = first; i < size; i++) different += a[i] != b[i];
    test_fail(file, line, "%s: %zu of %zu bytes differ, first at %zu: expected 0x%02x, got 0x%02x", what,
              different, size, first, b[first], a[first]);
}

void test_check_filled(const char *file, int line, const char *what, const void *got, unsigned char value,
                       size_t size) {
    const unsigned char *bytes = got;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != value)
            test_fail(file, line, "%s: expected 0x%02x at byte %zu, got 0x%02x", what, value, i, bytes[i]);
    }
}

kvmem_error **test_error_slot(void) {
    DESTROYED(kvmem_error, last_error);
    slot_given = true;
    return &last_error;
}

const kvmem_error *test_last_error(void) {
    slot_given = false; /* a caller that reads the error itself has checked the status */
    return last_error;
}

const char *test_last_message(void) { return kvmem_error_message(last_error, NULL); }

kvmem_error_cause test_last_cause(void) {
    kvmem_error_cause cause = {0};
    CHECK(last_error == NULL || kvmem_error_get_cause(last_error, &cause) == KVMEM_STATUS_OK);
    return cause;
}

void test_check_cause(const char *file, int line, uint32_t domain, int32_t code) {
    const kvmem_error_cause cause = test_last_cause();
    if (cause.domain != domain || cause.code != code)
        test_fail(file, line, "expected a cause of domain %u with code %d, got domain %u, code %d: %s",
                  domain, code, cause.domain, cause.code, test_last_message());
}

/* The error has the same status as the call, and its message is a non-empty C string. */
static void check_error_agrees(const char *file, int line, const char *call, kvmem_status status) {
    if (status >= 0) {
        if (last_error != NULL)
            test_fail(file, line, "%s: status %d left an error: %s", call, status, test_last_message());
        return;
    }
    if (last_error == NULL) test_fail(file, line, "%s: status %d filled no error", call, status);
    size_t length = 0;
    const char *message = kvmem_error_message(last_error, &length);
    if (kvmem_error_status(last_error) != status)
        test_fail(file, line, "%s: returned %d, its error says %d: %s", call, status,
                  kvmem_error_status(last_error), message);
    if (length == 0 || strlen(message) != length)
        test_fail(file, line, "%s: message of length %zu, stated %zu", call, strlen(message), length);
}

void test_check_status(const char *file, int line, const char *call, kvmem_status got,
                       kvmem_status expected) {
    const bool with_slot = slot_given;
    slot_given = false;
    if (got != expected) {
        test_fail(file, line, "%s: expected %s, got %s: %s", call, kvmem_status_name(expected),
                  kvmem_status_name(got), with_slot ? test_last_message() : "(no error requested)");
    }
    if (with_slot) check_error_agrees(file, line, call, got);
}

void *test_allocate(size_t size) {
    void *memory = calloc(1, size ? size : 1);
    CHECK(memory != NULL);
    return memory;
}

void test_free(void *pointer_to_memory) { free(*(void **)pointer_to_memory); }

void test_close(const int *fd) { close(*fd); }

const char *test_text(const char *format, ...) {
    static _Thread_local char texts[16][256];
    static _Thread_local size_t next;
    char *text = texts[next++ % NUM(texts)];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof(texts[0]), format, arguments);
    va_end(arguments);
    CHECK(length >= 0 && (size_t)length < sizeof(texts[0]));
    return text;
}

/* Uses only async-signal-safe calls. Prints the case that hangs, and ends the process; its peers die with
   it. */
static void on_deadline(int signal_number) {
    (void)signal_number;
    static const char text[] = "deadline reached in ";
    ssize_t written = write(STDOUT_FILENO, text, sizeof(text) - 1);
    written += write(STDOUT_FILENO, running, strlen(running));
    written += write(STDOUT_FILENO, "\n", 1);
    _exit(written > 0 ? 3 : 4);
}

void test_forget_error(void) {
    DESTROYED(kvmem_error, last_error);
    slot_given = false;
}

/* How cases ended. A case that was skipped in part counts as passed and as skipped. */
typedef struct tally {
    size_t ran;
    size_t failed;
    size_t skipped;
} tally;

static void run_or_skip(const test_suite *suite, const test_case *test) {
    const char *lacking = suite->lacks != NULL ? suite->lacks() : NULL;
    if (lacking != NULL) SKIP("%s", lacking);
    if (suite->begin != NULL) suite->begin();
    test->run();
    if (suite->end != NULL) suite->end();
}

static void run_case(const test_suite *suite, const test_case *test, tally *tally) {
    jmp_buf exit_point;
    running = test->name;
    num_reasons = 0;
    case_exit = &exit_point;
    ending = CASE_PASSED;
    if (setjmp(exit_point) == 0) run_or_skip(suite, test);
    case_exit = NULL;
    test_forget_error();
    peer_reap_all(ending == CASE_FAILED);
    if (ending == CASE_FAILED) scratch_remove_all();
    if (ending != CASE_SKIPPED) printf("%-7s %s\n", ending == CASE_FAILED ? "FAILED" : "ok", test->name);
    fflush(stdout);
    tally->ran++;
    tally->failed += ending == CASE_FAILED;
    tally->skipped += num_reasons > 0;
}

static bool is_wanted(const char *name, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0) return true;
    }
    return argc < 2;
}

static int exit_code(const tally *tally) {
    if (tally->ran == 0 || tally->failed > 0) return EXIT_FAILURE;
    return tally->skipped > 0 ? EXIT_SKIPPED : EXIT_SUCCESS;
}

static int run_cases(const test_suite *suite, int argc, char **argv) {
    tally tally = {0};
    for (size_t i = 0; i < suite->num_cases; i++) {
        if (is_wanted(suite->cases[i].name, argc, argv)) run_case(suite, &suite->cases[i], &tally);
    }
    peer_finish_shared();
    scratch_remove_all();
    printf("%zu cases, %zu failed, %zu skipped or skipped in part\n", tally.ran, tally.failed, tally.skipped);
    return exit_code(&tally);
}

static int list_cases(const test_suite *suite) {
    for (size_t i = 0; i < suite->num_cases; i++) printf("%s\n", suite->cases[i].name);
    return EXIT_SUCCESS;
}

static int run_role(const test_suite *suite, const char *name) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    running = name;
    in_role = true;
    for (size_t i = 0; i < suite->num_roles; i++) {
        if (strcmp(suite->roles[i].name, name) == 0) {
            suite->roles[i].run(PEER_SOCKET);
            test_forget_error();
            return EXIT_SUCCESS;
        }
    }
    FAIL("no role %s", name);
}

/* Longer if KVMEM_TEST_DEADLINE says so: creating a context on a real GPU takes time. */
static unsigned deadline(void) {
    const char *said = getenv("KVMEM_TEST_DEADLINE");
    return said != NULL ? (unsigned)strtoul(said, NULL, 10) : DEADLINE_SECONDS;
}

int test_main(int argc, char **argv, const test_suite *suite) {
    signal(SIGALRM, on_deadline);
    signal(SIGPIPE, SIG_IGN);
    alarm(deadline());
    if (argc == 3 && strcmp(argv[1], PEER_ARGUMENT) == 0) return run_role(suite, argv[2]);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) return list_cases(suite);
    return run_cases(suite, argc, argv);
}
