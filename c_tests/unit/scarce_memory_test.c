// SPDX-License-Identifier: Apache-2.0
// Calls for which there is not enough memory: they fail, or do without.
#include "file_side.h"
#include "harness.h"

#include <malloc.h>

/* Each large allocation is a mapping of its own, which the limit of addresses prevents. */
__attribute__((constructor)) static void allocate_by_mapping(void) { mallopt(M_MMAP_THRESHOLD, 64 << 10); }

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}};
static const kv_move all_layers = {scattered, NUM(scattered), 0, 0, 3};

static void ignore(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level, (void)target, (void)message, (void)user_data;
}

/* The rate of host copies is measured at the first estimate, with 32 MiB or more. */
static void estimate_without_memory(uint32_t log_level) {
    const kv_job options = kv_job_of(&all_layers);
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[1]));
    OWNED(kvmem_transfer) transfer = NULL;
    if (log_level != KVMEM_LOG_OFF) EXPECT_OK(kvmem_log_set_callback(log_level, ignore, NULL, ERR));
    const struct rlimit before = limit_addresses(4 * MIB);
    EXPECT_OK(kv_prepare(source.layout, destination.layout, &options, &transfer, ERR));
    kvmem_compared_method explanation;
    const char *text = kv_explained(transfer, &explanation);
    CHECK_EQ(explanation.bytes_per_second, 0);
    CHECK_HAS(text, "memcpy: used, but there is no memory to measure");
    CHECK_EQ(setrlimit(RLIMIT_AS, &before), 0);
    CHECK(strstr(kv_explained(transfer, &explanation), "no memory") == NULL);
    CHECK(explanation.bytes_per_second > 0);
    RUN(transfer);
    kv_side_check_moved(&destination, &source, &all_layers);
}

/* Larger than the addresses that are left. */
enum { LARGE = 32 << 20 };

/* What a caller passes is copied. */
static void pass_large_arguments(void) {
    CLEANUP(test_free) unsigned char *bytes = test_allocate(LARGE);
    memset(bytes, 1, LARGE);
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[1]));
    const kv_job options = WITH(kv_job_of(&all_layers), it.run.notification = bytes,
                                                it.run.notification_size = LARGE);
    const struct rlimit before = limit_addresses(4 * MIB);
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "no memory for a copy of 33554432 bytes", kv_prepare,
           source.layout, destination.layout, &options);
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "no memory for a copy of 33554432 bytes", kvmem_share_create_received,
           bytes, LARGE, NULL, 0);
    CHECK_EQ(setrlimit(RLIMIT_AS, &before), 0);
}

TEST_CALL(arguments_that_cannot_be_copied_are_an_error, in_a_forked_child(pass_large_arguments))

/* Runs a transfer with other limits until one is large enough. It fails with the others. */
static uint32_t run_until_it_succeeds(kvmem_transfer *transfer) {
    uint32_t failures = 0;
    for (uint64_t more = MIB; more <= 512 * MIB; more *= 2) {
        const struct rlimit before = limit_addresses(more);
        const kvmem_status status = kvmem_transfer_submit(transfer, NULL, NULL);
        const kvmem_status ended = status < 0 ? status : kvmem_transfer_wait(transfer, PATIENCE, ERR);
        CHECK_EQ(setrlimit(RLIMIT_AS, &before), 0);
        if (ended == KVMEM_STATUS_OK) return failures;
        CHECK_EQ(ended, KVMEM_STATUS_OUT_OF_MEMORY);
        CHECK_HAS(test_last_message(), "no memory for a list of ");
        failures++;
    }
    FAIL("the run does not succeed with 512 MiB");
}

/* One block with four million rows of 8 bytes, each of which is a piece of the file. Their list takes 160 MiB, more than the C
   library has reserved for a thread. */
static void move_many_rows_without_memory(void) {
    const kv_move block = KV_MOVE(1, {0, 0});
    const kvmem_layout_config memory = OPTIONS(kvmem_layout_config, it.num_blocks = 2, it.num_layers = 1,
                                               it.outer_dim = 1, it.page_size = 65536, it.num_heads = 64,
                                               it.inner_dim = 64 * 4, it.dtype_width = 2, it.order = "BLONHC");
    const kvmem_layout_config file = WITH(memory, it.order = "BLOHNC");
    OPENED(kv_side, from, &memory, NULL, 1);
    OPENED(kv_side, back, &memory, NULL, 2);
    OWNED(kvmem_layout) stored = temporary_disk_layout(&file, NULL, KVMEM_DISK_BUFFERED);
    kv_run_by(back.layout, stored, &block, KVMEM_METHOD_PREAD); /* starts the threads */
    const kv_job job = WITH(kv_job_of(&block), it.transfer.method = KVMEM_METHOD_PREAD);
    OWNED(kvmem_transfer) out = NULL;
    EXPECT_OK(kv_prepare(from.layout, stored, &job, &out, ERR));
    CHECK(run_until_it_succeeds(out) > 0);
    OWNED(kvmem_transfer) in = NULL;
    EXPECT_OK(kv_prepare(stored, back.layout, &job, &in, ERR));
    CHECK(run_until_it_succeeds(in) > 0);
    CHECK(memcmp(kv_side_piece(&back, 0, 0, 0), kv_side_piece(&from, 0, 0, 0), kv_piece_size(&memory)) == 0);
}

TEST_CALL(a_run_whose_pieces_cannot_be_listed_fails, in_a_forked_child(move_many_rows_without_memory))

static void explain_without_memory(void) { estimate_without_memory(KVMEM_LOG_OFF); }
static void log_without_memory(void) { estimate_without_memory(KVMEM_LOG_INFO); }

TEST_CALL(an_estimate_without_memory_to_measure_is_unknown, in_a_forked_child(explain_without_memory))
TEST_CALL(a_logged_creation_without_memory_to_measure_succeeds, in_a_forked_child(log_without_memory))
