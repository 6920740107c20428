// SPDX-License-Identifier: Apache-2.0
// struct_size of every options struct: shorter, longer, invalid; undefined bits and values.
#include "subjects.h"

/* Bytes after a struct, for callers that are newer than the library. */
#define TAIL 64

static void set_struct_size(unsigned char *options, size_t size) { memcpy(options, &size, sizeof(size)); }

/* Checks the status of a call against `expected`, and names the failing subject. */
static void expect_status(const subject *subject, const unsigned char *options, kvmem_status expected,
                          const char *what, size_t number) {
    const kvmem_status status = subject->call(options);
    if (status != expected)
        FAIL("%s options, %s %zu: expected %s, got %s: %s", subject->name, what, number,
             kvmem_status_name(expected), kvmem_status_name(status), test_last_message());
}

TEST_CALL(open_world, world_open(&subjects_world))

TEST(the_stated_size_is_accepted) {
    for (size_t i = 0; i < num_subjects; i++) {
        unsigned char *options = subject_good_options(&subjects[i], 0);
        expect_status(&subjects[i], options, subject_good_status(&subjects[i]), "size", subjects[i].size);
        free(options);
    }
}

/* All structs have their first published size. A smaller one, such as sizeof of a pointer, would drop
   fields. */
TEST(a_shorter_struct_fails_with_both_sizes) {
    for (size_t i = 0; i < num_subjects; i++) {
        for (size_t size = sizeof(size_t); size < subjects[i].size; size += 8) {
            unsigned char *shorter = subject_good_options(&subjects[i], 0);
            memset(shorter + size, 0xEE, subjects[i].size - size);
            set_struct_size(shorter, size);
            expect_status(&subjects[i], shorter, KVMEM_STATUS_INVALID_ARGUMENT, "shorter size", size);
            char given[64], least[64];
            snprintf(given, sizeof(given), "is %zu,", size);
            snprintf(least, sizeof(least), "the %zu bytes", subjects[i].size);
            CHECK_HAS(test_last_message(), given);
            CHECK_HAS(test_last_message(), least);
            CHECK_EQ(strstr(test_last_message(), "pointer") != NULL, size == sizeof(void *));
            free(shorter);
        }
    }
}

TEST(a_longer_struct_must_end_in_zeroes) {
    for (size_t i = 0; i < num_subjects; i++) {
        for (size_t tail = 8; tail <= TAIL; tail += 8) {
            unsigned char *options = subject_good_options(&subjects[i], tail);
            set_struct_size(options, subjects[i].size + tail);
            expect_status(&subjects[i], options, subject_good_status(&subjects[i]), "zero tail", tail);
            options[subjects[i].size + tail - 1] = 1;
            expect_status(&subjects[i], options, KVMEM_STATUS_INVALID_ARGUMENT, "set tail", tail);
            options[subjects[i].size + tail - 1] = 0;
            options[subjects[i].size] = 0x80;
            expect_status(&subjects[i], options, KVMEM_STATUS_INVALID_ARGUMENT, "set tail", tail);
            free(options);
        }
    }
}

TEST(impossible_sizes_fail_before_the_struct_is_read) {
    static const size_t sizes[] = {
        0, 1, 7, 9, (size_t)1 << 20, (size_t)1 << 40, SIZE_MAX / 2, SIZE_MAX - 7, SIZE_MAX,
    };
    for (size_t i = 0; i < num_subjects; i++) {
        for (size_t k = 0; k < NUM(sizes); k++) {
            unsigned char *options = subject_good_options(&subjects[i], 0);
            set_struct_size(options, sizes[k]);
            expect_status(&subjects[i], options, KVMEM_STATUS_INVALID_ARGUMENT, "size", sizes[k]);
            CHECK_HAS(test_last_message(), "struct_size");
            free(options);
        }
    }
}

TEST(unknown_flags_fail) {
    for (size_t i = 0; i < num_subjects; i++) {
        for (unsigned bit = 0; bit < 64; bit++) {
            if (subjects[i].known_flags >> bit & 1) continue;
            unsigned char *options = subject_good_options(&subjects[i], 0);
            const uint64_t flags = UINT64_C(1) << bit;
            memcpy(options + subjects[i].flags_at, &flags, sizeof(flags));
            expect_status(&subjects[i], options, KVMEM_STATUS_INVALID_ARGUMENT, "flag bit", bit);
            CHECK_HAS(test_last_message(), "flag");
            free(options);
        }
    }
}

/* A 32-bit field of an options struct. */
typedef struct field {
    const char *subject;
    const char *name;
    size_t offset;
} field;

static void refuse_value(const field *field, uint32_t value) {
    const subject *subject = subject_named(field->subject);
    unsigned char *options = subject_good_options(subject, 0);
    memcpy(options + field->offset, &value, sizeof(value));
    expect_status(subject, options, KVMEM_STATUS_INVALID_ARGUMENT, field->name, value);
    CHECK_HAS(test_last_message(), field->name);
    free(options);
}

TEST(values_out_of_range_fail) {
    static const field enumerations[] = {
        {"agent", "sync_mode", offsetof(kvmem_agent_options, sync_mode)},
        {"layout", "source", offsetof(kvmem_layout_options, source)},
        {"transfer", "compute", offsetof(kvmem_transfer_options, compute)},
        {"transfer", "method", offsetof(kvmem_transfer_options, method)},
        {"vmm", "location", offsetof(kvmem_vmm_options, location)},
        {"share", "transport", offsetof(kvmem_share_options, transport)},
    };
    static const uint32_t wrong[] = {70, 255, 0x80000000u, UINT32_MAX};
    for (size_t i = 0; i < NUM(wrong); i++) {
        for (size_t k = 0; k < NUM(enumerations); k++) refuse_value(&enumerations[k], wrong[i]);
        EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_log_set_callback(wrong[i], NULL, NULL, ERR));
    }
    CHECK_STR(kvmem_method_name(0), "unknown");
    CHECK_STR(kvmem_method_name(UINT32_MAX), "unknown");
}

TEST(reserved_fields_are_zero) {
    static const field reserved[] = {
        {"layout", "reserved of kvmem_layout_options", offsetof(kvmem_layout_options, reserved)},
        {"pinned", "reserved of kvmem_pinned_options", offsetof(kvmem_pinned_options, reserved)},
        {"device", "reserved of kvmem_device_options", offsetof(kvmem_device_options, reserved)},
        {"elastic", "reserved of kvmem_elastic_options", offsetof(kvmem_elastic_options, reserved)},
        {"transfer", "reserved of kvmem_transfer_options", offsetof(kvmem_transfer_options, reserved)},
        {"share", "reserved of kvmem_share_options", offsetof(kvmem_share_options, reserved)},
        {"open", "reserved of kvmem_open_options", offsetof(kvmem_open_options, reserved)},
        {"broker", "reserved of kvmem_broker_options", offsetof(kvmem_broker_options, reserved)},
        {"fetch", "reserved of kvmem_fetch_options", offsetof(kvmem_fetch_options, reserved)},
        {"ipc", "for_device", offsetof(kvmem_ipc_options, for_device)}, /* without its flag */
    };
    for (size_t i = 0; i < NUM(reserved); i++) refuse_value(&reserved[i], 1);
}

TEST_CALL(close_world, world_close(&subjects_world))
