// SPDX-License-Identifier: Apache-2.0
// File descriptors that do not match their manifest: too few, swapped, closed, or of another kind of file.
#include "foreign.h"
#include "target.h"

KEEPING_HOLDER_ROLE

static bool has_memory_fds(memory_kind kind) { return !memory_is_shared_by_handle(kind); }

TEST_EACH_KIND(a_wrong_number_of_descriptors_fails) {
    OPENED(target, fixture, kind, NULL);
    CLEANUP(parcel_close) parcel longer = parcel_copy(&fixture.parcel);
    longer.fds = realloc(longer.fds, (longer.num_fds + 1) * sizeof(int));
    CHECK(longer.fds != NULL);
    longer.fds[longer.num_fds] = fcntl(longer.fds[0], F_DUPFD_CLOEXEC, 0);
    longer.num_fds++;
    for (size_t count = 0; count <= longer.num_fds; count++) {
        if (count != fixture.parcel.num_fds)
            REFUSE(KVMEM_STATUS_CORRUPT, "file descriptors", kvmem_share_create_received, longer.bytes.data,
                   longer.bytes.size, longer.fds, count);
    }
}

TEST_EACH_KIND(a_closed_descriptor_is_an_invalid_argument) {
    OPENED(target, fixture, kind, NULL);
    for (size_t i = 0; i < fixture.parcel.num_fds; i++) {
        CLEANUP(parcel_close) parcel holed = parcel_copy(&fixture.parcel);
        close(holed.fds[i]);
        kvmem_share *share = (kvmem_share *)&holed;
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "is not open in this process",
                       parcel_read(&holed, &share));
        CHECK(share == NULL);
        holed.fds[i] = fcntl(fixture.parcel.fds[0], F_DUPFD_CLOEXEC, 0); /* closed by parcel_close */
    }
}

/* Returns a descriptor of a file that is neither a control block nor memory. */
typedef int (*make_fd)(void);

static int a_pipe(void) {
    int ends[2];
    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    close(ends[1]);
    return ends[0];
}

static int a_socket(void) { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); }

static int a_directory(void) { return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC); }

static int a_device(void) { return open("/dev/null", O_RDWR | O_CLOEXEC); }

static int a_small_file(void) {
    const int fd = open(temporary_directory(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, "not a whole region", 18), 18);
    return fd;
}

/* Its size can change. */
static int an_unsealed_memfd(void) {
    const int fd = memfd_create("unsealed", MFD_CLOEXEC);
    CHECK_EQ(ftruncate(fd, MEMORY_SIZE), 0);
    return fd;
}

static int a_small_memfd(void) { return foreign_memory(MEMORY_SIZE - 4096); }

static int an_empty_memfd(void) { return foreign_memory(0); }

static const struct {
    const char *name;
    make_fd make;
} foreign[] = {
    {"a pipe", a_pipe},
    {"a socket", a_socket},
    {"a directory", a_directory},
    {"a device", a_device},
    {"a small file", a_small_file},
    {"an unsealed memory file", an_unsealed_memfd},
    {"a small memory file", a_small_memfd},
    {"an empty memory file", an_empty_memfd},
};

/* Expects a status that fits. Drivers differ in their codes for foreign files. A disk region accepts any file
   that is large enough, and host memory any such memory file. */
static bool is_expected_status(memory_kind kind, size_t index, make_fd make, kvmem_status status) {
    if (index > 0 && memory_has_driver_fds(kind)) return status < 0 && status != KVMEM_STATUS_PANIC;
    if (index > 0 && make == an_unsealed_memfd && kind != MEMORY_PART /* starts at an offset */) {
        return status == KVMEM_STATUS_OK; /* share.adopted_file tests it without trust */
    }
    return status == KVMEM_STATUS_CORRUPT;
}

TEST_EACH_KIND(descriptors_of_other_files_are_corrupt) {
    OPENED(target, fixture, kind, NULL);
    for (size_t index = 0; index < fixture.parcel.num_fds; index++) {
        for (size_t i = 0; i < NUM(foreign); i++) {
            CLEANUP(parcel_close) parcel odd = parcel_copy(&fixture.parcel);
            foreign_put(&odd, index, foreign[i].make());
            const kvmem_status status = try_parcel(&odd, 0);
            if (!is_expected_status(kind, index, foreign[i].make, status)) {
                FAIL("%s with %s as fd %zu: %s: %s", memory_names[kind], foreign[i].name, index,
                     kvmem_status_name(status), test_last_message());
            }
        }
    }
}

TEST_EACH_KIND(swapped_descriptors_are_corrupt) {
    OPENED(target, fixture, kind, NULL);
    if (has_memory_fds(kind)) {
        CLEANUP(parcel_close) parcel swapped = parcel_copy(&fixture.parcel);
        const int control = swapped.fds[0];
        swapped.fds[0] = swapped.fds[1];
        swapped.fds[1] = control;
        refuse_parcel(&swapped, 0, KVMEM_STATUS_CORRUPT, "");
    }
}

TEST_EACH_KIND(the_control_block_of_another_region_is_detected) {
    OPENED(target, fixture, kind, NULL);
    CLEANUP(peer_finish) peer other = holder_start();
    holder_make(&other, FIRST_KIND, NULL, 2);
    parcel theirs = holder_share(&other, NULL);
    parcel mixed = parcel_copy(&fixture.parcel);
    foreign_put(&mixed, 0, fcntl(theirs.fds[0], F_DUPFD_CLOEXEC, 0));
    refuse_parcel(&mixed, 0, KVMEM_STATUS_CORRUPT, "another region");
    parcel_close(&mixed);
    parcel_close(&theirs);
    CHECK_EQ(holder_holders(&other, HOLDING_OWN).importers, 0);
}

TEST(a_truncated_control_block_is_corrupt) {
    static const struct {
        uint32_t version;
        uint32_t extents;
        uint64_t size;
        kvmem_status status;
    } blocks[] = {
        {1, 0, 63, KVMEM_STATUS_CORRUPT},
        {1, 0, 65, KVMEM_STATUS_CORRUPT},
        {1, 1, 64, KVMEM_STATUS_CORRUPT},
        {1, UINT32_MAX, 64, KVMEM_STATUS_CORRUPT},
        {1, UINT32_MAX, 64 + 4 * (uint64_t)UINT32_MAX, KVMEM_STATUS_CORRUPT}, /* more than regions have */
        {2, 0, 64, KVMEM_STATUS_VERSION_MISMATCH},
        {0, 0, 64, KVMEM_STATUS_VERSION_MISMATCH},
    };
    OPENED(target, fixture, FIRST_KIND, NULL);
    for (size_t i = 0; i < NUM(blocks); i++) {
        CLEANUP(parcel_close) parcel odd = parcel_copy(&fixture.parcel);
        foreign_put(&odd, 0, foreign_control(&odd, blocks[i].version, blocks[i].extents, blocks[i].size));
        refuse_parcel(&odd, 0, blocks[i].status, "");
    }
}

/* A process that was given a region knows its id and has its control block. It could send other memory under
   this id, in either of these two forms. */
TEST(other_memory_under_a_known_id_is_detected) {
    OPENED(target, fixture, FIRST_KIND, NULL);
    CLEANUP(parcel_close) parcel false_memory = parcel_copy(&fixture.parcel);
    foreign_put(&false_memory, 1, foreign_memory(MEMORY_SIZE));
    CLEANUP(parcel_close) parcel false_control = parcel_copy(&fixture.parcel);
    foreign_put(&false_control, 0, foreign_control(&false_control, 1, 0, 64));
    OWNED(kvmem_region) first = open_parcel(&false_memory, 0);
    OWNED(kvmem_region) second = open_parcel(&false_control, 0);
    OWNED(kvmem_region) region = open_parcel(&fixture.parcel, 0);
    CHECK(region_info(region).address != region_info(first).address);
    CHECK(region_info(region).address != region_info(second).address);
    memory_check(region, 1);
    EXPECT_OK(kvmem_region_check_owner(region, ERR));
}

/* The file is sealed when it is opened, so it cannot be truncated later. */
TEST_EACH_KIND(opened_memory_cannot_be_truncated) {
    if (memory_has_fd_mapping(kind)) {
        OPENED(target, fixture, kind, NULL);
        OWNED(kvmem_region) region = open_parcel(&fixture.parcel, 0);
        CHECK_EQ(ftruncate(fixture.parcel.fds[1], 0), -1);
        CHECK_EQ(ftruncate(fixture.parcel.fds[0], 0), -1);
        memory_check(region, 1);
    }
}
