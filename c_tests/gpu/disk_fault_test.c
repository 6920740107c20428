// SPDX-License-Identifier: Apache-2.0
// Files that fail a transfer from or to a GPU in the middle: the error says why, and the ring is fit for the
// next one.
#include "gpu_flight.h"
#include "stance.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static const kv_move move = KV_MOVE(3, {0, 0}, {2, 2}, {4, 4}, {6, 6});
static const uint64_t modes[] = {0, KVMEM_DISK_BUFFERED};
static const uint32_t paths[] = {KVMEM_PATH_PREAD_STAGED, KVMEM_PATH_URING_STAGED};
/* Slots of two pieces: what comes before the failure has been through the ring. */
#define STAGING (4 * 2 * 4096)

static void expect_failure(const flight *flight, kvmem_status status, int code) {
    flight_submit(flight);
    flight_expect_end(flight, status, "bytes");
    CHECK_CAUSE(KVMEM_DOMAIN_ERRNO, code);
}

/* The process may write no further than the middle of the file; once it may, all goes through. The
   default action of SIGXFSZ, which the kernel sends too, would end the process. */
TEST(there_is_no_room_in_the_middle) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    for (size_t i = 0; i < NUM(modes) * (can_test_io_uring() ? 2 : 1); i++) {
        OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_FILE, .source = &config, .move = &move,
               .file_flags = modes[i % NUM(modes)]);
        flight_create(&flight, it.path = paths[i / NUM(modes)], it.staging_size = STAGING);
        struct rlimit before;
        CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
        const struct rlimit little = {flight.destination.model.size / 2, before.rlim_max};
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
        expect_failure(&flight, KVMEM_STATUS_OUT_OF_MEMORY, EFBIG);
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
        flight_run(&flight);
    }
}

/* In a process of its own: the file's second half can't be read or written, by threads that start later. */
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
    for (int way = 0; way < 2; way++) {
        flight_create(&flight, it.path = KVMEM_PATH_PREAD_STAGED, it.staging_size = STAGING);
        expect_failure(&flight, status, code);
        flight_turn_round(&flight);
    }
}

TEST(what_the_kernel_answers_is_kept) {
    const int codes[] = {EIO, ENOSPC};
    for (size_t i = 0; i < NUM(codes); i++) {
        CLEANUP(peer_finish) peer other = peer_start("failing_role");
        frame_send(other.socket, 1, &codes[i], sizeof(codes[i]));
    }
}
