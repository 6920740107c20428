// SPDX-License-Identifier: Apache-2.0
// Signals belong to the program: after NIXL's plugins are loaded, the program's handlers and default
// dispositions are in force. UCX installs its handler once per process, so each case has its own process.
// Handlers run on threads of the program: those of the library and of NIXL block all signals but those of
// faults.
#include "harness.h"

#include <dirent.h>

#define NUM_SIGNALS 32 /* without real-time signals */

enum { READY, RAISE };

static volatile sig_atomic_t num_hangups;

static void note_hangup(int number) {
    (void)number;
    num_hangups++;
}

static void get_dispositions(struct sigaction *actions) {
    for (int number = 1; number < NUM_SIGNALS; number++)
        CHECK_EQ(sigaction(number, NULL, &actions[number]), 0);
}

static bool are_equal(const struct sigaction *one, const struct sigaction *other) {
    bool are = one->sa_handler == other->sa_handler && one->sa_flags == other->sa_flags;
    for (int number = 1; number < NUM_SIGNALS; number++)
        are = are && sigismember(&one->sa_mask, number) == sigismember(&other->sa_mask, number);
    return are;
}

static void expect_unchanged(const struct sigaction *before, const char *when) {
    struct sigaction now[NUM_SIGNALS];
    get_dispositions(now);
    for (int number = 1; number < NUM_SIGNALS; number++) {
        if (!are_equal(&now[number], &before[number]))
            FAIL("the disposition of signal %d has changed: %s", number, when);
    }
}

/* All calls that make NIXL run code of a plugin. */
static void use_agents(const struct sigaction *before) {
    kvmem_agent *near = NULL;
    EXPECT_OK(kvmem_agent_create("near", NULL, &near, ERR));
    expect_unchanged(before, "an agent was created");
    EXPECT_OK(kvmem_agent_create_backend(near, "POSIX", NULL, 0, ERR));
    expect_unchanged(before, "a POSIX backend was created");
    kvmem_agent_create_backend(near, "GDS_MT", NULL, 0, NULL); /* it may fail to load */
    expect_unchanged(before, "a GDS_MT backend was created, or not");
    EXPECT_OK(kvmem_agent_create_backend(near, "UCX", NULL, 0, ERR));
    expect_unchanged(before, "a UCX backend was created");
    kvmem_agent *far = agent_open("far");
    expect_unchanged(before, "a second UCX backend was created");
    agents_introduce(near, far);
    EXPECT_OK(kvmem_agent_notify(near, "far", "hello", 5, ERR));
    agent_expect_notification(far, "near", "hello", 5);
    expect_unchanged(before, "a message was sent");
    kvmem_agent_destroy(near);
    kvmem_agent_destroy(far);
    expect_unchanged(before, "the agents were destroyed");
}

static void serve(int socket, void (*disposition)(int)) {
    struct sigaction before[NUM_SIGNALS];
    const struct sigaction hangup = {.sa_handler = disposition, .sa_flags = SA_RESTART};
    CHECK_EQ(sigaction(SIGHUP, &hangup, NULL), 0);
    get_dispositions(before);
    use_agents(before);
    frame_send(socket, READY, NULL, 0);
    free(frame_expect(socket, RAISE).data);
    CHECK_EQ(raise(SIGHUP), 0);
    const int hangups = num_hangups;
    frame_send(socket, RAISE, &hangups, sizeof(hangups));
}

ROLE(own_handler) {
    serve(socket, note_hangup);
}

ROLE(default_disposition) {
    serve(socket, SIG_DFL);
}

ROLE(ignored) {
    serve(socket, SIG_IGN);
}

static peer start(const char *role) {
    const peer started = peer_start(role);
    free(frame_expect(started.socket, READY).data);
    frame_send(started.socket, RAISE, NULL, 0);
    return started;
}

static void expect_continues(const char *role, int expected) {
    CLEANUP(peer_finish) peer program = start(role);
    int hangups = -1;
    frame_expect_into(program.socket, RAISE, &hangups, sizeof(hangups));
    CHECK_EQ(hangups, expected);
}

TEST_CALL(the_programs_handler_is_called, expect_continues("own_handler", 1))
TEST_CALL(an_ignored_signal_stays_ignored, expect_continues("ignored", 0))

TEST(by_default_the_signal_ends_the_program) {
    peer program = start("default_disposition");
    siginfo_t ended = {0};
    CHECK_EQ(waitid(P_PID, (id_t)program.pid, &ended, WEXITED | WNOWAIT), 0);
    CHECK_EQ(ended.si_code, CLD_KILLED);
    CHECK_EQ(ended.si_status, SIGHUP);
    peer_kill(&program); /* reaps it */
}

static uint64_t bit(int number) { return UINT64_C(1) << (number - 1); }

static uint64_t blocked_by_library(void) {
    const uint64_t faults =
        bit(SIGSEGV) | bit(SIGBUS) | bit(SIGILL) | bit(SIGFPE) | bit(SIGTRAP) | bit(SIGSYS);
    return (bit(NUM_SIGNALS) - 1) & ~(faults | bit(SIGKILL) | bit(SIGSTOP));
}

/* The standard signals that a thread of this process blocks. */
static uint64_t blocked_by(const char *thread) {
    char path[320], line[256];
    unsigned long long blocked = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%s/status", thread);
    FILE *status = fopen(path, "r");
    CHECK(status != NULL);
    bool is_found = false;
    while (!is_found && fgets(line, sizeof(line), status) != NULL)
        is_found = sscanf(line, "SigBlk: %llx", &blocked) == 1;
    fclose(status);
    CHECK(is_found);
    return blocked & (bit(NUM_SIGNALS) - 1);
}

static uint64_t blocked_by_caller(void) {
    char thread[32];
    snprintf(thread, sizeof(thread), "%ld", (long)getpid());
    return blocked_by(thread);
}

/* Returns the number of threads besides the first. */
static int expect_other_threads_block(uint64_t expected) {
    char first[32];
    int count = 0;
    snprintf(first, sizeof(first), "%ld", (long)getpid());
    DIR *threads = opendir("/proc/self/task");
    CHECK(threads != NULL);
    for (const struct dirent *each; (each = readdir(threads)) != NULL;) {
        if (each->d_name[0] == '.' || strcmp(each->d_name, first) == 0) continue;
        CHECK_EQ(blocked_by(each->d_name) & expected, expected); /* UCX has a thread that blocks faults too */
        count++;
    }
    closedir(threads);
    return count;
}

static void ignore_line(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level, (void)target, (void)message, (void)user_data;
}

TEST(threads_of_the_library_and_of_nixl_block_the_signals_of_the_process) {
    const kv_move move = KV_MOVE(4, {0, 1}, {63, 0}, {5, 63}, {6, 62}, {40, 7});
    KV_SIDES(source, destination, kv_large_config(&kv_kinds[0]), kv_large_config(&kv_kinds[0]));
    kv_job options = WITH(kv_job_of(&move), it.transfer.method = KVMEM_METHOD_MEMCPY);
    CHECK_EQ(blocked_by_caller(), 0);
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_ERROR, ignore_line, NULL, ERR));
    kvmem_agent *agent = agent_open("agent");
    OWNED(kvmem_transfer) transfer =
        MADE(kvmem_transfer, kv_prepare, source.layout, destination.layout, &options);
    RUN(transfer);
    CHECK(expect_other_threads_block(blocked_by_library()) >= 4); /* log, agent, NIXL's progress, copies */
    CHECK_EQ(blocked_by_caller(), 0);
    kvmem_agent_destroy(agent);
    EXPECT_OK(kvmem_log_set_callback(0, NULL, NULL, ERR));
    kv_side_check_moved(&destination, &source, &move);
}
