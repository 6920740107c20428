// SPDX-License-Identifier: Apache-2.0
// The harness itself: its checks fail and print where and why, and its counters and peers work.
#include "harness.h"

ROLE(echo) {
    uint32_t tag = 0;
    CLEANUP(message_free) message received = frame_receive(socket, &tag);
    frame_send(socket, tag + 1, received.data, received.size);
}

ROLE(fail_at_once) {
    (void)socket;
    _exit(7);
}

static char printed[4096];

/* Runs `run` in a child that must exit with `code`, and keeps its output. */
static void run_in_child(int (*run)(const void *what), const void *what, int code) {
    int output[2];
    CHECK_EQ(pipe2(output, O_CLOEXEC), 0);
    fflush(stdout);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        test_leave_cases();
        dup2(output[1], STDOUT_FILENO);
        const int found = run(what);
        fflush(stdout);
        _exit(found);
    }
    close(output[1]);
    const int state = child_end(pid);
    const ssize_t size = read(output[0], printed, sizeof(printed) - 1);
    close(output[0]);
    CHECK(size > 0);
    printed[size] = '\0';
    CHECK(WIFEXITED(state));
    CHECK_EQ(WEXITSTATUS(state), code);
}

typedef struct failing {
    void (*check)(void);
} failing;

static int run_check(const void *what) {
    ((const failing *)what)->check();
    return EXIT_SUCCESS;
}

/* Runs `check` in a child, where it must fail, and keeps its output. */
static void expect_fails(void (*check)(void), const char *part) {
    const failing what = {check};
    run_in_child(run_check, &what, EXIT_FAILURE);
    CHECK_HAS(printed, ".c:");
    CHECK_HAS(printed, part);
}

/* Defines a function that makes a check. */
#define FAILS(name, check)                                                                           \
    static void name(void) {                                                                         \
        check;                                                                                       \
    }
FAILS(fail_condition, CHECK(1 + 1 == 3))
FAILS(fail_number, CHECK_EQ(40 + 2, 43))
FAILS(fail_string, CHECK_STR("left", "right"))
FAILS(fail_part, CHECK_HAS("haystack", "needle"))
FAILS(fail_bytes, CHECK_BYTES("abcd", "abxd", 4))
FAILS(fail_filled, CHECK_FILLED("aab", 'a', 3))
FAILS(fail_status, EXPECT_OK(kvmem_queue_create(NULL, ERR)))
FAILS(fail_message, EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "no such words", kvmem_queue_create(NULL, ERR)))

static void fail_lost_error(void) {
    kvmem_error **slot = ERR; /* passed as the error, but never set */
    CHECK(*slot == NULL);
    test_check_status(__FILE__, __LINE__, "nothing", KVMEM_STATUS_IO, KVMEM_STATUS_IO);
}

TEST(checks_fail_and_print_why) {
    expect_fails(fail_condition, "expected 1 + 1 == 3");
    expect_fails(fail_number, "expected 43 (0x2b), got 42");
    expect_fails(fail_string, "expected \"right\", got \"left\"");
    expect_fails(fail_part, "expected \"needle\" in \"haystack\"");
    expect_fails(fail_bytes, "1 of 4 bytes differ, first at 2");
    expect_fails(fail_filled, "expected 0x61 at byte 2, got 0x62");
    expect_fails(fail_status, "expected KVMEM_STATUS_OK, got KVMEM_STATUS_INVALID_ARGUMENT: ");
    expect_fails(fail_message, "no such words");
    expect_fails(fail_lost_error, "filled no error");
}

static void fail_guard_band(void) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    kv_side side;
    kv_side_open(&side, &config, NULL, 1);
    side.memory[side.starts[1] + kv_region_size(&config)] ^= 1; /* one byte past a region */
    kv_side_check(&side);
}

TEST_CALL(a_byte_past_a_region_is_detected, expect_fails(fail_guard_band, "1 of "))

TEST(counters_count) {
    const size_t files = count_open_files();
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    CHECK_EQ(count_open_files(), files + 1);
    close(file);
    CHECK_EQ(count_open_files(), files);
    const int of_allocator = open("/sys/devices/system/cpu/online", O_RDONLY | O_CLOEXEC);
    CHECK(of_allocator >= 0);
    CHECK_EQ(count_open_files(), files); /* any thread may open it at any time, in a call of malloc */
    close(of_allocator);
    const int memory = memfd_create("counted", MFD_CLOEXEC);
    CHECK(memory >= 0 && ftruncate(memory, 4096) == 0);
    const size_t mappings = count_file_mappings();
    void *of_memory = mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory, 0);
    CHECK(of_memory != MAP_FAILED);
    CHECK_EQ(count_file_mappings(), mappings + 1);
    CHECK_EQ(munmap(of_memory, 4096), 0);
    close(memory);
    CHECK_EQ(count_file_mappings(), mappings);
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    CHECK(is_mapped((uintptr_t)page + 8191));
    CHECK_EQ(count_resident_pages((uintptr_t)page, 8192), 0);
    page[0] = 1;
    CHECK_EQ(count_resident_pages((uintptr_t)page, 8192), 1);
    CHECK_EQ(munmap(page, 8192), 0);
    CHECK(!is_mapped((uintptr_t)page));
}

TEST(a_peer_replies_and_is_reaped) {
    KEEPS_FILES;
    CLEANUP(peer_finish) peer peer = peer_start("echo");
    frame_send(peer.socket, 41, "hello", 5);
    CLEANUP(message_free) message reply = frame_expect(peer.socket, 42);
    CHECK_EQ(reply.size, 5);
    CHECK_BYTES(reply.data, "hello", 5);
}

FAILS(passes, (void)0)
FAILS(fails, FAIL("deliberate"))
FAILS(skips, SKIP("a %s: this machine has none", "unicorn"))

static void skips_a_part(void) {
    for (int i = 0; i < 3; i++) SKIP_PART("a unicorn's %s", "horn");
    SKIP_PART("a unicorn's mane");
}

static void fails_after_a_skipped_part(void) {
    SKIP_PART("a unicorn's tail");
    fails();
}

static const char *lacks_all(void) { return "everything"; }

typedef struct nested {
    const test_suite *suite;
    const char *record_path;
} nested;

static int run_suite(const void *what) {
    const nested *own = what;
    setenv("KVMEM_TEST_SKIPS", own->record_path, 1);
    return test_main(1, (char *[]){"nested", NULL}, own->suite);
}

static char record[1024];

/* Runs cases in a child that must exit with `code`, and keeps its output and its record. */
static void run_nested(const test_suite *suite, int code) {
    /* Not a scratch file, because the child removes those at its end. */
    CLEANUP(test_close) const int record_file = memfd_create("record", MFD_CLOEXEC);
    CHECK(record_file >= 0);
    char record_path[64];
    snprintf(record_path, sizeof(record_path), "/proc/self/fd/%d", record_file);
    const nested what = {suite, record_path};
    run_in_child(run_suite, &what, code);
    memset(record, 0, sizeof(record));
    const ssize_t recorded = pread(record_file, record, sizeof(record), 0);
    CHECK(recorded >= 0 && (size_t)recorded < sizeof(record));
}

#define NESTED(...)                                                                                  \
    (&(test_suite){.cases = (const test_case[]){__VA_ARGS__}, .num_cases = NUM(((const test_case[]){__VA_ARGS__}))})

TEST(a_skip_is_printed_and_recorded_and_sets_the_exit_code) {
    run_nested(NESTED(CASE(passes), CASE(skips), CASE(passes)), EXIT_SKIPPED);
    CHECK_HAS(printed, "ok      passes\nskipped skips: a unicorn: this machine has none\nok      passes\n"
                       "3 cases, 0 failed, 1 skipped or skipped in part\n");
    CHECK_STR(record, "unit_harness\tskips\ta unicorn: this machine has none\n");
    run_nested(NESTED(CASE(skips_a_part)), EXIT_SKIPPED);
    CHECK_HAS(printed, "partly  skips_a_part: a unicorn's horn\npartly  skips_a_part: a unicorn's mane\n"
                       "ok      skips_a_part\n1 cases, 0 failed, 1 skipped or skipped in part\n");
    CHECK_STR(record, "unit_harness\tskips_a_part\ta unicorn's horn\nunit_harness\tskips_a_part\ta unicorn's mane\n");
}

TEST(a_failure_outweighs_a_skip) {
    run_nested(NESTED(CASE(skips), CASE(fails)), EXIT_FAILURE);
    run_nested(NESTED(CASE(fails_after_a_skipped_part)), EXIT_FAILURE);
    CHECK_HAS(printed, "FAILED  fails_after_a_skipped_part");
    run_nested(NESTED(CASE(passes)), EXIT_SUCCESS);
    CHECK_STR(record, "");
}

TEST(a_missing_requirement_skips_all_cases) {
    const test_case table[] = {CASE(passes), CASE(fails)};
    const test_suite suite = {.cases = table, .num_cases = NUM(table), .lacks = lacks_all};
    run_nested(&suite, EXIT_SKIPPED);
    CHECK_STR(record, "unit_harness\tpasses\teverything\nunit_harness\tfails\teverything\n");
}

FAILS(skip_outside_a_case, SKIP("nothing"))

TEST_CALL(a_skip_outside_a_case_is_a_failure, expect_fails(skip_outside_a_case, "a skip outside a case"))

static void finish_failed_peer(void) { CLEANUP(peer_finish) peer peer = peer_start("fail_at_once"); }

static void talk_to_failed_peer(void) {
    peer peer = peer_start("fail_at_once");
    frame_expect(peer.socket, 1);
}

TEST(a_peer_that_fails_fails_its_test) {
    expect_fails(finish_failed_peer, "WEXITSTATUS(state): expected 0 (0x0), got 7");
    expect_fails(talk_to_failed_peer, "the other process has ended");
}

TEST(peers_freeze_thaw_and_die) {
    peer peer = peer_start("echo");
    const pid_t pid = peer.pid;
    peer_freeze(&peer);
    frame_send(peer.socket, 1, "x", 1);
    peer_thaw(&peer);
    free(frame_expect(peer.socket, 2).data);
    peer_kill(&peer);
    CHECK_EQ(kill(pid, 0), -1);
}
