// SPDX-License-Identifier: Apache-2.0
// File errors in the middle of a transfer from or to a GPU: the error contains the cause, and the staging
// ring can be used again.
#include "gpu_flight.h"
#include "caller_context.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static const kv_move move = KV_MOVE(3, {0, 0}, {2, 2}, {4, 4}, {6, 6});
static const uint64_t modes[] = {0, KVMEM_DISK_BUFFERED};
static const uint32_t methods[] = {KVMEM_METHOD_PREAD, KVMEM_METHOD_URING};
/* Slots of two pieces, so that the ring is used before the failure. */
#define STAGING (4 * 2 * 4096)

static void expect_failure(const flight *flight, kvmem_status status, int code) {
    flight_submit(flight);
    flight_expect_end(flight, status, "bytes");
    CHECK_CAUSE(KVMEM_DOMAIN_ERRNO, code);
}

/* The limit of file sizes is the middle of the file; without the limit the transfer succeeds. The kernel also
   sends SIGXFSZ, whose default action ends the process. */
TEST(writing_fails_at_the_file_size_limit) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    for (size_t i = 0; i < NUM(modes) * (can_test_io_uring() ? 2 : 1); i++) {
        OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_FILE, .source = &config, .move = &move,
               .file_flags = modes[i % NUM(modes)]);
        flight_create(&flight, it.transfer.method = methods[i / NUM(modes)],
                      it.transfer.staging_size = STAGING);
        struct rlimit before;
        CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
        const struct rlimit half = {flight.destination.model.size / 2, before.rlim_max};
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &half), 0);
        expect_failure(&flight, KVMEM_STATUS_OUT_OF_MEMORY, EFBIG);
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
        flight_run(&flight);
    }
}

/* A process in which reading and writing the second half of the file fails, in threads that start later. */
ROLE(failing_role) {
    int code = 0;
    frame_expect_into(socket, 1, &code, sizeof(code));
    const kvmem_status status = code == EIO ? KVMEM_STATUS_IO : KVMEM_STATUS_OUT_OF_MEMORY;
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_FILE, .source = &config, .move = &move,
           .file_flags = KVMEM_DISK_BUFFERED);
    const kv_side *file = &flight.destination.model;
    const uint32_t middle = (uint32_t)(file->starts[0] + 4 * kv_block_stride(&config));
    fail_system_call_from(SYS_pwritev, middle, code);
    fail_system_call_from(SYS_preadv, middle, code);
    for (int direction = 0; direction < 2; direction++) {
        flight_create(&flight, it.transfer.method = KVMEM_METHOD_PREAD, it.transfer.staging_size = STAGING);
        expect_failure(&flight, status, code);
        flight_reverse(&flight);
    }
}

TEST(the_errno_of_the_kernel_is_reported) {
    const int codes[] = {EIO, ENOSPC};
    for (size_t i = 0; i < NUM(codes); i++) {
        CLEANUP(peer_finish) peer other = peer_start("failing_role");
        frame_send(other.socket, 1, &codes[i], sizeof(codes[i]));
    }
}
