// SPDX-License-Identifier: Apache-2.0
// struct_size of every options struct: shorter, longer, garbage; and bits and values nobody has defined yet.
#include "contract.h"

#include <stdlib.h>

/* Room behind a struct, for callers that are newer than the library. */
#define TAIL 64

static world w;

/* One kind of options: how to fill good ones in, and a call that takes them and cleans up after itself. */
typedef struct subject {
    const char *name;
    size_t size;
    void (*fill)(void *options);
    kvmem_status (*call)(const void *options);
    uint64_t known_flags; /* UINT64_MAX: it has no flags */
} subject;

static void fill_system(void *options) {
    kvmem_system_options *system = options;
    kvmem_system_options_init(system, sizeof(*system));
    system->size = 4096;
}

static kvmem_status call_system(const void *options) {
    kvmem_region *region = POISON;
    const kvmem_status status = kvmem_region_create_system(options, &region, ERR);
    kvmem_region_destroy(region);
    return status;
}

static void fill_disk(void *options) {
    kvmem_disk_options *disk = options;
    kvmem_disk_options_init(disk, sizeof(*disk));
    disk->size = 4096;
}

static kvmem_status call_disk(const void *options) {
    kvmem_region *region = POISON;
    const kvmem_status status = kvmem_region_create_disk(options, &region, ERR);
    kvmem_region_destroy(region);
    return status;
}

static void fill_adopt(void *options) {
    kvmem_adopt_options *adopt = options;
    kvmem_adopt_options_init(adopt, sizeof(*adopt));
    adopt->address = &w;
    adopt->size = sizeof(w);
}

static kvmem_status call_adopt(const void *options) {
    kvmem_region *region = POISON;
    const kvmem_status status = kvmem_region_adopt_host(options, &region, ERR);
    kvmem_region_destroy(region);
    return status;
}

static void fill_agent(void *options) {
    kvmem_agent_options_init(options, sizeof(kvmem_agent_options));
}

static kvmem_status call_agent(const void *options) {
    kvmem_agent *agent = POISON;
    const kvmem_status status = kvmem_agent_create("optioned", options, &agent, ERR);
    kvmem_agent_destroy(agent);
    return status;
}

static void fill_config(void *options) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    memcpy(options, &config, sizeof(config));
}

static kvmem_status call_config(const void *options) {
    kvmem_layout_requirements needs;
    return kvmem_layout_get_requirements(options, &needs, ERR);
}

/* The same configuration, reached through the options of a layout. */
static kvmem_status call_nested_config(const void *config) {
    kvmem_system_options system;
    kvmem_system_options_init(&system, sizeof(system));
    kvmem_layout_options options;
    kvmem_layout_options_init(&options, sizeof(options));
    options.config = config;
    options.source = KVMEM_LAYOUT_ALLOCATE;
    options.system = &system;
    kvmem_layout *layout = POISON;
    const kvmem_status status = kvmem_layout_build(&options, &layout, ERR);
    kvmem_layout_destroy(layout);
    return status;
}

static void fill_layout(void *options) {
    static kvmem_layout_config config;
    config = kv_config(&kv_kinds[0]);
    kvmem_layout_options *layout = options;
    kvmem_layout_options_init(layout, sizeof(*layout));
    layout->config = &config;
    layout->source = KVMEM_LAYOUT_REGIONS;
    layout->regions = &w.region;
    layout->count = 1;
}

static kvmem_status call_layout(const void *options) {
    kvmem_layout *layout = POISON;
    const kvmem_status status = kvmem_layout_build(options, &layout, ERR);
    kvmem_layout_destroy(layout);
    return status;
}

static void fill_transfer(void *options) {
    const kvmem_transfer_options transfer = world_transfer_options();
    memcpy(options, &transfer, sizeof(transfer));
}

static kvmem_status call_transfer(const void *options) {
    kvmem_transfer *transfer = POISON;
    const kvmem_status status =
        kvmem_transfer_create(w.local.layout, w.local.layout, options, &transfer, ERR);
    kvmem_transfer_destroy(transfer);
    return status;
}

static const subject subjects[] = {
    {"system", sizeof(kvmem_system_options), fill_system, call_system, 7},
    {"disk", sizeof(kvmem_disk_options), fill_disk, call_disk, 7},
    {"adopt", sizeof(kvmem_adopt_options), fill_adopt, call_adopt, 0},
    {"agent", sizeof(kvmem_agent_options), fill_agent, call_agent, 7},
    {"config", sizeof(kvmem_layout_config), fill_config, call_config, UINT64_MAX},
    {"nested config", sizeof(kvmem_layout_config), fill_config, call_nested_config, UINT64_MAX},
    {"layout", sizeof(kvmem_layout_options), fill_layout, call_layout, 0},
    {"transfer", sizeof(kvmem_transfer_options), fill_transfer, call_transfer, 0},
};

/* Good options in memory of their own, with `tail` zeroed bytes behind them. */
static unsigned char *good_options(const subject *subject, size_t tail) {
    unsigned char *options = test_allocate(subject->size + tail);
    subject->fill(options);
    return options;
}

static void set_struct_size(unsigned char *options, size_t size) {
    memcpy(options, &size, sizeof(size));
}

/* A call's answer, checked against `expected`; the failing subject is named. */
static void expect_answer(const subject *subject, const unsigned char *options, kvmem_status expected,
                          const char *what, size_t number) {
    const kvmem_status status = subject->call(options);
    if (status != expected) {
        FAIL("%s options, %s %zu: expected %s, got %s: %s", subject->name, what, number,
             kvmem_status_name(expected), kvmem_status_name(status), test_last_message());
    }
}

static void open_world(void) {
    world_open(&w);
}

static void close_world(void) {
    world_close(&w);
}

static void init_states_the_size_and_nothing_else(void) {
    union {
        kvmem_system_options system;
        kvmem_disk_options disk;
        kvmem_adopt_options adopt;
        kvmem_agent_options agent;
        kvmem_layout_config config;
        kvmem_layout_options layout;
        kvmem_transfer_options transfer;
        unsigned char bytes[256];
    } any;
#define CHECK_INIT(init, member)                                                                     \
    do {                                                                                             \
        memset(&any, 0xEE, sizeof(any));                                                             \
        init(&any.member, sizeof(any.member));                                                       \
        CHECK_EQ(any.member.struct_size, sizeof(any.member));                                        \
        CHECK_FILLED(any.bytes + sizeof(size_t), 0, sizeof(any.member) - sizeof(size_t));            \
        CHECK_FILLED(any.bytes + sizeof(any.member), 0xEE, sizeof(any) - sizeof(any.member));        \
    } while (0)
    CHECK_INIT(kvmem_system_options_init, system);
    CHECK_INIT(kvmem_disk_options_init, disk);
    CHECK_INIT(kvmem_adopt_options_init, adopt);
    CHECK_INIT(kvmem_agent_options_init, agent);
    CHECK_INIT(kvmem_layout_config_init, config);
    CHECK_INIT(kvmem_layout_options_init, layout);
    CHECK_INIT(kvmem_transfer_options_init, transfer);
}

/* A caller compiled against an older header has a shorter struct, and gets no more than that filled. */
static void init_writes_no_more_than_the_caller_has(void) {
    _Alignas(kvmem_transfer_options) unsigned char bytes[sizeof(kvmem_transfer_options)];
    memset(bytes, 0xEE, sizeof(bytes));
    kvmem_transfer_options_init((kvmem_transfer_options *)(void *)bytes, 16);
    size_t stated = 0;
    memcpy(&stated, bytes, sizeof(stated));
    CHECK_EQ(stated, 16);
    CHECK_FILLED(bytes + 8, 0, 8);
    CHECK_FILLED(bytes + 16, 0xEE, sizeof(bytes) - 16);
    kvmem_transfer_options_init((kvmem_transfer_options *)(void *)(bytes + 16), 7); /* not even a size */
    CHECK_FILLED(bytes + 16, 0xEE, sizeof(bytes) - 16);
}

static void the_stated_size_is_accepted(void) {
    for (size_t i = 0; i < NUM(subjects); i++) {
        unsigned char *options = good_options(&subjects[i], 0);
        expect_answer(&subjects[i], options, KVMEM_STATUS_OK, "size", subjects[i].size);
        free(options);
    }
}

/* An older caller's struct ends earlier: what lies behind its end is not read, and counts as zero. */
static void a_shorter_struct_is_zero_extended(void) {
    for (size_t i = 0; i < NUM(subjects); i++) {
        for (size_t size = sizeof(size_t); size < subjects[i].size; size += 8) {
            unsigned char *zeroed = good_options(&subjects[i], 0);
            memset(zeroed + size, 0, subjects[i].size - size);
            const kvmem_status as_if_zero = subjects[i].call(zeroed);
            unsigned char *shorter = good_options(&subjects[i], 0);
            memset(shorter + size, 0xEE, subjects[i].size - size);
            set_struct_size(shorter, size);
            expect_answer(&subjects[i], shorter, as_if_zero, "shorter size", size);
            free(zeroed);
            free(shorter);
        }
    }
}

static void a_longer_struct_must_end_in_zeroes(void) {
    for (size_t i = 0; i < NUM(subjects); i++) {
        for (size_t tail = 8; tail <= TAIL; tail += 8) {
            unsigned char *options = good_options(&subjects[i], tail);
            set_struct_size(options, subjects[i].size + tail);
            expect_answer(&subjects[i], options, KVMEM_STATUS_OK, "zero tail", tail);
            options[subjects[i].size + tail - 1] = 1;
            expect_answer(&subjects[i], options, KVMEM_STATUS_INVALID_ARGUMENT, "set tail", tail);
            options[subjects[i].size + tail - 1] = 0;
            options[subjects[i].size] = 0x80;
            expect_answer(&subjects[i], options, KVMEM_STATUS_INVALID_ARGUMENT, "set tail", tail);
            free(options);
        }
    }
}

static void impossible_sizes_are_refused_unread(void) {
    static const size_t sizes[] = {
        0, 1, 7, 9, (size_t)1 << 20, (size_t)1 << 40, SIZE_MAX / 2, SIZE_MAX - 7, SIZE_MAX,
    };
    for (size_t i = 0; i < NUM(subjects); i++) {
        for (size_t k = 0; k < NUM(sizes); k++) {
            unsigned char *options = good_options(&subjects[i], 0);
            set_struct_size(options, sizes[k]);
            expect_answer(&subjects[i], options, KVMEM_STATUS_INVALID_ARGUMENT, "size", sizes[k]);
            CHECK_HAS(test_last_message(), "struct_size");
            free(options);
        }
    }
}

static void unknown_flags_are_refused(void) {
    for (size_t i = 0; i < NUM(subjects); i++) {
        for (unsigned bit = 0; bit < 64; bit++) {
            if (subjects[i].known_flags >> bit & 1) {
                continue;
            }
            unsigned char *options = good_options(&subjects[i], 0);
            const uint64_t flags = UINT64_C(1) << bit;
            memcpy(options + sizeof(size_t), &flags, sizeof(flags));
            expect_answer(&subjects[i], options, KVMEM_STATUS_INVALID_ARGUMENT, "flag bit", bit);
            CHECK_HAS(test_last_message(), "flags");
            free(options);
        }
    }
}

static void values_out_of_range_are_refused(void) {
    static const uint32_t wrong[] = {4, 255, 0x80000000u, UINT32_MAX};
    for (size_t i = 0; i < NUM(wrong); i++) {
        kvmem_agent_options agent;
        kvmem_agent_options_init(&agent, sizeof(agent));
        agent.sync_mode = wrong[i];
        CHECK_EQ(call_agent(&agent), KVMEM_STATUS_INVALID_ARGUMENT);
        kvmem_layout_config config = kv_config(&kv_kinds[1]);
        config.kind = wrong[i];
        CHECK_EQ(call_config(&config), KVMEM_STATUS_INVALID_ARGUMENT);
        config = kv_config(&kv_kinds[1]);
        config.block_dim = wrong[i];
        CHECK_EQ(call_config(&config), KVMEM_STATUS_INVALID_ARGUMENT);
        kvmem_layout_options layout;
        fill_layout(&layout);
        layout.source = wrong[i];
        CHECK_EQ(call_layout(&layout), KVMEM_STATUS_INVALID_ARGUMENT);
        EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_log_set_callback(wrong[i] | 8, NULL, NULL, ERR));
        CHECK_STR(kvmem_path_name(wrong[i] | 8), "unknown");
    }
}

static void reserved_fields_are_zero(void) {
    kvmem_layout_options layout;
    fill_layout(&layout);
    layout.reserved = 1;
    CHECK_EQ(call_layout(&layout), KVMEM_STATUS_INVALID_ARGUMENT);
    CHECK_HAS(test_last_message(), "reserved");
}

static const test_case cases[] = {
    CASE(open_world),
    CASE(init_states_the_size_and_nothing_else),
    CASE(init_writes_no_more_than_the_caller_has),
    CASE(the_stated_size_is_accepted),
    CASE(a_shorter_struct_is_zero_extended),
    CASE(a_longer_struct_must_end_in_zeroes),
    CASE(impossible_sizes_are_refused_unread),
    CASE(unknown_flags_are_refused),
    CASE(values_out_of_range_are_refused),
    CASE(reserved_fields_are_zero),
    CASE(close_world),
};
TEST_MAIN
