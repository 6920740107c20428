// SPDX-License-Identifier: Apache-2.0
// The test framework: cases that register themselves, checks that end a case, and the running kvmem error.
#pragma once

#include "skip.h"

#include <kvmem.h>
#include <kvmem/cuda.h>
#include <kvmem/directory.h>
#include <kvmem/statistics.h>
#include <kvmem/store.h>
#include <kvmem/nixl_raw.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NUM(array) (sizeof(array) / sizeof((array)[0]))
/* Passes an array to a call: the array and its length. */
#define ARRAY(array) (array), NUM(array)
#define SECONDS(count) ((uint64_t)(count) * 1000000000u)
#define MILLISECONDS(count) ((uint64_t)(count) * 1000000u)
/* ThreadSanitizer makes programs many times slower. */
#ifdef __SANITIZE_THREAD__
#define UNDER_THREAD_SANITIZER 1
#else
#define UNDER_THREAD_SANITIZER 0
#endif
/* How long a test waits for an event: much longer than it takes, also on a busy machine, and shorter than the
   deadline of the process. */
#define PATIENCE SECONDS(UNDER_THREAD_SANITIZER ? 400 : 60)
#define PATIENCE_SECONDS ((unsigned)(PATIENCE / SECONDS(1)))
#define PATIENCE_MS ((int)(PATIENCE / MILLISECONDS(1)))
#define MIB (UINT64_C(1) << 20)
/* Waits for a condition. Only the deadline of the process limits the wait. */
#define AWAIT(condition)                                                                             \
    do {                                                                                             \
        while (!(condition)) sched_yield();                                                          \
    } while (0)

/* One named case. It ends when it returns or when a check fails. */
typedef struct test_case {
    const char *name;
    void (*run)(void);
} test_case;

/* A peer process: another entry point of the same binary, which communicates over a socket. */
typedef struct test_role {
    const char *name;
    void (*run)(int socket);
} test_role;

typedef struct test_suite {
    const test_case *cases;
    size_t num_cases;
    const test_role *roles;
    size_t num_roles;
    /* What all cases need and this machine lacks, as the reason to skip them; NULL if it lacks nothing. The
       function may be NULL. */
    const char *(*lacks)(void);
    /* Called before each case and at the end of each case that has not failed until then; at its end it can
       fail the case. May be NULL. */
    void (*begin)(void);
    void (*end)(void);
} test_suite;

/* Defines a case of this program: `TEST(a_thing_happens) { ... }`. Cases run in the order of their lines. */
#define TEST(name)                                                                                   \
    static void name(void);                                                                          \
    TEST_REGISTER(name, test_add_case((test_case){#name, name}, __FILE__, __LINE__))                 \
    static void name(void)
/* A case of one call, for cases that differ only in values: `TEST_CALL(case_of_one, check(1))`. */
#define TEST_CALL(name, call)                                                                        \
    TEST(name) {                                                                                     \
        call;                                                                                        \
    }
/* Defines a role of this program's peers, which are started by its name: `ROLE(sender) { ... socket ...
   }`. */
#define ROLE(name)                                                                                   \
    static void name(int socket);                                                                    \
    USES_ROLE(name, name)                                                                            \
    static void name(int socket)
/* Registers a function of a library as a role of this program under this name. */
#define USES_ROLE(name, run) TEST_REGISTER(role_##name, test_add_role((test_role){#name, run}))
/* What all cases of this program need: a function that returns what the machine lacks, as in test_suite. */
#define REQUIRES(lacks) TEST_REGISTER(lacks, test_set_lacks(lacks))

#define TEST_REGISTER(name, call)                                                                    \
    __attribute__((constructor)) static void register_##name(void) {                                 \
        call;                                                                                        \
    }
void test_add_case(test_case added, const char *file, int line);
void test_add_role(test_role added);
void test_set_lacks(const char *(*lacks)(void));
void test_set_begin_and_end(void (*begin)(void), void (*end)(void));
/* A main function that runs the registered cases, for programs that the build links with another one. */
#define TEST_MAIN_ONCE                                                                               \
    int main(int argc, char **argv) {                                                                \
        return test_main(argc, argv, test_registered());                                             \
    }
/* All cases and roles that this program has registered. */
const test_suite *test_registered(void);

/* A row of a table of cases, for a suite that is not registered. */
#define CASE(function) {#function, function}

/* Runs all cases (or those named on the command line), or one role; with `--list` prints the names of the
   cases. Returns the exit code of the process: EXIT_FAILURE if a case failed, otherwise EXIT_SKIPPED if a
   case or a part of one was skipped, otherwise EXIT_SUCCESS. Programs with their own main call it with the
   registered suite. */
int test_main(int argc, char **argv, const test_suite *suite);

/* From here a failed check ends the process: for a forked child, which must not continue with the cases. */
void test_leave_cases(void);

/* Ends the running case as failed. Outside a case, for example in a peer, it ends the process. */
_Noreturn void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(condition) ((condition) ? (void)0 : FAIL("expected %s", #condition))

#define CHECK_EQ(got, expected)                                                                      \
    test_check_equal(__FILE__, __LINE__, #got, (long long)(got), (long long)(expected))
#define CHECK_STR(got, expected) test_check_string(__FILE__, __LINE__, #got, got, expected)
#define CHECK_HAS(text, part) test_check_contains(__FILE__, __LINE__, text, part)
#define CHECK_BYTES(got, expected, size)                                                             \
    test_check_bytes(__FILE__, __LINE__, #got, got, expected, size)
#define CHECK_FILLED(got, value, size)                                                               \
    test_check_filled(__FILE__, __LINE__, #got, got, value, size)

/* The error slot for a call inside EXPECT...: `EXPECT_OK(kvmem_queue_create(&queue, ERR))`. */
#define ERR test_error_slot()

/* The call returns this status, and its error agrees with the status. */
#define EXPECT(status, call) test_check_status(__FILE__, __LINE__, #call, call, status)
#define EXPECT_OK(call) EXPECT(KVMEM_STATUS_OK, call)
/* The same, and the message contains `part`. */
#define EXPECT_MESSAGE(status, part, call)                                                           \
    do {                                                                                             \
        EXPECT(status, call);                                                                        \
        CHECK_HAS(test_last_message(), part);                                                        \
    } while (0)

/* The call fails with this status and a message that contains `part`, and sets the handle that it would
   create to NULL: `REFUSE(KVMEM_STATUS_IO, "no such file", kvmem_region_create_disk, &options)`. */
#define REFUSE(status, part, ...)                                                                    \
    do {                                                                                             \
        void *refused_ = &refused_;                                                                  \
        EXPECT_MESSAGE(status, part,                                                                 \
                       TEST_FIRST(__VA_ARGS__, )(TEST_REST(__VA_ARGS__, (void *)&refused_, ERR)));   \
        CHECK(refused_ == NULL);                                                                     \
    } while (0)

/* A call without a status. Tests that watch the current CUDA context check it after each one. */
#define CALL(call) call
/* Destroys a handle that is then NULL: `DESTROYED(kvmem_layout, side->layout);`. */
#define DESTROYED(type, handle)                                                                      \
    do {                                                                                             \
        CALL(type##_destroy(handle));                                                                \
        (handle) = NULL;                                                                             \
    } while (0)

#define TEST_FIRST(first, ...) first
#define TEST_REST(first, ...) __VA_ARGS__

/* Calls `end` with a pointer to the variable when that goes out of scope: `CLEANUP(side_close) side host;`.
   After a failed check, `end` is not called. */
#define CLEANUP(end) __attribute__((cleanup(end)))
/* Declares a variable, opens it by type_open, and closes it by type_close when it goes out of scope:
   `OPENED(kv_side, host, &config, NULL, 1);`. */
#define OPENED(type, ...)                                                                            \
    CLEANUP(type##_close) type TEST_FIRST(__VA_ARGS__, );                                            \
    type##_open(&__VA_ARGS__)
/* A handle that is destroyed when it goes out of scope: `OWNED(kvmem_region) region = make_region();`. */
#define OWNED(type) CLEANUP(test_end_##type) type *
/* Declares a variable that a call must set: `GET(kvmem_layout_info, info, kvmem_layout_get_info,
   layout);`. */
#define GET(type, name, ...)                                                                         \
    type name = {0};                                                                                 \
    EXPECT_OK(TEST_FIRST(__VA_ARGS__, )(TEST_REST(__VA_ARGS__, &name, ERR)))
/* The same for a handle that is destroyed when it goes out of scope:
   `OWN(kvmem_region, region, kvmem_region_create_device, &options);`. */
#define OWN(type, name, ...)                                                                         \
    OWNED(type) name = NULL;                                                                         \
    EXPECT_OK(TEST_FIRST(__VA_ARGS__, )(TEST_REST(__VA_ARGS__, &name, ERR)))
/* The handle that a call creates, as a value: `return MADE(kvmem_region, kvmem_region_create_device,
   &options);`. */
#define MADE(type, ...)                                                                              \
    __extension__({                                                                                  \
        GET(type *, made_, __VA_ARGS__);                                                             \
        CHECK(made_ != NULL);                                                                        \
        made_;                                                                                       \
    })
/* The status of a call that creates a handle, which is destroyed at once: `TRIED(kvmem_region,
   kvmem_region_create_device, &options)`. */
#define TRIED(type, ...)                                                                             \
    __extension__({                                                                                  \
        OWNED(type) tried_ = NULL;                                                                   \
        TEST_FIRST(__VA_ARGS__, )(TEST_REST(__VA_ARGS__, &tried_, ERR));                             \
    })
/* An options struct with its defaults and these assignments: `OPTIONS(kvmem_device_options, it.size =
   MIB)`. */
#define OPTIONS(...)                                                                                 \
    __extension__({                                                                                  \
        TEST_FIRST(__VA_ARGS__, ) it = {.struct_size = sizeof(it)};                                  \
        TEST_REST(__VA_ARGS__, (void)0);                                                             \
        it;                                                                                          \
    })
/* A value with some of its fields changed: `WITH(kv_config(&kv_kinds[0]), it.num_blocks = 4)`. */
#define WITH(value, ...)                                                                             \
    __extension__({                                                                                  \
        __typeof__((void)0, value) it = value; /* not const, even if the value is */             \
        __VA_ARGS__;                                                                                 \
        it;                                                                                          \
    })
/* A pointer to a copy of a value, valid until the end of the scope: `REFUSE(KVMEM_STATUS_IO, "",
   kvmem_region_create_disk, REF(OPTIONS(kvmem_disk_options, it.path = path)));` */
#define REF(value) ((__typeof__(value)[]){value})

/* The cleanup functions. */
#define TEST_HANDLES(HANDLE)                                                                         \
    HANDLE(kvmem_agent)                                                                              \
    HANDLE(kvmem_blob)                                                                               \
    HANDLE(kvmem_broker)                                                                             \
    HANDLE(kvmem_directory)                                                                          \
    HANDLE(kvmem_directory_entry)                                                                    \
    HANDLE(kvmem_directory_events)                                                                   \
    HANDLE(kvmem_error)                                                                              \
    HANDLE(kvmem_layout)                                                                             \
    HANDLE(kvmem_lease)                                                                              \
    HANDLE(kvmem_notifications)                                                                      \
    HANDLE(kvmem_plugins)                                                                            \
    HANDLE(kvmem_prepared)                                                                           \
    HANDLE(kvmem_query)                                                                              \
    HANDLE(kvmem_queue)                                                                              \
    HANDLE(kvmem_region)                                                                             \
    HANDLE(kvmem_registration)                                                                       \
    HANDLE(kvmem_request)                                                                            \
    HANDLE(kvmem_segments)                                                                           \
    HANDLE(kvmem_share)                                                                              \
    HANDLE(kvmem_store)                                                                              \
    HANDLE(kvmem_transfer)                                                                           \
    HANDLE(kvmem_memory_view)                                                                               \
    HANDLE(kvmem_vmm_mapping)                                                                        \
    HANDLE(kvmem_vmm_memory)                                                                         \
    HANDLE(kvmem_vmm_range)
#define TEST_END(type)                                                                               \
    static inline void test_end_##type(type **handle) {                                              \
        type##_destroy(*handle);                                                                     \
    }
TEST_HANDLES(TEST_END)
/* For memory of test_allocate, and for file descriptors. */
void test_free(void *pointer_to_memory);
void test_close(const int *fd);

/* Makes the next call only if all calls before it have succeeded: `THEN(status,
   kvmem_transfer_submit(transfer, NULL, ERR));`. */
#define THEN(status, call)                                                                           \
    do {                                                                                             \
        if ((status) == KVMEM_STATUS_OK) {                                                           \
            (status) = (call);                                                                       \
        }                                                                                            \
    } while (0)

/* Submits a transfer and waits until it has succeeded. */
#define RUN(transfer)                                                                                \
    do {                                                                                             \
        EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));                                       \
        EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));                                     \
    } while (0)

/* The same with other blocks. */
#define RUN_WITH(transfer, options)                                                                  \
    do {                                                                                             \
        EXPECT_OK(kvmem_transfer_submit(transfer, options, ERR));                                    \
        EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));                                     \
    } while (0)
/* Submits a transfer, which must end with this status and a message that contains `part`. */
#define RUN_ENDS(status, part, transfer)                                                            \
    do {                                                                                             \
        EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));                                       \
        EXPECT_MESSAGE(status, part, kvmem_transfer_wait(transfer, PATIENCE, ERR));                  \
    } while (0)

/* Text in the format of printf, valid until this thread has made sixteen more: `TEXT("%d", device)`. */
#define TEXT(...) test_text(__VA_ARGS__)
const char *test_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

kvmem_error **test_error_slot(void);
const kvmem_error *test_last_error(void);
kvmem_error_cause test_last_cause(void); /* all zero if the last call succeeded */
/* The last error has this code of this domain, KVMEM_DOMAIN_*, as its cause. */
#define CHECK_CAUSE(domain, code) test_check_cause(__FILE__, __LINE__, domain, code)
void test_check_cause(const char *file, int line, uint32_t domain, int32_t code);
/* Destroys the error. Every thread that a test starts calls it before it ends. */
void test_forget_error(void);
const char *test_last_message(void); /* "" if the last call succeeded */

void test_check_equal(const char *file, int line, const char *what, long long got, long long expected);
void test_check_string(const char *file, int line, const char *what, const char *got, const char *expected);
void test_check_contains(const char *file, int line, const char *text, const char *part);
void test_check_bytes(const char *file, int line, const char *what, const void *got, const void *expected,
                      size_t size);
void test_check_filled(const char *file, int line, const char *what, const void *got, unsigned char value,
                       size_t size);
void test_check_status(const char *file, int line, const char *call, kvmem_status got,
                       kvmem_status expected);

/* Memory that is zeroed, never NULL, and freed with free(). */
void *test_allocate(size_t size);
