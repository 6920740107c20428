// SPDX-License-Identifier: Apache-2.0
// The log callback: when it is called, with what, at which levels, and that it may call kvmem.
#include "harness.h"

typedef struct log_record {
    atomic_uint messages;
    atomic_uint highest_level;
    atomic_uint malformed;
    bool switch_off;
} log_record;

/* Counts messages, and messages without one of their fields. */
static void count_message(uint32_t level, const char *target, const char *message, void *user_data) {
    log_record *record = user_data;
    record->messages++;
    if (level > record->highest_level) record->highest_level = level;
    const bool has_target = target != NULL && target[0] != '\0';
    const bool has_message = message != NULL && message[0] != '\0';
    record->malformed += level < KVMEM_LOG_ERROR || !has_target || !has_message;
    if (record->switch_off) {
        record->malformed += kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, NULL) != KVMEM_STATUS_OK;
    }
}

/* Requests one huge page more than the machine has free, so that the fallback is logged. */
static void cause_fallback(void) { kvmem_region_destroy(region_create_with_fallback()); }

TEST(a_fallback_is_logged_with_target_and_message) {
    GET(log_record, record, kvmem_log_set_callback, KVMEM_LOG_TRACE, count_message);
    cause_fallback();
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    CHECK(record.messages > 0);
    CHECK_EQ(record.malformed, 0);
    CHECK(record.highest_level <= KVMEM_LOG_TRACE);
}

TEST(nothing_is_logged_after_the_callback_is_removed) {
    GET(log_record, record, kvmem_log_set_callback, KVMEM_LOG_TRACE, count_message);
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_TRACE, NULL, &record, ERR));
    cause_fallback();
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, count_message, &record, ERR));
    cause_fallback();
    CHECK_EQ(record.messages, 0);
}

TEST(the_level_is_a_limit) {
    GET(log_record, record, kvmem_log_set_callback, KVMEM_LOG_ERROR, count_message);
    cause_fallback();
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    CHECK(record.highest_level <= KVMEM_LOG_ERROR);
}

TEST(a_callback_may_remove_itself) {
    log_record record = {.switch_off = true};
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_TRACE, count_message, &record, ERR));
    cause_fallback();
    cause_fallback();
    /* waits until no callback is running */
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    CHECK_EQ(record.messages, 1);
    CHECK_EQ(record.malformed, 0);
}

/* Memory that a callback must not use after it was removed. */
typedef struct revocable {
    atomic_bool is_removed;
    atomic_uint late;
    atomic_uint messages;
} revocable;

static void expect_installed(uint32_t level, const char *target, const char *message, void *user_data) {
    revocable *mine = user_data;
    (void)level, (void)target, (void)message;
    mine->late += mine->is_removed;
    mine->messages++;
}

/* Waits until it is not 0. Only the deadline of the process limits the wait. */
static void await_count(const atomic_uint *count) {
    while (*count == 0) sched_yield();
}

static atomic_bool is_enough;

static void *log_repeatedly(void *nothing) {
    while (!is_enough) cause_fallback();
    return nothing;
}

TEST(a_removed_callback_is_not_called_while_others_log) {
    enum { CHANGES = 2000 };
    static revocable installed[CHANGES];
    threads loggers;
    unsigned late = 0;
    threads_start(&loggers, 2, log_repeatedly, NULL, 0);
    for (int i = 0; i < CHANGES; i++) {
        EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_TRACE, expect_installed, &installed[i], ERR));
        if (i > 0) installed[i - 1].is_removed = true;
        await_count(&installed[i].messages);
        if (i % 2 == 0) { /* in the other rounds it is replaced */
            EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
            installed[i].is_removed = true;
        }
    }
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    is_enough = true;
    threads_join(&loggers);
    for (int i = 0; i < CHANGES; i++) late += installed[i].late;
    CHECK_EQ(late, 0);
}

static atomic_uint blocked;
static atomic_bool may_go_on;

static void block(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level, (void)target, (void)message, (void)user_data;
    blocked++;
    while (!may_go_on) sched_yield();
}

TEST(a_blocked_callback_blocks_no_caller_and_no_release) {
    static unsigned char memory[4096];
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_TRACE, block, NULL, ERR));
    cause_fallback();
    await_count(&blocked);
    cause_fallback();
    kvmem_region_destroy(region_adopt_noting_release(memory, sizeof(memory)));
    CHECK_EQ(releases_count(), 1);
    may_go_on = true;
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
}

TEST(unknown_levels_fail) {
    log_record record = {0};
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "6",
                   kvmem_log_set_callback(KVMEM_LOG_TRACE + 1, count_message, &record, ERR));
    cause_fallback();
    CHECK_EQ(record.messages, 0);
}
