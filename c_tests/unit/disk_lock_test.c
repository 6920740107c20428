// SPDX-License-Identifier: Apache-2.0
// The lock of a file's writer: a second writer fails, a reader does not, and forked children do not keep the
// lock.
#include "harness.h"

static kvmem_status open_with(const char *path, uint64_t flags, kvmem_region **region) {
    kvmem_disk_options options = OPTIONS(kvmem_disk_options, it.path = path, it.flags = flags,
                                         it.size = 4096);
    return kvmem_region_create_disk(&options, region, ERR);
}

static kvmem_region *must_open(const char *path, uint64_t flags) {
    kvmem_region *region = NULL;
    EXPECT_OK(open_with(path, flags, &region));
    return region;
}

static void expect_busy(const char *path, uint64_t flags) {
    kvmem_region *region = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, path, open_with(path, flags, &region));
    CHECK_HAS(test_last_message(), "KVMEM_DISK_NO_LOCK");
    CHECK(region == NULL);
}

TEST(a_second_writer_fails) {
    SCRATCH_FILE(path, "cache");
    kvmem_region *first = must_open(path, 0);
    const size_t files = count_open_files();
    expect_busy(path, KVMEM_DISK_OPEN_EXISTING);
    expect_busy(path, KVMEM_DISK_OPEN_OR_CREATE);
    CHECK_EQ(count_open_files(), files);
    kvmem_region_destroy(must_open(path, KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_NO_LOCK));
    expect_busy(path, KVMEM_DISK_OPEN_EXISTING); /* closing the first reader has not released the lock */
    kvmem_region_destroy(first);
    kvmem_region_destroy(must_open(path, KVMEM_DISK_OPEN_EXISTING));
}

/* A reader can be a source while another process writes, and never a destination. */
TEST(a_reader_needs_no_lock) {
    SCRATCH_FILE(path, "cache");
    OWNED(kvmem_region) writer = must_open(path, KVMEM_DISK_BUFFERED);
    CHECK_EQ(pwrite(region_info(writer).fd, "x", 1, 0), 1);
    OWNED(kvmem_region) reader =
        must_open(path, KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_READ_ONLY | KVMEM_DISK_BUFFERED);
    CHECK(region_info(reader).flags & KVMEM_REGION_READ_ONLY);
    CHECK_EQ(region_info(writer).flags & KVMEM_REGION_READ_ONLY, 0);
    unsigned char byte = 0;
    OWNED(kvmem_region) memory = region_adopt(&byte, 1);
    OWNED(kvmem_layout) file_layout = region_lay_out(reader);
    OWNED(kvmem_layout) memory_layout = region_lay_out(memory);
    const kv_move move = KV_MOVE(1, {0, 0});
    kv_run(file_layout, memory_layout, &move);
    CHECK_EQ(byte, 'x');
    const kv_job options = kv_job_of(&move);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "KVMEM_DISK_READ_ONLY", kv_prepare, memory_layout,
           file_layout, &options);
    kvmem_share_options share_options = OPTIONS(kvmem_share_options);
    OWNED(kvmem_share) share = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_PERMISSION_DENIED, "KVMEM_SHARE_READ_ONLY",
                   kvmem_share_create_region(reader, &share_options, &share, ERR));
    share_options.flags = KVMEM_SHARE_READ_ONLY;
    EXPECT_OK(kvmem_share_create_region(reader, &share_options, &share, ERR));
}

enum { OPENERS = 8, ROUNDS = 50 };

typedef struct opener {
    const char *path;
    pthread_barrier_t *start;
    kvmem_region *region;
    kvmem_status status;
} opener;

/* Without the harness's error slot, which is per thread and would have to be freed. */
static void *open_or_create(void *argument) {
    opener *opener = argument;
    kvmem_disk_options options = OPTIONS(kvmem_disk_options, it.path = opener->path,
                                         it.flags = KVMEM_DISK_OPEN_OR_CREATE, it.size = 4096);
    pthread_barrier_wait(opener->start);
    opener->status = kvmem_region_create_disk(&options, &opener->region, NULL);
    return NULL;
}

/* Threads that open or create one file concurrently: one becomes its writer, and the others fail with
   BUSY. */
TEST(one_of_many_concurrent_openers_becomes_the_writer) {
    SCRATCH_FILE(path, "cache");
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_t start;
        CHECK_EQ(pthread_barrier_init(&start, NULL, OPENERS), 0);
        opener openers[OPENERS];
        for (size_t i = 0; i < OPENERS; i++) openers[i] = (opener){path, &start, NULL, 0};
        threads_run(OPENERS, open_or_create, openers, sizeof(openers[0]));
        size_t writers = 0;
        for (size_t i = 0; i < OPENERS; i++) {
            CHECK(openers[i].status == KVMEM_STATUS_OK || openers[i].status == KVMEM_STATUS_BUSY);
            writers += openers[i].status == KVMEM_STATUS_OK;
        }
        CHECK_EQ(writers, 1);
        CHECK_EQ(pthread_barrier_destroy(&start), 0);
        for (size_t i = 0; i < OPENERS; i++) kvmem_region_destroy(openers[i].region);
        CHECK_EQ(file_length(path), 4096);
        CHECK_EQ(unlink(path), 0);
    }
}

enum { OPEN = 1, OPENED };

/* Role: opens a file for writing, until the process is killed. */
ROLE(writer_role) {
    message path = frame_expect(socket, OPEN);
    must_open((const char *)path.data, KVMEM_DISK_OPEN_EXISTING);
    free(path.data);
    frame_send(socket, OPENED, NULL, 0);
    frame_arrives(socket);
}

TEST(a_writer_in_another_process_holds_the_lock_until_it_ends) {
    SCRATCH_FILE(path, "cache");
    kvmem_region_destroy(must_open(path, 0));
    peer writer = peer_start("writer_role");
    frame_send(writer.socket, OPEN, path, strlen(path) + 1);
    free(frame_expect(writer.socket, OPENED).data);
    expect_busy(path, KVMEM_DISK_OPEN_EXISTING);
    peer_kill(&writer);
    kvmem_region_destroy(must_open(path, KVMEM_DISK_OPEN_EXISTING));
}

/* A child made by a plain fork, as by Python's multiprocessing, has all descriptors of its parent. */
static pid_t fork_child_that_stays(void) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        for (;;) pause();
    }
    return child;
}

TEST(a_forked_child_does_not_keep_the_lock_of_its_parent) {
    SCRATCH_FILE(path, "cache");
    kvmem_region *region = must_open(path, 0);
    const pid_t child = fork_child_that_stays();
    kvmem_region_destroy(region);
    OWNED(kvmem_region) again = NULL;
    const kvmem_status status = open_with(path, KVMEM_DISK_OPEN_EXISTING, &again);
    CHECK_EQ(kill(child, SIGKILL), 0);
    CHECK_EQ(waitpid(child, NULL, 0), child);
    CHECK_EQ(status, KVMEM_STATUS_OK);
}

enum { CHILD = 3 };

/* Role: the same, with a child made by a plain fork. */
ROLE(forking_writer_role) {
    message path = frame_expect(socket, OPEN);
    must_open((const char *)path.data, KVMEM_DISK_OPEN_EXISTING);
    free(path.data);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* The child sends its own message: fork may return in the parent before the child has closed the
           lock. */
        const pid_t own = getpid();
        frame_send(socket, CHILD, &own, sizeof(own));
        close(socket);
        alarm(60);
        for (;;) pause();
    }
    frame_arrives(socket);
}

TEST(a_forked_child_of_a_killed_writer_does_not_keep_the_lock) {
    SCRATCH_FILE(path, "cache");
    kvmem_region_destroy(must_open(path, 0));
    peer writer = peer_start("forking_writer_role");
    frame_send(writer.socket, OPEN, path, strlen(path) + 1);
    pid_t child = 0;
    frame_expect_into(writer.socket, CHILD, &child, sizeof(child));
    expect_busy(path, KVMEM_DISK_OPEN_EXISTING);
    peer_kill(&writer);
    OWNED(kvmem_region) again = NULL;
    const kvmem_status status = open_with(path, KVMEM_DISK_OPEN_EXISTING, &again);
    CHECK_EQ(kill(child, SIGKILL), 0); /* init reaps it */
    CHECK_EQ(status, KVMEM_STATUS_OK);
}
