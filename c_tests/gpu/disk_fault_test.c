// SPDX-License-Identifier: Apache-2.0
// Files that fail a transfer from or to a GPU in the middle: the error says why, and the ring is fit for the
// next one.
#include "sides.h"
#include "stance.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static const kvmem_block_pair pairs[] = {{0, 0}, {2, 2}, {4, 4}, {6, 6}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
static const uint64_t modes[] = {0, KVMEM_DISK_BUFFERED};
static const uint32_t ways[] = {KVMEM_PATH_PREAD_STAGED, KVMEM_PATH_URING_STAGED};

typedef struct flight {
    scratch directory;
    side device;
    file_side file;
} flight;

static void flight_open(flight *flight, uint64_t flags) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    flight->directory = scratch_create(temporary_directory());
    side_open(&flight->device, PLACE_DEVICE, 0, &config, NULL, 1);
    file_side_open(&flight->file, &config, NULL, &flight->directory, flags, 2);
}

static void flight_close(flight *flight) {
    CALL(file_side_close(&flight->file));
    side_close(&flight->device);
    scratch_remove(&flight->directory);
}

/* Slots of two pieces: what comes before the failure has been through the ring. */
static kvmem_transfer *create(const flight *flight, bool to_file, uint32_t path) {
    kvmem_transfer_options options = WITH(kv_transfer_options(&move), it.path = path,
                                          it.staging_size = 4 * 2 * 4096);
    const kvmem_layout *device = flight->device.model.layout;
    const kvmem_layout *file = flight->file.model.layout;
    GET(kvmem_transfer *, transfer, kvmem_transfer_create, to_file ? device : file, to_file ? file : device,
        &options);
    return transfer;
}

static void expect_failure(kvmem_transfer *transfer, kvmem_status status, int code) {
    EXPECT_OK(kvmem_transfer_submit(transfer, ERR));
    EXPECT_MESSAGE(status, "bytes", kvmem_transfer_wait(transfer, PATIENCE, ERR));
    kvmem_error_cause cause = {0};
    CHECK_EQ(kvmem_error_get_cause(test_last_error(), &cause), KVMEM_STATUS_OK);
    CHECK_EQ(cause.domain, KVMEM_DOMAIN_ERRNO);
    CHECK_EQ(cause.code, code);
    EXPECT(status, kvmem_transfer_poll(transfer, ERR));
}

static void expect_to_work(flight *flight, bool to_file, kvmem_transfer *transfer) {
    kv_side *source = to_file ? &flight->device.model : &flight->file.model;
    kv_side *destination = to_file ? &flight->file.model : &flight->device.model;
    RUN(transfer);
    kv_expect_moved(destination, source, &move);
    side_check(&flight->device);
    file_side_check(&flight->file);
}

/* The process may write no further than the middle of the file; once it may, all goes through. The
   default action of SIGXFSZ, which the kernel sends too, would end the process. */
TEST(there_is_no_room_in_the_middle) {
    for (size_t i = 0; i < NUM(modes) * (can_test_io_uring() ? 2 : 1); i++) {
        OPENED(flight, flight, modes[i % NUM(modes)]);
        OWNED(kvmem_transfer) transfer = create(&flight, true, ways[i / NUM(modes)]);
        struct rlimit before;
        CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
        const struct rlimit little = {flight.file.model.size / 2, before.rlim_max};
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
        expect_failure(transfer, KVMEM_STATUS_OUT_OF_MEMORY, EFBIG);
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
        expect_to_work(&flight, true, transfer);
    }
}

/* In a process of its own: the file's second half can't be read or written, by threads that start later. */
ROLE(failing_role) {
    message told = frame_expect(socket, 1);
    int code = 0;
    CHECK_EQ(told.size, sizeof(code));
    memcpy(&code, told.data, sizeof(code));
    free(told.data);
    const kvmem_status status = code == EIO ? KVMEM_STATUS_IO : KVMEM_STATUS_OUT_OF_MEMORY;
    OPENED(flight, flight, KVMEM_DISK_BUFFERED);
    OWNED(kvmem_transfer) write = create(&flight, true, KVMEM_PATH_PREAD_STAGED);
    OWNED(kvmem_transfer) read = create(&flight, false, KVMEM_PATH_PREAD_STAGED);
    const kv_side *model = &flight.file.model;
    const uint32_t middle = (uint32_t)(model->starts[0] + 4 * kv_block_stride(&model->config));
    refuse_system_call_from(SYS_pwritev, middle, code);
    refuse_system_call_from(SYS_preadv, middle, code);
    expect_failure(write, status, code);
    expect_failure(read, status, code);
}

TEST(what_the_kernel_answers_is_kept) {
    const int codes[] = {EIO, ENOSPC};
    for (size_t i = 0; i < NUM(codes); i++) {
        CLEANUP(peer_finish) peer other = peer_start("failing_role");
        frame_send(other.socket, 1, &codes[i], sizeof(codes[i]));
    }
}
