// SPDX-License-Identifier: Apache-2.0
// The file system of a store does not respond, and its caller opens it again and again, or stores other blocks. held.store has the
// other calls that wait.
#include "harness.h"
#include "held_call.h"

#include <linux/seccomp.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define LIMIT MILLISECONDS(100)

static const char *path;
static atomic_bool has_tried;

static kvmem_status open_store(uint64_t timeout) {
    store_setup setup;
    kvmem_store *opened = NULL;
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    const kvmem_status outcome = kvmem_store_open(&setup.options, timeout, &opened, ERR);
    kvmem_store_destroy(opened);
    return outcome;
}

/* Each attempt has its deadline, and none of them a thread more. */
static void open_again_and_again(void) {
    EXPECT(KVMEM_STATUS_TIMED_OUT, open_store(LIMIT));
    const size_t threads = count_directory_entries("/proc/self/task");
    for (int i = 0; i < 5; i++) EXPECT(KVMEM_STATUS_TIMED_OUT, open_store(LIMIT));
    CHECK_EQ(count_directory_entries("/proc/self/task"), threads);
    test_forget_error();
    has_tried = true;
}

static bool is_any(const uint64_t *arguments) {
    (void)arguments;
    return true;
}

TEST(openings_that_are_repeated_while_the_file_system_does_not_respond_wait_on_one_thread) {
    SCRATCH_FILE(folder, "store");
    path = folder;
    held_call_begin(open_again_and_again, SYS_fdatasync, is_any);
    AWAIT(has_tried);
    held_call_end();
    AWAIT(open_store(PATIENCE) == KVMEM_STATUS_OK); /* the late one may still have it open */
    test_forget_error();
}

static kvmem_store *opened;
static kvmem_layout *source;

static kvmem_store *buffered(void) {
    store_setup setup;
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    setup.options.flags = KVMEM_DISK_BUFFERED; /* threads write it, and not the kernel */
    return MADE(kvmem_store, kvmem_store_open, &setup.options, PATIENCE);
}

static kvmem_status put(uint64_t number, uint64_t timeout) {
    OWNED(kvmem_transfer) transfer = NULL;
    unsigned char key[STORE_KEY];
    const uint32_t first = 0;
    size_t moved = 0;
    store_keys(key, number, 1);
    const kvmem_store_blocks blocks = OPTIONS(kvmem_store_blocks, it.keys = key, it.key_size = STORE_KEY, it.num_keys = 1,
                                              it.blocks = &first, it.num_blocks = 1, it.run_timeout_ns = timeout);
    kvmem_status status = kvmem_store_put(opened, source, NULL, &blocks, &transfer, &moved, ERR);
    THEN(status, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    return status;
}

static atomic_bool is_writing;
static _Atomic uint64_t held_write;

/* The first write to a slot is held. */
static held_reply hold_first(const struct seccomp_notif *call) {
    if (!atomic_exchange(&is_writing, false)) return (held_reply){.how = CALL_IS_PERFORMED};
    held_write = call->id;
    return (held_reply){.how = CALL_IS_HELD};
}

/* In a namespace, whose blocks are written from the memory of the caller, or with a key from memory of kvmem. */
static void use_another_slot(const char *key) {
    kvmem_store *store = buffered();
    GET(kvmem_store_info, info, kvmem_store_get_info, store);
    const kvmem_store_namespace_options tenant = OPTIONS(kvmem_store_namespace_options, it.name = "tenant", it.key = key,
                                                         it.quota = 2 * info.slot_size, it.key_size = key == NULL ? 0 : 32);
    opened = MADE(kvmem_store, kvmem_store_open_namespace, store, &tenant, PATIENCE);
    DESTROYED(kvmem_store, store);
    is_writing = true;
    EXPECT(KVMEM_STATUS_TIMED_OUT, put(1, LIMIT));
    EXPECT_OK(put(2, PATIENCE));
    DESTROYED(kvmem_store, opened);
    EXPECT(KVMEM_STATUS_BUSY, open_store(PATIENCE));
    held_calls_go(held_write);
    AWAIT(open_store(PATIENCE) == KVMEM_STATUS_OK);
    test_forget_error();
}

static void use_other_slots(void) {
    OWNED(kvmem_layout) layout = layout_allocate_system(REF(kv_aligned_config(&kv_kinds[0])));
    source = layout;
    SCRATCH_FILE(plain, "plain");
    path = plain;
    use_another_slot(NULL);
    SCRATCH_FILE(encrypted, "encrypted");
    path = encrypted;
    use_another_slot("thirty-two bytes of the tenant..");
}

TEST(no_put_gets_a_slot_that_a_late_one_may_write_to_and_the_store_stays_open_until_then) {
    held_calls_reply(use_other_slots, (const long[]){SYS_pwritev}, 1, false, hold_first);
}
