// SPDX-License-Identifier: Apache-2.0
// What NVTX and a profiler's library have in common: the profiler gets tables of places for functions, and writes its own there.
#include "nvtx_sim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANGES 256
/* An id that is no index. */
#define FIRST_ID 1000

typedef void (*function)(void);

typedef struct callbacks {
    size_t struct_size;
    int (*get_module_function_table)(unsigned module, function ***table, unsigned *size);
} callbacks;

typedef struct version_info {
    size_t struct_size;
    uint32_t version;
    uint32_t reserved;
    void (*set_injection_version)(uint32_t version);
} version_info;

typedef struct attributes {
    uint16_t version;
    uint16_t size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type;
    int32_t reserved;
    uint64_t payload;
    int32_t message_type;
    const char *message;
} attributes;

enum { CALLBACKS = 1, VERSION_INFO = 3 };
/* By module: number of its functions, and one for none. */
static const unsigned sizes[] = {0, 16, 9, 15, 7, 16, 7};
enum { DOMAINS = 5, RANGE_START = 2, RANGE_END = 3, DOMAIN_CREATE = 12 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static nvtx_sim_range ranges[MAX_RANGES];
static size_t count;
static int domain;
static _Atomic(function) called;

static void call(void) {
    const function at_each = atomic_load(&called);
    if (at_each != NULL) at_each();
}

void nvtx_sim_call(void (*at_each)(void)) { atomic_store(&called, at_each); }

static void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "nvtx_sim: not the case: %s\n", what);
    abort();
}
#define REQUIRE(condition) require(condition, #condition)

static void *create(const char *name) {
    REQUIRE(strcmp(name, "kvmem") == 0);
    return &domain;
}

static uint64_t start(void *of, const attributes *shown) {
    REQUIRE(of == &domain);
    REQUIRE(shown->version == 3 && shown->size == sizeof(*shown) && shown->reserved == 0);
    REQUIRE(shown->payload_type == 1 && shown->message_type == 1);
    call();
    pthread_mutex_lock(&lock);
    REQUIRE(count < MAX_RANGES);
    nvtx_sim_range *range = &ranges[count];
    snprintf(range->message, sizeof(range->message), "%s", shown->message);
    range->payload = shown->payload;
    const uint64_t id = FIRST_ID + count++;
    pthread_mutex_unlock(&lock);
    return id;
}

static void end(void *of, uint64_t id) {
    REQUIRE(of == &domain);
    call();
    pthread_mutex_lock(&lock);
    REQUIRE(id >= FIRST_ID && id - FIRST_ID < count && !ranges[id - FIRST_ID].has_ended);
    ranges[id - FIRST_ID].has_ended = true;
    pthread_mutex_unlock(&lock);
}

size_t nvtx_sim_count(void) {
    pthread_mutex_lock(&lock);
    const size_t started = count;
    pthread_mutex_unlock(&lock);
    return started;
}

nvtx_sim_range nvtx_sim_get(size_t index) {
    pthread_mutex_lock(&lock);
    REQUIRE(index < count);
    const nvtx_sim_range range = ranges[index];
    pthread_mutex_unlock(&lock);
    return range;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(const void *(*get_export_table)(uint32_t));

/* Looks at all modules, as profilers do, and attaches its functions. */
int InitializeInjectionNvtx2(const void *(*get_export_table)(uint32_t)) {
    const callbacks *tables = get_export_table(CALLBACKS);
    REQUIRE(tables != NULL && tables->struct_size == sizeof(*tables));
    const version_info *version = get_export_table(VERSION_INFO);
    REQUIRE(version != NULL && version->struct_size == sizeof(*version) && version->version == 3);
    version->set_injection_version(3);
    REQUIRE(get_export_table(2) == NULL);
    function **table = NULL;
    unsigned size = 0;
    REQUIRE(tables->get_module_function_table(0, &table, &size) == 0);
    REQUIRE(tables->get_module_function_table(7, &table, &size) == 0);
    for (unsigned module = 1; module < sizeof(sizes) / sizeof(sizes[0]); module++) {
        REQUIRE(tables->get_module_function_table(module, &table, &size) != 0);
        REQUIRE(size == sizes[module] && table[0] == NULL && table[size] == NULL);
        for (unsigned at = 1; at < size; at++) REQUIRE(*table[at] == NULL);
    }
    REQUIRE(tables->get_module_function_table(DOMAINS, &table, NULL) != 0);
    *table[DOMAIN_CREATE] = (function)create;
    *table[RANGE_START] = (function)start;
    *table[RANGE_END] = (function)end;
    return 1;
}
