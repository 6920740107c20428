// SPDX-License-Identifier: Apache-2.0
// Each step is a forked child, which runs the operation on a thread whose system calls another thread replies to.
#include "walk.h"

#include "system_calls.h"

#include <malloc.h>
#include <stdarg.h>

#define MAX_OPERATIONS 40
#define MAX_CALLS 4096
/* What a mapping of a leaked region exceeds; stacks and heaps of threads do not. */
#define LEAK (16 * MIB)

/* Of a step: longer than any deadline of an operation. */
static unsigned deadline_seconds = 30;
/* How long threads of the library may take to end after an operation. */
static unsigned settling_seconds = 10;
/* After so many failures the walk of an operation ends. */
static size_t max_failures = 40;

static operation operations[MAX_OPERATIONS];
static size_t num_operations;

void operation_add(operation added) {
    CHECK(num_operations < MAX_OPERATIONS);
    operations[num_operations++] = added;
}

/* A call that an operation made without failures. */
typedef struct made_call {
    const system_call *call;
    uint64_t place; /* the instruction that makes it */
} made_call;

typedef struct resources {
    size_t files, file_mappings;
    uint64_t addresses;
} resources;

/* What the child of a step passes to its parent. */
typedef struct noted {
    _Atomic uint64_t count;
    made_call calls[MAX_CALLS]; /* of the first run */
    const system_call *failed;
    kvmem_status status;
    kvmem_error_cause cause;
    char message[1024];
    resources at_end;
} noted;
static noted *noted_page;

typedef struct step {
    const operation *operation;
    uint64_t nth; /* 0: none fails */
    size_t way;
    bool lasts; /* each later call of the same number fails, too */
    resources allowed;
} step;
static const step *current;

static atomic_bool is_armed;
static library_code code;
static scratch folder;
static const char bystander_bytes[] = "not a file of any operation";

const char *fault_folder(void) { return folder.path; }

/* ---- in the child ---- */

static held_reply fail_by(const struct seccomp_notif *call, const system_call *known) {
    const int way = known->ways[current->way % system_call_num_ways(known)];
    noted_page->failed = known;
    if (way != SHORT_TRANSFER) return (held_reply){.how = CALL_FAILS, .error = way};
    const int64_t result = system_call_shortened(&call->data);
    if (result == 0) return (held_reply){.how = CALL_IS_PERFORMED};
    if (result < 0) return (held_reply){.how = CALL_FAILS, .error = (int)-result};
    return (held_reply){.how = CALL_RETURNS, .result = result};
}

static held_reply reply_to(const struct seccomp_notif *call) {
    const held_reply performed = {.how = CALL_IS_PERFORMED};
    if (!is_armed) return performed;
    const system_call *known = system_call_find(&call->data, &code);
    if (known == NULL) return performed;
    const uint64_t index = noted_page->count++;
    if (index < MAX_CALLS) noted_page->calls[index] = (made_call){known, call->data.instruction_pointer};
    /* The order of threads differs from run to run, so this may be another call than the step was made for. */
    const int way = known->ways[current->way % system_call_num_ways(known)];
    const bool again = current->lasts && noted_page->failed == known && system_call_can_last(way);
    return index + 1 == current->nth || again ? fail_by(call, known) : performed;
}

static uint64_t address_space(void) {
    uint64_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    CHECK(file != NULL && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    return pages * 4096;
}

static resources count_resources(void) {
    return (resources){count_open_files(), count_file_mappings(), address_space()};
}

static bool is_within(const resources *now, const resources *allowed) {
    return now->files <= allowed->files && now->file_mappings <= allowed->file_mappings &&
           now->addresses <= allowed->addresses + LEAK;
}

/* Threads of the library may end a little later. */
static void await_resources(void) {
    const resources *allowed = &current->allowed;
    const time_t end = time(NULL) + settling_seconds;
    noted_page->at_end = count_resources();
    if (current->nth == 0) return; /* the step that counts them */
    while (!is_within(&noted_page->at_end, allowed) && time(NULL) < end) noted_page->at_end = count_resources();
    if (!is_within(&noted_page->at_end, allowed))
        FAIL("%zu files are open and %zu mapped, %llu bytes in all; after success %zu, %zu, %llu", noted_page->at_end.files,
             noted_page->at_end.file_mappings, (unsigned long long)noted_page->at_end.addresses, allowed->files,
             allowed->file_mappings, (unsigned long long)allowed->addresses);
}

/* No file is left behind, and none of others has changed. */
static void check_folder(void) {
    static const char *const known[] = {"cache", "socket", "cluster", "bystander"};
    size_t count = 0;
    for (size_t i = 0; i < NUM(known); i++) count += access(scratch_file(&folder, known[i]), F_OK) == 0;
    CHECK_EQ(count_directory_entries(folder.path), count);
    char bytes[sizeof(bystander_bytes)] = {0};
    CLEANUP(test_close) const int file = open(scratch_file(&folder, "bystander"), O_RDONLY | O_CLOEXEC);
    CHECK_EQ(read(file, bytes, sizeof(bytes)), sizeof(bytes));
    CHECK_BYTES(bytes, bystander_bytes, sizeof(bytes));
}

static void check_others(void) {
    operations_check();
    check_folder();
    test_forget_error();
}

static void note_result(kvmem_status status) {
    noted_page->status = status;
    noted_page->cause = test_last_cause();
    snprintf(noted_page->message, sizeof(noted_page->message), "%s", test_last_message());
    test_forget_error();
}

static void body(void) {
    operations_open();
    is_armed = true;
    const kvmem_status status = current->operation->run();
    is_armed = false;
    note_result(status);
    check_others();
    const kvmem_status repeated = current->operation->run();
    if (repeated != current->operation->expected)
        FAIL("repeated: %s: %s", kvmem_status_name(repeated), test_last_message());
    check_others();
    operations_close();
}

static void run_child(void) {
    test_leave_cases();
    CHECK(signal(SIGALRM, SIG_DFL) != SIG_ERR);
    alarm(deadline_seconds);
    mallopt(M_ARENA_MAX, 1);
    held_calls_reply(body, system_calls_ignored, system_calls_num_ignored, true, reply_to);
    await_resources();
    _exit(EXIT_SUCCESS);
}

/* ---- in the parent ---- */

static size_t failures;
static char last_report[1400];

static const char *way_name(const system_call *call, size_t way) {
    const int error = call->ways[way % system_call_num_ways(call)];
    return error == SHORT_TRANSFER ? "half of the bytes" : strerrorname_np(error);
}

__attribute__((format(printf, 2, 3))) static void report(const step *step, const char *format, ...) {
    char *text = last_report;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(last_report), format, arguments);
    va_end(arguments);
    const system_call *failed = noted_page->failed;
    printf("%s, call %llu, %s: %s%s: %s\n", step->operation->name, (unsigned long long)step->nth,
           failed != NULL ? failed->name : "none", failed != NULL ? way_name(failed, step->way) : "",
           step->lasts ? " from then on" : "", text);
    fflush(stdout);
    failures++;
}

/* The errno of a step; 0 if none failed. The C library reports any failure to start a thread as EAGAIN. */
static int errno_of(const step *step) {
    const system_call *failed = noted_page->failed;
    if (failed == NULL) return 0;
    const int way = failed->ways[step->way % system_call_num_ways(failed)];
    return strstr(noted_page->message, "start the thread ") != NULL && way == ENOMEM ? EAGAIN : way;
}

/* The errno is in the message, and the cause unless a peer sent the error. */
static bool names(int way) {
    const kvmem_error_cause *cause = &noted_page->cause;
    const bool is_cause = cause->domain == KVMEM_DOMAIN_ERRNO ? cause->code == way : operations_have_peer;
    return is_cause && strstr(noted_page->message, strerrorname_np(way)) != NULL;
}

/* A peer that lacks a resource ends the connection, or does not accept it until the deadline. */
static bool is_end_of_peer(void) {
    return operations_have_peer &&
           (noted_page->status == KVMEM_STATUS_TIMED_OUT || noted_page->status == KVMEM_STATUS_PEER_LOST);
}

/* An error names the errno. A call that a signal interrupted is repeated. */
static void check_result(const step *step) {
    const system_call *failed = noted_page->failed;
    if (noted_page->status == step->operation->expected) return;
    const int way = errno_of(step);
    if (way == 0 || way == SHORT_TRANSFER || way == EINTR || !(names(way) || is_end_of_peer()))
        report(step, "%s: %s", kvmem_status_name(noted_page->status), noted_page->message);
    else if (getenv("KVMEM_FAULTS_SHOW") != NULL)
        printf("%s %s: %s\n", failed->name, way_name(failed, step->way), noted_page->message);
}

static void empty_folder(void) {
    static const char *const left[] = {"cache", "socket"};
    scratch cluster;
    for (size_t i = 0; i < NUM(left); i++) unlink(scratch_file(&folder, left[i]));
    snprintf(cluster.path, sizeof(cluster.path), "%s", scratch_file(&folder, "cluster"));
    if (access(cluster.path, F_OK) == 0) scratch_remove(&cluster);
}

static void run_step(const step *step) {
    memset(noted_page, 0, offsetof(noted, calls));
    memset(&noted_page->failed, 0, sizeof(noted) - offsetof(noted, failed));
    current = step;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) run_child();
    const int state = child_end(child);
    if (WIFSIGNALED(state)) report(step, "%s", WTERMSIG(state) == SIGALRM ? "hangs" : strsignal(WTERMSIG(state)));
    else if (WEXITSTATUS(state) != 0) report(step, PRINTED);
    else check_result(step);
    empty_folder();
}

/* Whether the same place makes more such calls before, and after. A loop is tested by its first and last ones. */
static bool is_repeated(const made_call *calls, size_t count, size_t index, bool all) {
    size_t before = 0, after = 0;
    for (size_t i = 0; i < count; i++) {
        const bool is_same = calls[i].call == calls[index].call && calls[i].place == calls[index].place;
        before += is_same && i < index;
        after += is_same && i > index;
    }
    return all ? before >= 8 && after >= 2 : before > 0;
}

static size_t walk(const operation *operation, bool all) {
    static made_call calls[MAX_CALLS];
    step step = {.operation = operation};
    run_step(&step);
    const size_t count = noted_page->count < MAX_CALLS ? noted_page->count : MAX_CALLS;
    memcpy(calls, noted_page->calls, count * sizeof(calls[0]));
    step.allowed = noted_page->at_end;
    size_t steps = 0;
    for (size_t i = 0; i < count && failures < max_failures; i++) {
        if (is_repeated(calls, count, i, all)) continue;
        const size_t ways = system_call_num_ways(calls[i].call);
        for (size_t way = 0; way < ways && failures < max_failures; way++) {
            if (!all && way != i % ways) continue;
            step.nth = i + 1;
            step.way = way;
            step.lasts = false;
            run_step(&step);
            steps++;
            if (!all || !system_call_can_last(calls[i].call->ways[way])) continue;
            step.lasts = true;
            run_step(&step);
            steps++;
        }
    }
    return steps;
}

static void open_walk(void) {
    code = library_code_find();
    folder = scratch_create(temporary_directory());
    write_file(scratch_file(&folder, "bystander"), bystander_bytes, sizeof(bystander_bytes));
    noted_page = mmap(NULL, sizeof(*noted_page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(noted_page != MAP_FAILED);
    failures = 0;
}

static void close_walk(void) {
    munmap(noted_page, sizeof(*noted_page));
    scratch_remove(&folder);
}

void fault_walk(void) {
    const char *chosen = getenv("KVMEM_FAULTS");
    const bool all = chosen != NULL && strcmp(chosen, "all") == 0;
    size_t steps = 0;
    open_walk();
    for (size_t i = 0; i < num_operations; i++) {
        const size_t added = walk(&operations[i], all);
        if (added == 0) report(REF(((step){.operation = &operations[i]})), "makes no system call that can fail");
        printf("%s: %zu steps\n", operations[i].name, added);
        fflush(stdout);
        steps += added;
    }
    close_walk();
    printf("%zu operations, %zu steps, %zu failed\n", num_operations, steps, failures);
    if (failures > 0) FAIL("%zu steps failed", failures);
}

void fault_walk_of_none(void) {
    open_walk();
    for (size_t i = 0; i < num_operations; i++) {
        const step step = {.operation = &operations[i]};
        run_step(&step);
        if (noted_page->count > 0) report(&step, "makes a system call that can fail: %s", noted_page->calls[0].call->name);
    }
    close_walk();
    if (failures > 0) FAIL("%zu operations failed", failures);
}

void fault_walk_finds(const char *name, const char *fault) {
    size_t i = 0;
    while (strcmp(operations[i].name, name) != 0) CHECK(++i < num_operations);
    deadline_seconds = 8;
    settling_seconds = 1;
    max_failures = 1;
    open_walk();
    walk(&operations[i], true);
    close_walk();
    if (failures == 0) FAIL("the walk finds nothing in %s", name);
    CHECK_STR(last_report, fault);
}
