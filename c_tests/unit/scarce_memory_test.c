// SPDX-License-Identifier: Apache-2.0
// Calls for which there is not enough memory: they fail, or do without.
#include "harness.h"

#include <malloc.h>

/* Each large allocation is a mapping of its own, which the limit of addresses prevents. */
__attribute__((constructor)) static void allocate_by_mapping(void) { mallopt(M_MMAP_THRESHOLD, 64 << 10); }

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}};
static const kv_move all_layers = {scattered, NUM(scattered), 0, 0, 3};

static void ignore(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level, (void)target, (void)message, (void)user_data;
}

/* The rate of host copies is measured at the first estimate, with 8 MiB for each processor. */
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

static void explain_without_memory(void) { estimate_without_memory(KVMEM_LOG_OFF); }
static void log_without_memory(void) { estimate_without_memory(KVMEM_LOG_INFO); }

TEST_CALL(an_estimate_without_memory_to_measure_is_unknown, in_a_forked_child(explain_without_memory))
TEST_CALL(a_logged_creation_without_memory_to_measure_succeeds, in_a_forked_child(log_without_memory))
