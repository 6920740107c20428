// SPDX-License-Identifier: Apache-2.0
// Handles of the wrong type, destroyed handles, and pointers that are not handles.
#include "contract.h"

/* A type of handle, and a call on one. */
typedef struct type {
    const char *name;
    kvmem_status (*use)(void *handle);
    void (*destroy)(void *handle);
    void *(*create)(void);
} type;

static world w;

TEST_CALL(open_world, world_open(&w))

static kvmem_status use_agent(void *handle) {
    return TRIED(kvmem_blob, kvmem_agent_get_local_metadata, handle);
}

static kvmem_status use_queue(void *handle) {
    kvmem_completion completion;
    size_t count = 0;
    return kvmem_queue_wait(handle, 0, &completion, 1, &count, ERR);
}

/* Defines the call of a type that gets a value; the other arguments come first. */
#define USE(type, value_type, function, ...)                                                         \
    static kvmem_status use_##type(void *handle) {                                                   \
        value_type value;                                                                            \
        return function(__VA_ARGS__, &value, ERR);                                                   \
    }
USE(region, kvmem_region_info, kvmem_region_get_info, handle)
USE(registration, kvmem_registration_info, kvmem_registration_get_info, handle)
USE(layout, kvmem_block, kvmem_layout_get_block, handle, 0, 0, 0)
USE(transfer, kvmem_transfer_info, kvmem_transfer_get_info, handle)
USE(share, kvmem_share_info, kvmem_share_get_info, handle)
USE(lease, uint64_t, kvmem_lease_get_remaining, handle)
USE(broker, kvmem_broker_info, kvmem_broker_get_info, handle)

static void *create_agent(void) { return agent_open("handles"); }

static void *create_region(void) { return region_create_system(4096, KVMEM_SYSTEM_SHAREABLE); }

static void *create_registration(void) {
    OWNED(kvmem_region) region = create_region();
    return MADE(kvmem_registration, kvmem_region_register, region, w.agent);
}

static void *create_layout(void) { return layout_allocate_system(REF(kv_config(&kv_kinds[0]))); }

static void *create_transfer(void) {
    const kvmem_layout *layout = w.local.layout;
    return MADE(kvmem_transfer, kv_prepare, layout, layout, REF(world_job()));
}

static void *create_queue(void) { return MADE(kvmem_queue, kvmem_queue_create); }

static void *create_share(void) {
    OWNED(kvmem_region) region = create_region();
    return MADE(kvmem_share, kvmem_share_create_region, region, NULL);
}

static void *create_lease(void) {
    return MADE(kvmem_lease, kvmem_lease_create, w.local.layout, REF((uint32_t)1), 1, NULL);
}

static void *create_broker(void) {
    char path[64];
    snprintf(path, sizeof(path), "/tmp/kvmem_handles_%d", (int)getpid());
    return MADE(kvmem_broker, kvmem_broker_create, REF(OPTIONS(kvmem_broker_options, it.path = path)));
}

#define DESTROY(type)                                                                                \
    static void destroy_##type(void *handle) {                                                       \
        kvmem_##type##_destroy(handle);                                                              \
    }
DESTROY(agent)
DESTROY(region)
DESTROY(registration)
DESTROY(layout)
DESTROY(transfer)
DESTROY(queue)
DESTROY(share)
DESTROY(broker)
DESTROY(lease)

#define TYPE(type) {#type, use_##type, destroy_##type, create_##type}
static const type types[] = {
    TYPE(agent), TYPE(region), TYPE(registration), TYPE(layout),
    TYPE(transfer), TYPE(queue), TYPE(share), TYPE(broker), TYPE(lease),
};

/* The call must fail with INVALID_ARGUMENT, and the message must contain these words. */
static void refuse(const type *type, void *handle, const char *reason, const char *other) {
    const kvmem_status status = type->use(handle);
    if (status != KVMEM_STATUS_INVALID_ARGUMENT)
        FAIL("a call on a %s: expected INVALID_ARGUMENT, got %s: %s", type->name, kvmem_status_name(status),
             test_last_message());
    CHECK_HAS(test_last_message(), type->name);
    CHECK_HAS(test_last_message(), reason);
    CHECK_HAS(test_last_message(), other);
}

TEST(a_handle_of_another_type_fails_with_both_names) {
    for (size_t i = 0; i < NUM(types); i++) {
        void *handle = types[i].create();
        for (size_t k = 0; k < NUM(types); k++) {
            if (k != i) {
                char other[64];
                snprintf(other, sizeof(other), "of type %s", types[i].name);
                refuse(&types[k], handle, "needs type", other);
            }
        }
        CHECK_EQ(types[i].use(handle), KVMEM_STATUS_OK);
        types[i].destroy(handle);
    }
}

TEST(blobs_and_errors_of_another_type_are_empty) {
    const void *region = w.region;
    CHECK(kvmem_blob_data(region) == NULL);
    CHECK_EQ(kvmem_blob_size(region), 0);
    CHECK_EQ(kvmem_error_status(region), KVMEM_STATUS_OK);
    CHECK_STR(kvmem_error_message(region, NULL), "");
    refuse(&types[1], w.blob, "needs type region", "of type blob");
    OWNED(kvmem_error) error = NULL;
    kvmem_region_info info;
    CHECK_EQ(kvmem_region_get_info(NULL, &info, &error), KVMEM_STATUS_INVALID_ARGUMENT);
    refuse(&types[1], error, "needs type region", "of type error");
}

TEST(a_destroyed_handle_is_reported_as_such) {
    for (size_t i = 0; i < NUM(types); i++) {
        void *handle = types[i].create();
        types[i].destroy(handle);
        refuse(&types[i], handle, "handle was destroyed", types[i].name);
    }
}

TEST(a_pointer_to_something_else_fails) {
    static unsigned char bytes[4096];
    for (int value = 0; value < 256; value += 85) {
        memset(bytes, value, sizeof(bytes));
        for (size_t i = 0; i < NUM(types); i++) refuse(&types[i], bytes, "empty handle of C++", "needs type");
    }
}

static atomic_uint errors_logged;

static void count_errors(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)target, (void)user_data;
    errors_logged += level == KVMEM_LOG_ERROR && strstr(message, "nothing is destroyed") != NULL;
}

/* kvmem_log_set_callback with NULL returns once no callback is running. */
static unsigned count_errors_of(void (*destroy)(void *handle), void *handle) {
    errors_logged = 0;
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_ERROR, count_errors, NULL, ERR));
    destroy(handle);
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    return errors_logged;
}

TEST(destroying_an_invalid_handle_frees_nothing) {
    for (size_t i = 0; i < NUM(types); i++) {
        void *handle = types[i].create();
        for (size_t k = 0; k < NUM(types); k++) {
            if (k != i) CHECK_EQ(count_errors_of(types[k].destroy, handle), 1);
        }
        CHECK_EQ(types[i].use(handle), KVMEM_STATUS_OK);
        CHECK_EQ(count_errors_of(types[i].destroy, handle), 0);
        CHECK_EQ(count_errors_of(types[i].destroy, handle), 1); /* a second time */
    }
}

TEST_CALL(close_world, world_close(&w))
