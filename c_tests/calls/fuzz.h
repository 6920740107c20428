// SPDX-License-Identifier: Apache-2.0
// A fuzzer of call sequences over the C ABI: what one thread of it knows, and how it calls a function and
// checks the result against the header.
#pragma once

#include "harness.h"

#include "statuses.h" /* generated: FUZZ_FUNCTIONS */

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)

/* What outputs hold before a call that must set or leave them. */
#define POISON ((void *)(uintptr_t)0x5A5A5A5A5A5A5A5A)

enum function {
#define FUNCTION(name, statuses) FUNCTION_##name,
    FUZZ_FUNCTIONS(FUNCTION)
#undef FUNCTION
    NUM_FUNCTIONS
};

/* Everything that is created and destroyed. */
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
    DESCRIPTORS,
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
    STREAMS, /* of the driver */
    NUM_KINDS
} kind;

/* A handle that a call uses: it cannot be destroyed meanwhile. */
#define MOST_HELD 40
struct slot;

typedef struct fuzz {
    uint64_t random;
    uint64_t sequence; /* its seed */
    uint64_t index;    /* the number of the call */
    unsigned thread;
    const char *operation;
    enum function function;
    kvmem_error *error;
    bool has_slot; /* the running call was given a place for its error */
    struct slot *held[MOST_HELD];
    size_t num_held;
} fuzz;

/* Prints where the sequence failed and how to replay it, and ends the process. */
_Noreturn void fuzz_fail(const fuzz *fuzz, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- chance ---- */
uint64_t random_next(fuzz *fuzz);
uint64_t random_below(fuzz *fuzz, uint64_t end);
bool random_one_in(fuzz *fuzz, uint64_t count);
/* One of the values of an array. */
#define random_of(fuzz, array) ((array)[random_below(fuzz, COUNT_OF(array))])
/* A few bits of `known`; at times others. */
uint64_t random_flags(fuzz *fuzz, uint64_t known);
/* Up to `most`; at times far more, or 0. */
uint64_t random_size(fuzz *fuzz, uint64_t most);
/* Below `end`, and at times not. */
uint64_t random_index(fuzz *fuzz, uint64_t end);
/* A GPU, and at times none that exists. */
int32_t random_device(fuzz *fuzz);
/* Nanoseconds, always few. */
uint64_t random_timeout(fuzz *fuzz);
/* sizeof a struct, and at times another number. */
size_t random_struct_size(fuzz *fuzz, size_t size);
/* The pointer, and at times NULL. */
#define or_null(fuzz, pointer) (random_one_in(fuzz, 60) ? NULL : (pointer))

/* ---- calls ---- */
kvmem_error **call_begin(fuzz *fuzz, enum function function);
/* Checks the status against the header, and the error against the status. Returns the status. */
kvmem_status call_end(fuzz *fuzz, kvmem_status status);
/* Notes a call that returns no status. */
void call_note(fuzz *fuzz, enum function function);

/* Calls a function that takes an error last. */
#define TRY(fuzz, function, ...)                                                                     \
    call_end(fuzz, function(__VA_ARGS__, call_begin(fuzz, FUNCTION_##function)))
#define TRY_0(fuzz, function) call_end(fuzz, function(call_begin(fuzz, FUNCTION_##function)))
/* Calls any other. */
#define DO(fuzz, function, ...) (call_note(fuzz, FUNCTION_##function), function(__VA_ARGS__))

/* A created handle: in the table, or NULL after a failure. */
void check_created(fuzz *fuzz, kind kind, kvmem_status status, void *handle, bool was_asked);

/* Calls a function that creates a handle, its output second to last; at times with NULL for the output. */
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
/* Defines one that calls a function on a handle of a kind: `TRIES(sync_region, kvmem_region_sync,
 * REGIONS)`. */
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
/* One that has a function fill in a value: `GETS(get_fd, kvmem_queue_get_fd, QUEUES, int32_t)`. */
#define GETS(name, function, kind, type)                                                             \
    static void name(fuzz *fuzz) {                                                                   \
        type value;                                                                                  \
        TRY(fuzz, function, table_pick(fuzz, kind), or_null(fuzz, &value));                          \
    }
/* One that creates a handle from one of another kind, with options that a function makes up if there are
 * any. */
#define CREATES(name, made, function, kind)                                                          \
    static void name(fuzz *fuzz) {                                                                   \
        CREATE(fuzz, made, function, table_pick(fuzz, kind));                                        \
    }
#define CREATES_WITH(name, made, function, kind, type, options_of)                                   \
    static void name(fuzz *fuzz) {                                                                   \
        const type options = options_of(fuzz);                                                       \
        CREATE(fuzz, made, function, table_pick(fuzz, kind), or_null(fuzz, &options));               \
    }
/* One that destroys a handle. */
#define DESTROYS(name, kind)                                                                         \
    static void name(fuzz *fuzz) {                                                                   \
        table_destroy(fuzz, kind);                                                                   \
    }
/* Declares options with their defaults, as a function sets them. */
#define FUZZ_OPTIONS(type, name, init)                                                               \
    type name;                                                                                       \
    DO(fuzz, init, &name, sizeof(name))

/* ---- one call ---- */
typedef struct operation {
    const char *name;
    unsigned weight;
    void (*run)(fuzz *fuzz);
    uint32_t needs; /* kinds of handles that it uses, a bit each: they are created first if there is none */
    uint32_t makes; /* kinds that it is called for then */
} operation;
#define BIT(kind) (UINT32_C(1) << (kind))
#define OPERATION(weight, function) {#function, weight, function, 0, 0}
#define OPERATION_WITH(weight, function, needs, makes) {#function, weight, function, needs, makes}

/* The operations of a file, ended by one without a name. */
extern const operation general_operations[];
extern const operation region_operations[];
extern const operation layout_operations[];
extern const operation transfer_operations[];
extern const operation share_operations[];
extern const operation agent_operations[];
extern const operation raw_operations[];
extern const operation directory_operations[];
extern const operation cuda_operations[];

/* Before a sequence, so that it depends on its seed alone. */
void shares_forget_tokens(void);

/* Runs the call with this index of a sequence. */
void call_run(fuzz *fuzz, uint64_t sequence, uint64_t index, unsigned thread);
/* How often each function was called, and how often it returned KVMEM_STATUS_OK or was no fallible one.
   Returns whether all were called, and all that can succeed here have. */
bool calls_report(bool prints, bool needs_all);
uint64_t calls_made(void);
