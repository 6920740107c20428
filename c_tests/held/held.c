// SPDX-License-Identifier: Apache-2.0
// Each step is a forked child, in which a row runs on one thread, and another observes it. Several steps run at the same time: most
// of them wait for a deadline.
#include "held.h"

#include "thread_count.h"

#include <semaphore.h>
#include <stdarg.h>

/* Of which the names are kept. */
#define MAX_CALLS 4096
#define MAX_STEPS 16384
#define NAME 32
/* Children at a time. */
#define PLACES 12

/* Of a child: longer than any deadline of a row. */
static unsigned guard_seconds = 30;
/* How long threads and files may remain after everything was destroyed. */
static unsigned settling_seconds = 20;

typedef struct resources {
    size_t files, file_mappings, threads;
} resources;

typedef struct step {
    const held_row *row;
    uint64_t nth;     /* the call that is held; 0: none */
    bool is_patient;  /* the call goes on before the deadline */
    resources allowed;
} step;

/* What a child passes to its parent. */
typedef struct noted {
    uint64_t count; /* of calls */
    char names[MAX_CALLS][NAME];
    char held[NAME]; /* the call that is held, "" if none: the order of threads differs from run to run */
    bool is_late;
    const char *phase; /* what is awaited, if it hangs */
    char fault[512];
    resources at_end;
} noted;

typedef struct place {
    const step *step; /* NULL: free */
    pid_t child;
    noted *noted;
    scratch folder;
} place;
static place places[PLACES];

/* ---- in the child ---- */

static const step *current;
static noted *mine;
static const char *folder;
static atomic_bool is_counting, is_over;
static kvmem_status status;
static sem_t events, is_open, is_observed;

const char *held_folder(void) { return folder; }

const held_row *held_current(void) { return current->row; }

uint64_t held_limit(void) { return current->is_patient || current->nth == 0 ? PATIENCE : MILLISECONDS(500); }

/* One call at a time, under the lock of the stand-in or on the thread that replies to system calls. */
bool held_meets(const char *name) {
    if (!is_counting) return false;
    const uint64_t index = mine->count++;
    if (index < MAX_CALLS) snprintf(mine->names[index], NAME, "%s", name);
    if (index + 1 != current->nth) return false;
    snprintf(mine->held, NAME, "%s", name);
    CHECK_EQ(sem_post(&events), 0);
    return true;
}

static _Noreturn void fault(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(mine->fault, sizeof(mine->fault), format, arguments);
    va_end(arguments);
    _exit(EXIT_FAILURE);
}

static void await(sem_t *event) {
    while (sem_wait(event) != 0) CHECK_EQ(errno, EINTR);
}

static void await_end(const char *phase) {
    mine->phase = phase;
    while (!is_over) await(&events);
}

static void use_others(const char *phase) {
    mine->phase = phase;
    held_beside();
    test_forget_error();
}

static void *run_it(void *run) {
    (*(void (**)(void))run)();
    return NULL;
}

void held_run(void (*run)(void)) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, run_it, &run), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void check_late(void) {
    const held_row *row = current->row;
    mine->is_late = status == KVMEM_STATUS_TIMED_OUT || (row->late != KVMEM_STATUS_OK && status == row->late);
    if (!mine->is_late && status != row->in_time) fault("while the call is held it returns %s", kvmem_status_name(status));
}

static void check_in_time(void) {
    const held_row *row = current->row;
    if (status != row->in_time && (row->late == KVMEM_STATUS_OK || status != row->late))
        fault("after the call it returns %s", kvmem_status_name(status));
}

/* On the thread that observes. */
static void use_others_before(void) {
    await(&is_open);
    use_others("other calls wait before any is held");
    CHECK_EQ(sem_post(&is_observed), 0);
}

static void *observe(void *nothing) {
    if (current->row->is_loading) use_others_before();
    const bool ends_late = current->row->unbounded == NULL && !current->is_patient;
    mine->phase = "what is below makes fewer calls";
    await(&events);
    if (mine->held[0] != '\0') {
        use_others("other calls wait for the one that is held");
        if (ends_late) {
            await_end("it does not end at its deadline");
            check_late();
        }
        below_go();
    }
    await_end("it does not end after the call that was held");
    if (mine->held[0] == '\0' || !ends_late) check_in_time();
    use_others("other calls wait after the one that was held");
    CHECK_EQ(sem_post(&is_observed), 0);
    return nothing;
}

static void body(void) {
    held_open();
    if (current->row->prepare != NULL) current->row->prepare();
    CHECK_EQ(sem_post(&is_open), 0);
    if (current->row->is_loading) await(&is_observed);
    below_begin();
    is_counting = true;
    status = current->row->run();
    is_counting = false;
    is_over = true;
    CHECK_EQ(sem_post(&events), 0);
    await(&is_observed);
    mine->phase = "destroying waits after the call that was held";
    test_forget_error();
    held_close();
    test_forget_error();
}

static resources count_resources(void) {
    return (resources){count_open_files(), count_file_mappings(), count_threads_of(getpid())};
}

static bool is_within(const resources *now, const resources *allowed) {
    return now->files <= allowed->files && now->file_mappings <= allowed->file_mappings && now->threads <= allowed->threads;
}

static void check_resources(void) {
    const resources *allowed = &current->allowed;
    const time_t end = time(NULL) + settling_seconds;
    resources now = count_resources();
    while (current->nth > 0 && !is_within(&now, allowed) && time(NULL) < end) {
        sched_yield();
        now = count_resources();
    }
    mine->at_end = now;
    if (current->nth > 0 && !is_within(&now, allowed))
        fault("resources are left: %zu files, %zu mapped, %zu threads; if no call is held %zu, %zu, %zu", now.files, now.file_mappings, now.threads,
              allowed->files, allowed->file_mappings, allowed->threads);
}

static _Noreturn void run_child(const place *at) {
    pthread_t observer;
    current = at->step;
    mine = at->noted;
    folder = at->folder.path;
    test_leave_cases();
    CHECK(signal(SIGALRM, SIG_DFL) != SIG_ERR);
    alarm(guard_seconds);
    CHECK_EQ(sem_init(&events, 0, 0), 0);
    CHECK_EQ(sem_init(&is_open, 0, 0), 0);
    CHECK_EQ(sem_init(&is_observed, 0, 0), 0);
    CHECK_EQ(pthread_create(&observer, NULL, observe, NULL), 0);
    below_run(body);
    CHECK_EQ(pthread_join(observer, NULL), 0);
    check_resources();
    _exit(EXIT_SUCCESS);
}

/* ---- in the parent ---- */

static step counting[64], steps[MAX_STEPS];
static size_t num_steps, failures;
static size_t num_late[64]; /* of each row */
static char last_report[700];

static void report(const step *step, const char *held, const char *text) {
    snprintf(last_report, sizeof(last_report), "%s", text);
    printf("%s, call %llu %s%s: %s\n", step->row->functions, (unsigned long long)step->nth, held,
           step->is_patient ? ", which goes on" : "", text);
    fflush(stdout);
    failures++;
}

static void start(place *at, const step *step) {
    memset(at->noted, 0, sizeof(*at->noted));
    at->step = step;
    at->folder = scratch_create(temporary_directory());
    at->child = fork();
    CHECK(at->child >= 0);
    if (at->child == 0) run_child(at);
}

/* The first and the last call of each name, or the first eight and the last two: threads that poll repeat them. */
static bool is_chosen(const noted *noted, uint64_t count, uint64_t index) {
    const char *chosen = getenv("KVMEM_HELD");
    const bool all = chosen != NULL && strcmp(chosen, "all") == 0;
    size_t before = 0, after = 0;
    for (uint64_t i = 0; i < count; i++) {
        const bool is_same = strcmp(noted->names[i], noted->names[index]) == 0;
        before += is_same && i < index;
        after += is_same && i > index;
    }
    return all ? before < 8 || after < 2 : before == 0 || after == 0;
}

static void add_steps(const step *counted, const noted *noted) {
    if (noted->count == 0) report(counted, "", "it makes no call that can be held");
    const uint64_t count = noted->count < MAX_CALLS ? noted->count : MAX_CALLS;
    for (uint64_t i = 0; i < count; i++) {
        if (!is_chosen(noted, count, i)) continue;
        for (int is_patient = 0; is_patient < (counted->row->unbounded == NULL ? 2 : 1); is_patient++) {
            CHECK(num_steps < MAX_STEPS);
            steps[num_steps++] = (step){counted->row, i + 1, is_patient, noted->at_end};
        }
    }
}

static void end(place *at, int state) {
    const step *step = at->step;
    const noted *noted = at->noted;
    if (WIFSIGNALED(state))
        report(step, noted->held, WTERMSIG(state) == SIGALRM && noted->phase != NULL ? noted->phase : strsignal(WTERMSIG(state)));
    else if (WEXITSTATUS(state) != 0)
        report(step, noted->held, noted->fault[0] != '\0' ? noted->fault : "see above");
    else if (step->nth == 0)
        add_steps(step, noted);
    num_late[step->row - held_rows] += noted->is_late;
    scratch_remove(&at->folder);
    at->step = NULL;
}

static place *place_of(pid_t child) {
    for (size_t i = 0; i < PLACES; i++)
        if (child == 0 ? places[i].step == NULL : places[i].step != NULL && places[i].child == child) return &places[i];
    return NULL;
}

static void run_all(const step *list, size_t count) {
    size_t next = 0, running = 0;
    while (next < count || running > 0) {
        if (next < count && running < PLACES) {
            start(place_of(0), &list[next++]);
            running++;
            continue;
        }
        int state = 0;
        const pid_t ended = waitpid(-1, &state, 0);
        if (ended < 0) CHECK_EQ(errno, EINTR);
        place *at = ended > 0 ? place_of(ended) : NULL;
        if (at == NULL) continue;
        end(at, state);
        running--;
    }
}

static void open_places(void) {
    for (size_t i = 0; i < PLACES; i++) {
        places[i].noted = mmap(NULL, sizeof(noted), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(places[i].noted != MAP_FAILED);
    }
    num_steps = failures = 0;
    memset(num_late, 0, sizeof(num_late));
}

static void close_places(void) {
    for (size_t i = 0; i < PLACES; i++) munmap(places[i].noted, sizeof(noted));
}

static void walk(const held_row *row, size_t count) {
    CHECK(held_num_rows <= NUM(counting));
    open_places();
    for (size_t i = 0; i < count; i++) counting[i] = (step){.row = &row[i]};
    run_all(counting, count);
    run_all(steps, num_steps);
    close_places();
}

void held_walk(void) {
    walk(held_rows, held_num_rows);
    for (size_t i = 0; i < held_num_rows; i++) {
        const held_row *row = &held_rows[i];
        if (row->unbounded == NULL && !row->is_never_late && num_late[i] == 0) report(&counting[i], "", "no call that is held delays it");
    }
    printf("%zu rows, %zu steps, %zu failed\n", held_num_rows, num_steps, failures);
    if (failures > 0) FAIL("%zu steps failed", failures);
}

void held_finds(const char *functions, const char *fault) {
    const held_row *row = held_rows;
    while (strcmp(row->functions, functions) != 0) CHECK(++row < held_rows + held_num_rows);
    guard_seconds = 2;
    settling_seconds = 1;
    walk(row, 1);
    if (fault == NULL) {
        CHECK_EQ(failures, 0);
        CHECK(num_late[row - held_rows] > 0);
        return;
    }
    if (failures == 0) FAIL("the walk finds nothing in %s", functions);
    CHECK_HAS(last_report, fault);
}
