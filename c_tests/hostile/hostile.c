// SPDX-License-Identifier: Apache-2.0
#include "hostile.h"

#include "thread_count.h"

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

/* What the processes see of each other. */
typedef struct state {
    atomic_uint row;     /* of the hostile peer that the victim deals with, or NO_ROW */
    atomic_uint turns;   /* of the hostile peer of this row */
    atomic_uint rounds;  /* of the healthy peer and the victim */
    atomic_uint deals;   /* of the victim with the hostile peer of this row */
    atomic_uint met;     /* the row of the hostile peer that the victim has objects for, or NO_ROW */
    atomic_bool is_observed, has_ended;
    _Atomic uint64_t longest; /* nanoseconds of a round, since it was observed */
} state;

static state *shared;
static const hostile_form *const form = &hostile_form_here;
static unsigned own_row = NO_ROW;

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

void hostile_put(const char *name, const void *data, size_t size) {
    char temporary[210], path[200];
    snprintf(path, sizeof(path), "%s", hostile_path(name));
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    write_file(temporary, data, size);
    CHECK_EQ(chmod(temporary, 0644), 0);
    CHECK_EQ(rename(temporary, path), 0);
}

message hostile_take(const char *name) {
    const char *path = hostile_path(name);
    AWAIT(access(path, F_OK) == 0);
    message taken = {.size = file_length(path)};
    taken.data = test_allocate(taken.size + 1);
    FILE *file = fopen(path, "re");
    CHECK(file != NULL);
    CHECK_EQ(fread(taken.data, 1, taken.size, file), taken.size);
    fclose(file);
    return taken;
}

void hostile_put_layout(kvmem_agent *agent, const kvmem_layout *layout) {
    CLEANUP(message_free) message metadata = agent_metadata(agent);
    CLEANUP(message_free) message descriptor = layout_descriptor(layout);
    hostile_put("metadata", metadata.data, metadata.size);
    hostile_put("descriptor", descriptor.data, descriptor.size);
}

message hostile_take_layout(kvmem_agent *agent, kvmem_layout **layout) {
    CLEANUP(message_free) message metadata = hostile_take("metadata");
    const message descriptor = hostile_take("descriptor");
    agent_load(agent, &metadata);
    *layout = MADE(kvmem_layout, kvmem_layout_import, agent, descriptor.data, descriptor.size);
    return descriptor;
}

unsigned hostile_deals(void) { return shared->deals; }

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

static void *make_rounds(void *round) {
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
    frame_send(socket, OPENED_ALL, NULL, 0);
    threads rounds, other;
    if (round != NULL) threads_start(&rounds, 1, make_rounds, &round, sizeof(round));
    if (deals != NULL) threads_start(&other, 1, deal, NULL, 0);
    CHECK(!frame_arrives(socket));
    if (round != NULL) threads_join(&rounds);
    if (deals != NULL) threads_join(&other);
}

ROLE(victim) {
    attach(false);
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

typedef struct resources {
    size_t files, threads;
    uint64_t bytes;
} resources;

static uint64_t patience = PATIENCE;
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

/* Memory of its own and memory that it shares. */
static uint64_t count_bytes(pid_t process) {
    char path[64], line[128];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)process);
    FILE *status = fopen(path, "re");
    CHECK(status != NULL);
    uint64_t sum = 0;
    unsigned long long kib = 0;
    while (fgets(line, sizeof(line), status) != NULL)
        if (sscanf(line, "RssAnon: %llu", &kib) == 1 || sscanf(line, "RssShmem: %llu", &kib) == 1) sum += kib << 10;
    fclose(status);
    return sum;
}

static resources count_resources(const peer *victim) {
    char files[64];
    snprintf(files, sizeof(files), "/proc/%d/fd", (int)victim->pid);
    return (resources){count_directory_entries(files), count_threads_of(victim->pid), count_bytes(victim->pid)};
}

static void extend(resources *most, const resources *now) {
    if (now->files > most->files) most->files = now->files;
    if (now->threads > most->threads) most->threads = now->threads;
    if (now->bytes > most->bytes) most->bytes = now->bytes;
}

/* Of the rounds of the healthy peer. */
typedef struct pace {
    double per_second, longest_ms;
} pace;

typedef struct scene {
    peer victim, healthy, hostile;
    resources usual;    /* of the victim with the healthy peer alone */
    resources most;     /* in this row */
    pace usual_pace;    /* with the healthy peer alone */
    pace pace;          /* while the hostile one acts */
    pace slowest;       /* the fewest rounds per second, and the longest round, of all rows */
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

/* Observes the victim until a number of rounds, and what else is awaited. Returns the pace of the rounds. */
static pace observe(scene *scene, unsigned rounds, unsigned turns, unsigned deals, uint64_t duration, const char *when) {
    const load_clock clock = load_begin();
    const unsigned begun = shared->rounds;
    shared->longest = 0;
    shared->is_observed = true;
    while (!is_faulty() && (shared->rounds - begun < rounds || shared->turns < turns || shared->deals < deals || load_lasts(&clock, duration))) {
        const resources now = count_resources(&scene->victim);
        extend(&scene->most, &now);
        check_processes(scene, when);
        if (!load_lasts(&clock, patience + duration))
            fault("%s the healthy peer waits: %u of %u rounds, %u turns, %u deals", when, shared->rounds - begun, rounds,
                  (unsigned)shared->turns, (unsigned)shared->deals);
        (void)poll(NULL, 0, 3);
    }
    return (pace){(shared->rounds - begun) * 1e9 / (double)load_elapsed(&clock), (double)shared->longest / 1e6};
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
        const resources now = count_resources(&scene->victim);
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
           "%lld KiB%s%s\n",
           row->does, rounds, (unsigned)shared->turns, (unsigned)shared->deals, scene->pace.per_second, scene->pace.longest_ms,
           (long long)(most->files - usual->files),
           (long long)(most->threads - usual->threads), (long long)(most->bytes - usual->bytes) / 1024, is_faulty() ? ": " : "", found);
    fflush(stdout);
}

static void run_row(scene *scene, const hostile_row *row) {
    const uint32_t index = (uint32_t)(row - form->rows);
    const bool deals = form->victim.deal != NULL, lasts = load_is_asked();
    const unsigned before = shared->rounds;
    shared->turns = shared->deals = 0;
    shared->is_observed = false;
    scene->most = (resources){0};
    scene->hostile = peer_start("hostile");
    frame_send(scene->hostile.socket, OPENED_ALL, &index, sizeof(index));
    frame_await(scene->hostile.socket, OPENED_ALL);
    if (deals) shared->row = index;
    scene->pace = observe(scene, ROUNDS, lasts ? 1 : turns_of(row), deals ? 2 : 0, lasts ? load_duration() : 0, "while it acts,");
    if (scene->pace.per_second < scene->slowest.per_second) scene->slowest.per_second = scene->pace.per_second;
    if (scene->pace.longest_ms > scene->slowest.longest_ms) scene->slowest.longest_ms = scene->pace.longest_ms;
    if (row->stops && !is_faulty()) {
        peer_freeze(&scene->hostile);
        observe(scene, ROUNDS, 0, deals ? shared->deals + 2 : 0, 0, "while it is stopped,");
    }
    peer_kill(&scene->hostile);
    shared->row = NO_ROW;
    await_parting(scene);
    observe(scene, ROUNDS, 0, 0, 0, "afterwards");
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
    scene->usual_pace = observe(scene, 2 * ROUNDS, 0, 0, load_is_asked() ? load_duration() : 0, "before,");
    scene->slowest = (pace){scene->usual_pace.per_second, 0};
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
                "a round, without %.0f",
                count, (unsigned)shared->rounds, scene.slowest.per_second, scene.usual_pace.per_second, scene.slowest.longest_ms,
                scene.usual_pace.longest_ms);
}

void hostile_finds(const char *does, const char *expected) {
    SCRATCH(folder);
    scene scene;
    const hostile_row *row = form->rows;
    while (strcmp(row->does, does) != 0) CHECK(++row < form->rows + form->num_rows);
    /* What never ends is found after it. */
    patience = expected != NULL ? SECONDS(5) : PATIENCE;
    open_scene(&scene, &folder);
    run_row(&scene, row);
    close_scene(&scene);
    if (expected == NULL) CHECK_STR(found, "");
    else CHECK_HAS(found, expected);
}
