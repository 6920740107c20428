// SPDX-License-Identifier: Apache-2.0
// A fuzzer of call sequences over the C ABI: the state of one of its threads, and the calls of functions with
// a check of the result against the header.
#pragma once

#include "harness.h"

#include "statuses.h" /* generated: FUZZ_FUNCTIONS */

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)

/* Initial value of outputs that a call must set or leave unchanged. */
#define POISON ((void *)(uintptr_t)0x5A5A5A5A5A5A5A5A)

enum function {
#define FUNCTION(name, statuses) FUNCTION_##name,
    FUZZ_FUNCTIONS(FUNCTION)
#undef FUNCTION
    NUM_FUNCTIONS
};

/* All kinds of objects that are created and destroyed. */
typedef enum kind {
    REGIONS,
    LAYOUTS,
    TRANSFERS,
    QUEUES,
    SHARES,
    BROKERS,
    AGENTS,
    REGISTRATIONS,
    BLOBS,
    NOTIFICATIONS,
    PLUGINS,
    SEGMENTS,
    QUERIES,
    VIEWS,
    PREPARED,
    REQUESTS,
    DIRECTORIES,
    ENTRIES,
    EVENTS,
    RANGES,
    MEMORIES,
    MAPPINGS,
    ERRORS,
    LEASES,
    STREAMS, /* of the driver */
    NUM_KINDS
} kind;

/* Handles in use by a call, which cannot be destroyed meanwhile. */
#define MAX_HELD 40
struct slot;

typedef struct fuzz {
    uint64_t random;
    uint64_t sequence; /* its seed */
    uint64_t index;    /* the number of the call */
    unsigned thread;
    const char *operation;
    enum function function;
    kvmem_error *error;
    bool has_slot; /* the running call got a pointer for its error */
    struct slot *held[MAX_HELD];
    size_t num_held;
} fuzz;

/* Prints where the sequence failed and how to replay it, and ends the process. */
_Noreturn void fuzz_fail(const fuzz *fuzz, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- random values ---- */
uint64_t random_next(fuzz *fuzz);
uint64_t random_below(fuzz *fuzz, uint64_t end);
bool random_one_in(fuzz *fuzz, uint64_t count);
/* One of the values of an array. */
#define random_of(fuzz, array) ((array)[random_below(fuzz, COUNT_OF(array))])
/* A few bits of `known`; sometimes others. */
uint64_t random_flags(fuzz *fuzz, uint64_t known);
/* At most `most`; sometimes much more, or 0. */
uint64_t random_size(fuzz *fuzz, uint64_t most);
/* Less than `end`; sometimes not. */
uint64_t random_index(fuzz *fuzz, uint64_t end);
/* A GPU; sometimes one that does not exist. */
int32_t random_device(fuzz *fuzz);
/* Nanoseconds; always short. */
uint64_t random_timeout(fuzz *fuzz);
/* sizeof a struct; sometimes another number. */
size_t random_struct_size(fuzz *fuzz, size_t size);
/* The pointer; sometimes NULL. */
#define or_null(fuzz, pointer) (random_one_in(fuzz, 60) ? NULL : (pointer))

/* ---- calls ---- */
kvmem_error **call_begin(fuzz *fuzz, enum function function);
/* Checks the status against the header, and the error against the status. Returns the status. */
kvmem_status call_end(fuzz *fuzz, kvmem_status status);
/* Counts a call of a function that returns no status. */
void call_note(fuzz *fuzz, enum function function);

/* Calls a function whose last argument is an error. */
#define TRY(fuzz, function, ...)                                                                     \
    call_end(fuzz, function(__VA_ARGS__, call_begin(fuzz, FUNCTION_##function)))
#define TRY_0(fuzz, function) call_end(fuzz, function(call_begin(fuzz, FUNCTION_##function)))
/* Calls any other function. */
#define DO(fuzz, function, ...) (call_note(fuzz, FUNCTION_##function), function(__VA_ARGS__))

/* Stores a created handle in the table; after a failure the handle must be NULL. */
void check_created(fuzz *fuzz, kind kind, kvmem_status status, void *handle, bool was_asked);

/* Calls a function that creates a handle. Its second to last argument is the output, which is sometimes
   NULL. */
#define CREATE(fuzz, kind, function, ...)                                                            \
    CREATE_IF(!random_one_in(fuzz, 80), fuzz, kind, function, __VA_ARGS__)
#define CREATE_IF(condition, fuzz, kind, function, ...)                                              \
    do {                                                                                             \
        void *made = POISON;                                                                         \
        const bool is_asked = (condition);                                                           \
        const kvmem_status status_of_it =                                                            \
            TRY(fuzz, function, __VA_ARGS__, is_asked ? (void *)&made : NULL);                       \
        check_created(fuzz, kind, status_of_it, made, is_asked);                                     \
    } while (0)

/* ---- operations of one call ---- */
/* Defines an operation that calls a function on a handle of a kind: `TRIES(sync_region, kvmem_region_sync,
   REGIONS)`. */
#define TRIES(name, function, kind)                                                                  \
    static void name(fuzz *fuzz) {                                                                   \
        TRY(fuzz, function, table_pick(fuzz, kind));                                                 \
    }
/* The same with more arguments. */
#define TRIES_WITH(name, function, kind, ...)                                                        \
    static void name(fuzz *fuzz) {                                                                   \
        void *handle = table_pick(fuzz, kind);                                                       \
        TRY(fuzz, function, handle, __VA_ARGS__);                                                    \
    }
/* Defines an operation that gets a value: `GETS(get_fd, kvmem_queue_get_fd, QUEUES, int32_t)`. */
#define GETS(name, function, kind, type)                                                             \
    static void name(fuzz *fuzz) {                                                                   \
        type value;                                                                                  \
        TRY(fuzz, function, table_pick(fuzz, kind), or_null(fuzz, &value));                          \
    }
/* Defines an operation that creates a handle from one of another kind, with random options if it has any. */
#define CREATES(name, made, function, kind)                                                          \
    static void name(fuzz *fuzz) {                                                                   \
        CREATE(fuzz, made, function, table_pick(fuzz, kind));                                        \
    }
#define CREATES_WITH(name, made, function, kind, type, options_of)                                   \
    static void name(fuzz *fuzz) {                                                                   \
        const type options = options_of(fuzz);                                                       \
        CREATE(fuzz, made, function, table_pick(fuzz, kind), or_null(fuzz, &options));               \
    }
/* Defines an operation that destroys a handle. */
#define DESTROYS(name, kind)                                                                         \
    static void name(fuzz *fuzz) {                                                                   \
        table_destroy(fuzz, kind);                                                                   \
    }
/* Declares options with their defaults, as a function sets them. */
#define FUZZ_OPTIONS(type, name) type name = {.struct_size = sizeof(name)}

/* ---- one operation ---- */
typedef struct operation {
    const char *name;
    unsigned weight;
    void (*run)(fuzz *fuzz);
    uint32_t needs; /* bits of the kinds of handles that it uses, which are created first */
    uint32_t makes; /* bits of the kinds of handles that it creates */
} operation;
#define BIT(kind) (UINT32_C(1) << (kind))
#define OPERATION(weight, function) {#function, weight, function, 0, 0}
#define OPERATION_WITH(weight, function, needs, makes) {#function, weight, function, needs, makes}

/* The operations of a file. The last entry has no name. */
extern const operation general_operations[];
extern const operation region_operations[];
extern const operation layout_operations[];
extern const operation transfer_operations[];
extern const operation share_operations[];
extern const operation agent_operations[];
extern const operation raw_operations[];
extern const operation directory_operations[];
extern const operation store_operations[];
extern const operation cuda_operations[];
extern const operation simple_operations[]; /* generated */

/* Called before a sequence, so that the sequence depends on its seed alone. */
void shares_forget_tokens(void);

/* Runs the call with this index of a sequence. */
void call_run(fuzz *fuzz, uint64_t sequence, uint64_t index, unsigned thread);
/* Reports how often each function was called, and how often it returned KVMEM_STATUS_OK or cannot fail.
   Returns whether all were called, and all that can succeed here have succeeded. */
bool calls_report(bool prints, bool needs_all);
uint64_t calls_made(void);
