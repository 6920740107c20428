// SPDX-License-Identifier: Apache-2.0
// The log callback: who is called, with what, at which levels, and that it may call back.
#include "harness.h"
#include "regions.h"
#include "resources.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef struct log_record {
    atomic_uint messages;
    atomic_uint highest_level;
    atomic_uint malformed;
    bool switch_off;
} log_record;

/* Fields that one message must have; the callback may run on any thread, so it only counts. */
static void count_message(uint32_t level, const char *target, const char *message, void *user_data) {
    log_record *record = user_data;
    record->messages++;
    if (level > record->highest_level) {
        record->highest_level = level;
    }
    const bool has_target = target != NULL && target[0] != '\0';
    const bool has_message = message != NULL && message[0] != '\0';
    record->malformed += level < KVMEM_LOG_ERROR || !has_target || !has_message;
    if (record->switch_off) {
        kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, NULL);
    }
}

/* Asks for one huge page more than the machine keeps ready: the fallback is news for the log. */
static void fall_back(void) {
    kvmem_system_options options;
    kvmem_system_options_init(&options, sizeof(options));
    options.size = (ready_huge_pages() + 1) * 2 * MIB;
    options.huge_page_size = 2 * MIB;
    kvmem_region *region = NULL;
    EXPECT_OK(kvmem_region_create_system(&options, &region, ERR));
    CHECK(region_info(region).flags & KVMEM_REGION_HUGE_PAGE_FALLBACK);
    kvmem_region_destroy(region);
}

static void a_fallback_is_logged_with_target_and_message(void) {
    log_record record = {0};
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_TRACE, count_message, &record, ERR));
    fall_back();
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    CHECK(record.messages > 0);
    CHECK_EQ(record.malformed, 0);
    CHECK(record.highest_level <= KVMEM_LOG_TRACE);
}

static void nothing_is_logged_after_it_is_switched_off(void) {
    log_record record = {0};
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_TRACE, count_message, &record, ERR));
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_TRACE, NULL, &record, ERR));
    fall_back();
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, count_message, &record, ERR));
    fall_back();
    CHECK_EQ(record.messages, 0);
}

static void the_level_is_a_limit(void) {
    log_record record = {0};
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_ERROR, count_message, &record, ERR));
    fall_back();
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    CHECK(record.highest_level <= KVMEM_LOG_ERROR);
}

static void a_callback_may_call_the_library(void) {
    log_record record = {.switch_off = true};
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_TRACE, count_message, &record, ERR));
    fall_back();
    const unsigned heard = record.messages;
    CHECK(heard > 0);
    fall_back();
    CHECK_EQ(record.messages, heard);
}

static void unknown_levels_are_refused(void) {
    log_record record = {0};
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "6",
                   kvmem_log_set_callback(KVMEM_LOG_TRACE + 1, count_message, &record, ERR));
    fall_back();
    CHECK_EQ(record.messages, 0);
}

static const test_case cases[] = {
    CASE(a_fallback_is_logged_with_target_and_message),
    CASE(nothing_is_logged_after_it_is_switched_off),
    CASE(the_level_is_a_limit),
    CASE(a_callback_may_call_the_library),
    CASE(unknown_levels_are_refused),
};
TEST_MAIN
