// SPDX-License-Identifier: Apache-2.0
#include "hostile.h"

#include "victim.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define FOLDER "KVMEM_TEST_HOSTILE_FOLDER"
#define NO_ROW UINT_MAX
enum { OPENED_ALL = 1 };
/* Of a row that does not last for a time. */
#define TURNS 12
#define ROUNDS 2
/* Further processors that the victim may need while the hostile peer does nothing, or is gone. */
#define QUIET 0.5

/* What the processes see of each other. */
typedef struct state {
    atomic_uint row;     /* of the hostile peer that the victim deals with, or NO_ROW */
    atomic_uint turns;   /* of the hostile peer of this row */
    atomic_uint rounds;  /* of the healthy peer and the victim */
    atomic_uint deals;   /* of the victim with the hostile peer of this row */
    atomic_uint met;     /* the row of the hostile peer that the victim has objects for, or NO_ROW */
    atomic_bool is_observed, has_ended;
    _Atomic uint64_t longest; /* nanoseconds of a round, since it was observed */
    atomic_int callers[2];    /* the threads of the victim that make rounds and deals, or 0 */
} state;

static state *shared;
static const hostile_form *const form = &hostile_form_here;
static unsigned own_row = NO_ROW;
static bool is_victim;

/* ---- common to all processes ---- */

const char *hostile_path(const char *name) {
    static _Thread_local char path[200];
    const char *folder = getenv(FOLDER);
    CHECK(folder != NULL);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

const char *hostile_name(const char *name) {
    static _Thread_local char full[64];
    snprintf(full, sizeof(full), "%s.%u", name, own_row);
    return full;
}

unsigned hostile_deals(void) { return shared->deals; }

void hostile_await_rounds(unsigned rounds) {
    const unsigned before = shared->rounds;
    AWAIT(shared->rounds - before > rounds); /* the first one may have begun before */
}

uint64_t hostile_random(void) {
    static uint64_t random = 1;
    random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return random >> 16;
}

static void attach(bool is_first) {
    char path[200];
    snprintf(path, sizeof(path), "%s", hostile_path("state"));
    CLEANUP(test_close) const int file = open(path, O_RDWR | O_CLOEXEC | (is_first ? O_CREAT : 0), 0666);
    CHECK(file >= 0);
    if (is_first) CHECK_EQ(fchmod(file, 0666), 0);
    if (is_first) CHECK_EQ(ftruncate(file, sizeof(state)), 0);
    shared = mmap(NULL, sizeof(state), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(shared != MAP_FAILED);
}

static bool load_is_asked(void) { return getenv("KVMEM_TEST_LOAD_SECONDS") != NULL; }

static unsigned turns_of(const hostile_row *row) { return row->turns > 0 ? row->turns : TURNS; }

static void call(void (*function)(void)) {
    if (function != NULL) function();
}

/* ---- the victim and the healthy peer ---- */

static void note_caller(int index) {
    if (is_victim) shared->callers[index] = (int)syscall(SYS_gettid);
}

static void *make_rounds(void *round) {
    note_caller(0);
    while (!shared->has_ended) {
        if (!shared->is_observed) { /* others start */
            (void)poll(NULL, 0, 1);
            continue;
        }
        const load_clock clock = load_begin();
        (*(void (**)(void))round)();
        test_forget_error();
        const uint64_t taken = load_elapsed(&clock);
        if (taken > shared->longest) shared->longest = taken; /* one thread makes rounds */
        shared->rounds++;
    }
    return NULL;
}

static void *deal(void *nothing) {
    note_caller(1);
    while (!shared->has_ended) {
        const unsigned row = shared->row;
        if (row != own_row && own_row != NO_ROW) {
            call(form->victim.part);
            shared->met = own_row = NO_ROW;
        } else if (row != own_row) {
            shared->met = own_row = row;
            call(form->victim.meet);
        } else if (row != NO_ROW) {
            form->victim.deal();
            shared->deals++;
        } else {
            sched_yield();
        }
        test_forget_error();
    }
    return nothing;
}

/* Until the test closes its end of the socket. */
static void serve(int socket, void (*round)(void), void (*deals)(void)) {
    threads rounds, other;
    if (round != NULL) threads_start(&rounds, 1, make_rounds, &round, sizeof(round));
    if (deals != NULL) threads_start(&other, 1, deal, NULL, 0);
    /* What is usual for the victim is counted from here on, with all its threads. */
    if (is_victim && round != NULL) AWAIT(shared->callers[0] != 0);
    if (is_victim && deals != NULL) AWAIT(shared->callers[1] != 0);
    frame_send(socket, OPENED_ALL, NULL, 0);
    CHECK(!frame_arrives(socket));
    if (round != NULL) threads_join(&rounds);
    if (deals != NULL) threads_join(&other);
}

ROLE(victim) {
    attach(false);
    is_victim = true;
    form->victim.open();
    serve(socket, form->victim.round, form->victim.deal);
    call(form->victim.close);
}

ROLE(healthy) {
    attach(false);
    form->healthy.open();
    serve(socket, form->healthy.round, NULL);
    call(form->healthy.close);
}

/* ---- the hostile peer ---- */

ROLE(hostile) {
    attach(false);
    uint32_t row = 0;
    frame_expect_into(socket, OPENED_ALL, &row, sizeof(row));
    own_row = row;
    call(form->open_hostile);
    frame_send(socket, OPENED_ALL, NULL, 0);
    const bool lasts = load_is_asked();
    for (unsigned turn = 0;; turn++) {
        while (!lasts && turn >= turns_of(&form->rows[row])) pause(); /* with all that it has */
        form->rows[row].act(turn);
        test_forget_error();
        shared->turns++;
    }
}

/* ---- the test ---- */

static uint64_t patience = PATIENCE;
static bool judges_pace; /* or only reports it */
static hostile_bounds bounds;
static unsigned usual_rounds = 2 * ROUNDS;
static char found[400]; /* the fault of a row; "": none */

static bool is_faulty(void) { return found[0] != '\0'; }

/* The first one counts. */
static void fault(const char *format, ...) {
    if (is_faulty()) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(found, sizeof(found), format, arguments);
    va_end(arguments);
}

/* The rounds of the healthy peer, how long its threads and those of the victim waited for processors meanwhile, and the processors that the
   victim needs beside its threads that call the library. */
typedef struct pace {
    double per_second, longest_ms, waited_ms, processors;
} pace;

typedef struct scene {
    peer victim, healthy, hostile;
    resources usual;    /* of the victim with the healthy peer alone */
    resources most;     /* in this row */
    pace usual_pace;    /* with the healthy peer alone */
    pace pace;          /* while the hostile one acts */
    pace worst;         /* of all rows: the fewest rounds per second, the longest round, the most processors */
} scene;

static bool has_ended(const peer *peer) {
    return peer->pid != 0 && poll(&(struct pollfd){.fd = peer->socket, .events = POLLIN}, 1, 0) == 1;
}

static void check_victim(const scene *scene, const char *when) {
    if (!has_ended(&scene->victim)) return;
    siginfo_t end = {0};
    CHECK_EQ(waitid(P_PID, (id_t)scene->victim.pid, &end, WEXITED | WNOWAIT), 0);
    if (end.si_code == CLD_EXITED) fault("%s the victim ended with exit code %d", when, end.si_status);
    else fault("%s the victim ended by %s", when, strsignal(end.si_status));
}

static void check_processes(const scene *scene, const char *when) {
    check_victim(scene, when);
    if (has_ended(&scene->healthy)) fault("%s the healthy peer failed", when);
    if (has_ended(&scene->hostile)) fault("%s the hostile peer ended: correct the test", when);
}

static uint64_t count_time(const scene *scene) {
    const pid_t victim = scene->victim.pid;
    uint64_t time = processor_time(victim, 0);
    for (size_t i = 0; i < NUM(shared->callers); i++) {
        const pid_t caller = shared->callers[i];
        const uint64_t called = caller != 0 ? processor_time(victim, caller) : 0;
        time -= called < time ? called : time;
    }
    return time;
}

static uint64_t count_wait(const scene *scene) { return processor_wait(scene->victim.pid) + processor_wait(scene->healthy.pid); }

static double since(uint64_t before, uint64_t after) { return after > before ? (double)(after - before) : 0; }

/* Observes the victim until a number of rounds, and what else is awaited. Returns the pace of the rounds. */
static pace observe(scene *scene, unsigned rounds, unsigned turns, unsigned deals, uint64_t duration, const char *when) {
    const load_clock clock = load_begin();
    const uint64_t time = count_time(scene), wait = count_wait(scene);
    const unsigned begun = shared->rounds;
    shared->longest = 0;
    shared->is_observed = true;
    while (!is_faulty() && (shared->rounds - begun < rounds || shared->turns < turns || shared->deals < deals || load_lasts(&clock, duration))) {
        const resources now = count_resources(scene->victim.pid);
        extend_resources(&scene->most, &now);
        check_processes(scene, when);
        if (!load_lasts(&clock, patience + duration))
            fault("%s the healthy peer waits: %u of %u rounds, %u turns, %u deals", when, shared->rounds - begun, rounds,
                  (unsigned)shared->turns, (unsigned)shared->deals);
        (void)poll(NULL, 0, 3);
    }
    const double elapsed = (double)load_elapsed(&clock);
    return (pace){.per_second = (shared->rounds - begun) * 1e9 / elapsed,
                  .longest_ms = (double)shared->longest / 1e6,
                  .waited_ms = since(wait, count_wait(scene)) / 1e6,
                  .processors = since(time, count_time(scene)) / elapsed};
}

/* The rounds wait for processors, too: what other programs take is not the hostile peer's. */
static void check_pace(const scene *scene, const pace *pace, double further, const char *when) {
    const struct pace *usual = &scene->usual_pace;
    const double longest = bounds.longest_ms + pace->waited_ms, least = bounds.share * usual->per_second;
    /* More rounds need more of them. */
    const double more = pace->per_second > usual->per_second ? pace->per_second / usual->per_second : 1;
    const double processors = 1.5 * more * usual->processors + further;
    if (!judges_pace) return;
    if (pace->longest_ms > longest) fault("%s the healthy peer waited %.0f ms, at most %.0f are permitted", when, pace->longest_ms, longest);
    if (pace->per_second < least)
        fault("%s the healthy peer made %.1f rounds per second, at least %.1f are promised", when, pace->per_second, least);
    if (pace->processors > processors)
        fault("%s the victim needed %.2f processors, at most %.2f are permitted", when, pace->processors, processors);
}

static void check_bounded(const scene *scene) {
    const resources *most = &scene->most, *usual = &scene->usual;
    if (most->files > usual->files + form->files) fault("the victim had %zu files, usually %zu", most->files, usual->files);
    if (most->threads > usual->threads + form->threads) fault("the victim had %zu threads, usually %zu", most->threads, usual->threads);
    if (most->bytes > usual->bytes + form->bytes)
        fault("the victim had %llu bytes, usually %llu", (unsigned long long)most->bytes, (unsigned long long)usual->bytes);
}

static void check_returned(const scene *scene) {
    const load_clock clock = load_begin();
    const resources *usual = &scene->usual;
    while (!is_faulty()) {
        const resources now = count_resources(scene->victim.pid);
        if (now.files <= usual->files && now.threads <= usual->threads && now.bytes <= usual->bytes + form->bytes) return;
        check_processes(scene, "afterwards");
        if (!load_lasts(&clock, patience))
            fault("resources are left: %zu files, %zu threads, %llu bytes; usually %zu, %zu, %llu", now.files, now.threads,
                  (unsigned long long)now.bytes, usual->files, usual->threads, (unsigned long long)usual->bytes);
        (void)poll(NULL, 0, 3);
    }
}

static void await_parting(const scene *scene) {
    const load_clock clock = load_begin();
    while (!is_faulty() && shared->met != NO_ROW) {
        check_processes(scene, "afterwards");
        if (!load_lasts(&clock, patience)) fault("a call of the victim with the hostile peer does not end");
        (void)poll(NULL, 0, 3);
    }
}

static void report(const scene *scene, const hostile_row *row, unsigned rounds) {
    const resources *most = &scene->most, *usual = &scene->usual;
    printf("        %s: %u rounds, %u turns, %u deals; %.0f rounds per second, the longest %.1f ms; in addition %lld files, %lld threads, "
           "%lld KiB, %.2f processors%s%s\n",
           row->does, rounds, (unsigned)shared->turns, (unsigned)shared->deals, scene->pace.per_second, scene->pace.longest_ms,
           (long long)(most->files - usual->files),
           (long long)(most->threads - usual->threads), (long long)(most->bytes - usual->bytes) / 1024, scene->pace.processors, is_faulty() ? ": " : "", found);
    fflush(stdout);
}

static void add_to_worst(scene *scene) {
    const pace *now = &scene->pace;
    pace *worst = &scene->worst;
    if (now->per_second < worst->per_second) worst->per_second = now->per_second;
    if (now->longest_ms > worst->longest_ms) worst->longest_ms = now->longest_ms;
    if (now->processors > worst->processors) worst->processors = now->processors;
}

static void run_row(scene *scene, const hostile_row *row) {
    const uint32_t index = (uint32_t)(row - form->rows);
    const bool deals = form->victim.deal != NULL, lasts = load_is_asked();
    const uint64_t duration = lasts ? load_duration() : 0, quiet = duration < SECONDS(1) ? duration : SECONDS(1);
    const unsigned before = shared->rounds;
    shared->turns = shared->deals = 0;
    shared->is_observed = false;
    scene->most = (resources){0};
    scene->hostile = peer_start("hostile");
    frame_send(scene->hostile.socket, OPENED_ALL, &index, sizeof(index));
    frame_await(scene->hostile.socket, OPENED_ALL);
    if (deals) shared->row = index;
    scene->pace = observe(scene, ROUNDS, lasts ? 1 : turns_of(row), deals ? 2 : 0, duration, "while it acts,");
    check_pace(scene, &scene->pace, bounds.processors, "while it acts,");
    add_to_worst(scene);
    if (row->stops && !is_faulty()) {
        peer_freeze(&scene->hostile);
        const pace stopped = observe(scene, ROUNDS, 0, deals ? shared->deals + 2 : 0, quiet, "while it is stopped,");
        check_pace(scene, &stopped, QUIET, "while it is stopped,");
    }
    peer_kill(&scene->hostile);
    shared->row = NO_ROW;
    await_parting(scene);
    const pace afterwards = observe(scene, ROUNDS, 0, 0, quiet, "afterwards");
    check_pace(scene, &afterwards, QUIET, "afterwards");
    check_bounded(scene);
    check_returned(scene);
    report(scene, row, shared->rounds - before);
}

static void open_scene(scene *scene, const scratch *folder) {
    CHECK_EQ(chmod(folder->path, 0755), 0);
    CHECK_EQ(setenv(FOLDER, folder->path, 1), 0);
    attach(true);
    shared->row = shared->met = NO_ROW;
    *scene = (struct scene){.victim = peer_start("victim"), .healthy = peer_start("healthy")};
    frame_await(scene->victim.socket, OPENED_ALL);
    frame_await(scene->healthy.socket, OPENED_ALL);
    found[0] = '\0';
    observe(scene, ROUNDS, 0, 0, 0, "before,");
    scene->most = (resources){0};
    scene->usual_pace = observe(scene, usual_rounds, 0, 0, load_is_asked() ? load_duration() : 0, "before,");
    scene->worst = (pace){.per_second = scene->usual_pace.per_second};
    scene->usual = scene->most;
}

static void close_scene(scene *scene) {
    shared->has_ended = true;
    if (!is_faulty()) {
        /* First the one that uses the other. */
        peer_finish(form->victim.round != NULL ? &scene->victim : &scene->healthy);
        peer_finish(&scene->healthy);
        peer_finish(&scene->victim);
    } else {
        peer_kill(&scene->healthy);
        peer_kill(&scene->victim);
    }
}

void hostile_walk(void) {
    SCRATCH(folder);
    scene scene;
    judges_pace = load_duration() >= SECONDS(1);
    bounds = form->bounds;
    open_scene(&scene, &folder);
    const char *chosen = getenv("KVMEM_TEST_HOSTILE");
    size_t count = 0;
    for (const hostile_row *row = form->rows; row < form->rows + form->num_rows && !is_faulty(); row++) {
        if (chosen != NULL ? strstr(row->does, chosen) == NULL : row->is_long && !load_is_asked()) continue;
        run_row(&scene, row);
        count++;
    }
    close_scene(&scene);
    if (is_faulty()) FAIL("%s", found);
    load_report("%zu behaviours, %u rounds of the healthy peer: at least %.0f per second, without a hostile one %.0f; at most %.0f ms for "
                "a round, without %.0f; at most %.2f processors, without %.2f",
                count, (unsigned)shared->rounds, scene.worst.per_second, scene.usual_pace.per_second, scene.worst.longest_ms,
                scene.usual_pace.longest_ms, scene.worst.processors, scene.usual_pace.processors);
}

void hostile_finds(const char *does, const char *expected) {
    SCRATCH(folder);
    scene scene;
    const hostile_row *row = form->rows;
    while (strcmp(row->does, does) != 0) CHECK(++row < form->rows + form->num_rows);
    open_scene(&scene, &folder);
    /* What never ends is found after it. */
    patience = expected != NULL ? SECONDS(5) : PATIENCE;
    run_row(&scene, row);
    close_scene(&scene);
    patience = PATIENCE;
    if (expected == NULL) CHECK_STR(found, "");
    else CHECK_HAS(found, expected);
}

void hostile_finds_beyond(const char *does, hostile_bounds exceeded, const char *fault) {
    judges_pace = true;
    bounds = exceeded;
    usual_rounds = 100;
    hostile_finds(does, fault);
    judges_pace = false;
    usual_rounds = 2 * ROUNDS;
}
