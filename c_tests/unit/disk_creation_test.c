// SPDX-License-Identifier: Apache-2.0
// What happens to a file while it is created: forks, other writers, signals, and a process that is killed in
// the middle.
#include "harness.h"
#include "held_call.h"

#include <sys/mman.h>

enum { BLOCKS = 64, BLOCK = 4096 };

static const char *path;
static _Atomic kvmem_status outcome; /* a test reads it while the call is held */

/* A layout of a number of blocks in the file, which has a fingerprint. */
static kvmem_status build(uint64_t blocks, uint64_t flags, kvmem_layout **layout) {
    const kvmem_layout_config config = OPTIONS(
        kvmem_layout_config, it.num_blocks = blocks, it.num_layers = 1, it.outer_dim = 1, it.page_size = 1,
        it.inner_dim = BLOCK, it.dtype_width = 1, it.order = KVMEM_ORDER_FULLY_CONTIGUOUS);
    kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.path = path,
                                      it.flags = flags | KVMEM_DISK_BUFFERED);
    return kvmem_layout_build(REF(OPTIONS(kvmem_layout_options, it.config = &config, it.disk = &disk,
                                          it.source = KVMEM_LAYOUT_ALLOCATE)),
                              layout, ERR);
}

static void build_in_new_file(void) {
    OWNED(kvmem_layout) layout = NULL;
    outcome = build(2, 0, &layout);
    test_forget_error();
}

static void open_or_build(void) {
    OWNED(kvmem_layout) layout = NULL;
    outcome = build(BLOCKS, KVMEM_DISK_OPEN_OR_CREATE, &layout);
    test_forget_error();
}

static void must_open_or_build(void) {
    open_or_build();
    CHECK_EQ(outcome, KVMEM_STATUS_OK);
    CHECK_EQ(file_length(path), BLOCKS * BLOCK + 4096);
}

static bool is_lock(const uint64_t *arguments) { return arguments[1] == F_OFD_SETLK; }

static bool opens_again(const uint64_t *arguments) {
    return strncmp((const char *)(uintptr_t)arguments[OPENED_PATH], "/proc/thread-self/fd/", 21) == 0;
}

/* A file system may take any time to open the file. */
TEST(a_fork_does_not_wait_for_a_file_that_is_opened) {
    SCRATCH_FILE(file, "cache");
    path = file;
    held_call_begin(open_or_build, OPEN_CALL, opens_again);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(0);
    child_succeeds(child);
    held_call_end();
    CHECK_EQ(outcome, KVMEM_STATUS_OK);
}

static void write_blocks(char value) {
    char block[BLOCK];
    memset(block, value, sizeof(block));
    CLEANUP(test_close) const int file = open(path, O_RDWR | O_CLOEXEC);
    for (int i = 0; i < BLOCKS; i++)
        CHECK_EQ(pwrite(file, block, sizeof(block), (off_t)i * BLOCK), sizeof(block));
}

static void check_blocks(char value) {
    char block[BLOCK];
    CLEANUP(test_close) const int file = open(path, O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < BLOCKS; i++) {
        CHECK_EQ(pread(file, block, sizeof(block), (off_t)i * BLOCK), sizeof(block));
        CHECK_FILLED(block, (unsigned char)value, sizeof(block));
    }
}

static kvmem_region *written;

static void write_back(void) { outcome = kvmem_region_sync(written, ERR); }

static bool any(const uint64_t *arguments) {
    (void)arguments;
    return true;
}

/* The medium may take any time. */
TEST(nothing_waits_for_a_file_that_is_written_back) {
    SCRATCH_FILE(file, "cache");
    SCRATCH_FILE(other, "other");
    written = MADE(kvmem_region, kvmem_region_create_disk,
                   REF(OPTIONS(kvmem_disk_options, it.path = file, it.size = BLOCK, it.flags = KVMEM_DISK_BUFFERED)));
    outcome = KVMEM_STATUS_IN_PROGRESS;
    held_call_begin(write_back, SYS_fdatasync, any);
    CHECK_EQ(region_info(written).size, BLOCK);
    OWN(kvmem_region, of_other, kvmem_region_create_disk,
        REF(OPTIONS(kvmem_disk_options, it.path = other, it.size = BLOCK, it.flags = KVMEM_DISK_BUFFERED)));
    OWN(kvmem_blob, named, kvmem_region_get_path, written);
    CHECK_STR(kvmem_blob_data(named), file);
    CHECK_EQ(outcome, KVMEM_STATUS_IN_PROGRESS);
    held_call_end();
    CHECK_EQ(outcome, KVMEM_STATUS_OK);
    DESTROYED(kvmem_region, written);
}

/* The first creator is stopped before it has locked the file. */
TEST(a_file_that_another_writer_has_filled_is_not_changed) {
    SCRATCH_FILE(file, "cache");
    path = file;
    held_call_begin(build_in_new_file, SYS_fcntl, is_lock);
    must_open_or_build();
    write_blocks('B');
    held_call_end();
    CHECK_EQ(outcome, KVMEM_STATUS_ALREADY_EXISTS);
    check_blocks('B');
    must_open_or_build();
    check_blocks('B');
    /* With OPEN_OR_CREATE it opens what the other one has made. */
    CHECK_EQ(unlink(path), 0);
    held_call_begin(open_or_build, SYS_fcntl, is_lock);
    must_open_or_build();
    write_blocks('C');
    held_call_end();
    CHECK_EQ(outcome, KVMEM_STATUS_OK);
    check_blocks('C');
}

/* Also while the other one still writes, and if the first one cannot lock the file at all. */
TEST(a_file_that_another_writer_uses_is_not_removed) {
    SCRATCH_FILE(file, "cache");
    path = file;
    OWNED(kvmem_layout) writer = NULL;
    held_call_begin(build_in_new_file, SYS_fcntl, is_lock);
    EXPECT_OK(build(BLOCKS, KVMEM_DISK_OPEN_OR_CREATE, &writer));
    held_call_end();
    CHECK_EQ(outcome, KVMEM_STATUS_BUSY);
    CHECK_EQ(file_length(path), BLOCKS * BLOCK + 4096);
}

/* The call of a number of its kind: what happens at it. */
static int calls_until;
static bool is_killed;
static long number;

/* Calls that no signal interrupts. */
static bool is_local(const uint64_t *arguments) {
    return number == SYS_fcntl && arguments[1] != F_OFD_SETLK && arguments[1] != F_OFD_GETLK &&
           arguments[1] != F_GETFL && arguments[1] != F_SETFL;
}

static int at_the_call(const uint64_t *arguments) {
    if (is_local(arguments) || calls_until-- != 0) return 0;
    if (is_killed) CHECK_EQ(kill(getpid(), SIGKILL), 0);
    return EINTR;
}

static const long of_creation[] = {OPEN_CALL,     SYS_fcntl,    SYS_pwrite64, SYS_ftruncate,
                                   SYS_fallocate, SYS_fdatasync, SYS_close};

static void create_region(void) {
    kvmem_disk_options options = OPTIONS(kvmem_disk_options, it.path = path, it.size = BLOCKS * BLOCK + 4096,
                                         it.flags = KVMEM_DISK_OPEN_OR_CREATE);
    OWNED(kvmem_region) region = NULL;
    outcome = kvmem_region_create_disk(&options, &region, ERR);
    test_forget_error();
}

/* Whether `body` was killed at this call. */
static bool is_killed_at(void (*body)(void), int call) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        test_leave_cases();
        alarm(PATIENCE_SECONDS);
        is_killed = true;
        calls_until = call;
        held_call_decide(body, number, at_the_call);
        _exit(outcome == KVMEM_STATUS_OK ? 0 : 1);
    }
    const int state = child_end(child);
    if (WIFSIGNALED(state)) CHECK_EQ(WTERMSIG(state), SIGKILL);
    else CHECK_EQ(WEXITSTATUS(state), 0);
    return WIFSIGNALED(state);
}

/* After the process was killed at any call, the file can be opened or created. */
static void kill_at_each_call(void (*body)(void)) {
#ifdef __SANITIZE_THREAD__
    SKIP_PART("a forked child: ThreadSanitizer ends one that starts threads");
    return;
#endif
    SCRATCH_FILE(file, "cache");
    path = file;
    int kills = 0;
    for (size_t i = 0; i < NUM(of_creation); i++) {
        number = of_creation[i];
        for (int call = 0; is_killed_at(body, call); call++, kills++) {
            is_killed = false;
            body();
            CHECK_EQ(outcome, KVMEM_STATUS_OK);
            CHECK_EQ(file_length(path), BLOCKS * BLOCK + 4096);
            CHECK_EQ(unlink(path), 0);
        }
        unlink(path);
    }
    CHECK(kills >= (int)NUM(of_creation));
}

TEST_CALL(a_region_opens_after_its_creator_was_killed, kill_at_each_call(create_region))
TEST_CALL(a_layout_opens_after_its_creator_was_killed, kill_at_each_call(open_or_build))

static const char *folder;

/* Every kind of file and of memory, and a socket, from the creation to the end. */
static void use_everything(void) {
    kvmem_disk_options options = OPTIONS(kvmem_disk_options, it.path = path, it.size = 8 * MIB);
    for (int i = 0; i < 2; i++) {
        OWN(kvmem_region, region, kvmem_region_create_disk, &options);
        EXPECT_OK(kvmem_region_sync(region, ERR));
        options.flags = KVMEM_DISK_OPEN_EXISTING;
    }
    CHECK_EQ(unlink(path), 0);
    for (int i = 0; i < 2; i++) {
        OWNED(kvmem_layout) layout = NULL;
        EXPECT_OK(build(BLOCKS, KVMEM_DISK_OPEN_OR_CREATE, &layout));
    }
    CHECK_EQ(unlink(path), 0);
    OWN(kvmem_region, temporary, kvmem_region_create_disk,
        REF(OPTIONS(kvmem_disk_options, it.directory = folder, it.size = MIB)));
    OWN(kvmem_region, memory, kvmem_region_create_system,
        REF(OPTIONS(kvmem_system_options, it.size = MIB, it.flags = KVMEM_SYSTEM_SHAREABLE,
                    it.prefault_threads = 1)));
    OWN(kvmem_share, share, kvmem_share_create_region, memory, NULL);
    OWN(kvmem_broker, broker, kvmem_broker_create,
        REF(OPTIONS(kvmem_broker_options, it.path = TEXT("%s/socket", folder))));
    test_forget_error();
}

TEST(a_signal_in_any_call_changes_nothing) {
    static const long calls[] = {OPEN_CALL,   SYS_fcntl,   SYS_pwrite64, SYS_pread64,  SYS_ftruncate,
                                 SYS_fallocate,
                                 SYS_fdatasync, SYS_madvise, SYS_fstatfs,  SYS_statx,    SYS_getrandom, SYS_fchmod,
                                 SYS_bind,    SYS_listen,
                                 SYS_newfstatat};
    SCRATCH(directory);
    folder = directory.path;
    char file[160];
    snprintf(file, sizeof(file), "%s", scratch_file(&directory, "cache"));
    path = file;
    for (size_t i = 0; i < NUM(calls); i++) {
        number = calls[i];
        int call = 0;
        do {
            calls_until = call++;
            held_call_decide(use_everything, number, at_the_call);
        } while (calls_until < 0);
        if (call < 2) FAIL("system call %ld is not made", number);
    }
}

enum { INTERRUPTED_FROM = 256 * 1024 };

static int interrupt_long_calls(const uint64_t *arguments) {
    return arguments[3] >= INTERRUPTED_FROM ? EINTR : 0;
}

static void create_large(void) {
    OWN(kvmem_region, region, kvmem_region_create_disk,
        REF(OPTIONS(kvmem_disk_options, it.path = path, it.size = 8 * MIB)));
    struct stat state;
    CHECK_EQ(stat(path, &state), 0);
    CHECK_EQ(state.st_size, 8 * MIB);
    CHECK(state.st_blocks * 512 >= (off_t)(8 * MIB));
    test_forget_error();
}

/* A call that loses its progress at each signal, and takes longer than the time between two, never ends. */
TEST(space_is_reserved_in_pieces_that_signals_allow) {
    SCRATCH_FILE(file, "cache");
    path = file;
    held_call_decide(create_large, SYS_fallocate, interrupt_long_calls);
}

/* A file system without files that have no name, such as NFS. */
static char names[2][160];
static size_t num_names;

static int without_nameless_files(const uint64_t *arguments) {
    if ((arguments[OPENED_PATH + 1] & O_TMPFILE) == O_TMPFILE) return EOPNOTSUPP;
    if (arguments[OPENED_PATH + 1] & O_CREAT) {
        CHECK(num_names < NUM(names));
        snprintf(names[num_names++], sizeof(names[0]), "%s", (const char *)(uintptr_t)arguments[OPENED_PATH]);
    }
    return 0;
}

static void create_temporary(void) {
    OWN(kvmem_region, region, kvmem_region_create_disk,
        REF(OPTIONS(kvmem_disk_options, it.directory = folder, it.size = MIB)));
    CHECK(region_info(region).flags & KVMEM_REGION_TEMPORARY);
    CHECK_EQ(count_directory_entries(folder), 0);
    test_forget_error();
}

TEST(names_of_temporary_files_are_random_and_removed_at_once) {
    SCRATCH(directory);
    folder = directory.path;
    num_names = 0;
    for (size_t i = 0; i < NUM(names); i++)
        held_call_decide(create_temporary, OPEN_CALL, without_nameless_files);
    CHECK_EQ(num_names, NUM(names));
    CHECK(strcmp(names[0], names[1]) != 0);
    for (size_t i = 0; i < NUM(names); i++) {
        const char *name = strstr(names[i], "/.kvmem-");
        CHECK(name != NULL);
        CHECK_EQ(strlen(name), strlen("/.kvmem-") + 32);
    }
}

/* A directory of control groups with limits of memory, of either version, that this process may write. */
static const char *memory_groups(const char **limit) {
    const bool is_first = access("/sys/fs/cgroup/memory/memory.limit_in_bytes", F_OK) == 0;
    *limit = is_first ? "memory.limit_in_bytes" : "memory.max";
    return is_first ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
}

static const char *group;

static bool write_to_group(const char *name, const char *text) {
    const int file = open(TEXT("%s/%s", group, name), O_WRONLY | O_CLOEXEC);
    if (file < 0) return false;
    const bool is_written = write(file, text, strlen(text)) == (ssize_t)strlen(text);
    close(file);
    return is_written;
}

#define IN_MEMORY "/dev/shm"
enum { CANNOT_JOIN = 99 };

static void beyond_the_group(void) {
    if (!write_to_group("cgroup.procs", "0")) _exit(CANNOT_JOIN);
    kvmem_disk_options options = OPTIONS(kvmem_disk_options, it.directory = IN_MEMORY, it.size = 256 * MIB);
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "control group", kvmem_region_create_disk, &options);
    CHECK_HAS(test_last_message(), "tmpfs");
    options.size = MIB;
    kvmem_region_destroy(region_create_disk(&options));
}

/* Beyond the limit the kernel ends the process: each page of the file counts. */
TEST(a_file_in_memory_beyond_the_limit_of_the_control_group_fails) {
    const char *limit = NULL;
    char name[160];
    snprintf(name, sizeof(name), "%s/kvmem-test-%d", memory_groups(&limit), getpid());
    group = name;
    if (mkdir(group, 0700) != 0) SKIP("a control group of its own: %s", strerror(errno));
    bool is_limited = write_to_group(limit, "67108864");
    int state = 0;
    if (is_limited) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            test_leave_cases();
            alarm(PATIENCE_SECONDS);
            beyond_the_group();
            _exit(0);
        }
        state = child_end(child);
        is_limited = !WIFEXITED(state) || WEXITSTATUS(state) != CANNOT_JOIN;
    }
    /* until the kernel has removed the child from it */
    while (rmdir(group) != 0 && errno == EBUSY) sched_yield();
    if (!is_limited) SKIP("a control group of its own: no limit of memory");
    CHECK(WIFEXITED(state));
    CHECK_EQ(WEXITSTATUS(state), 0);
}
