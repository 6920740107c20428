// SPDX-License-Identifier: Apache-2.0
// Each allocation of the library fails, one after the other, each in a forked child. Rust ends the process for an allocation that its
// caller cannot handle, which is allowed for small ones only: those whose size follows from a list of the caller or of a peer return
// an error.
#include "harness.h"
#include "library_code.h"
#include "operations.h"

/* Nothing that a call allocates for itself is as large; a list with an element for each of MANY is. */
#define LARGE 65536
#define MANY 20000
#define MAX_ALLOCATIONS 100000

/* ---- the allocator ---- */

static library_code code;
static atomic_bool is_armed;
static uint64_t failing;
static bool all_callers; /* not only the library */

typedef struct noted {
    _Atomic uint64_t count;
    uint32_t sizes[MAX_ALLOCATIONS]; /* of the last run */
    kvmem_status status;
    char message[256];
} noted;
static noted *noted_page;

static bool fails(const void *caller, size_t size) {
    if (!is_armed || !(all_callers || library_code_contains(&code, (uintptr_t)caller))) return false;
    const uint64_t index = noted_page->count++;
    if (index < MAX_ALLOCATIONS) noted_page->sizes[index] = size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
    if (index + 1 != failing) return false;
    errno = ENOMEM;
    return true;
}

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t number, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size) { return fails(__builtin_return_address(0), size) ? NULL : __libc_malloc(size); }

void *calloc(size_t number, size_t size) {
    return fails(__builtin_return_address(0), number * size) ? NULL : __libc_calloc(number, size);
}

void *realloc(void *memory, size_t size) {
    return fails(__builtin_return_address(0), size) ? NULL : __libc_realloc(memory, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    *memory = fails(__builtin_return_address(0), size) ? NULL : __libc_memalign(alignment, size);
    return *memory == NULL ? ENOMEM : 0;
}

/* ---- the operations ---- */

static operation operations[20];
static size_t num_operations;
static kv_side source, destination;
static kvmem_block_pair *many;
static kvmem_layout *wide_source, *wide_destination;

void operation_add(operation added) {
    CHECK(num_operations < NUM(operations));
    operations[num_operations++] = added;
}

static kvmem_layout_config wide(const char *order) {
    return OPTIONS(kvmem_layout_config, it.num_blocks = MANY, it.num_layers = 1, it.outer_dim = 1, it.page_size = 1,
                   it.inner_dim = 8, it.dtype_width = 1, it.order = order);
}

void operations_open(void) {
    const kvmem_layout_config one = wide(kv_kinds[0].order), other = wide(kv_kinds[1].order);
    kv_side_open(&source, REF(kv_config(&kv_kinds[0])), NULL, 1);
    kv_side_open(&destination, REF(kv_config(&kv_kinds[1])), NULL, 2);
    const kvmem_system_options shareable = OPTIONS(kvmem_system_options, it.flags = KVMEM_SYSTEM_SHAREABLE);
    EXPECT_OK(kvmem_layout_build(REF(OPTIONS(kvmem_layout_options, it.config = &one, it.system = &shareable,
                                             it.source = KVMEM_LAYOUT_ALLOCATE)),
                                 &wide_source, ERR));
    wide_destination = layout_allocate_system(&other);
    many = test_allocate(MANY * sizeof(*many));
    /* Every other one, so that no two are adjacent on both sides. */
    for (uint64_t i = 0; i < MANY; i++) many[i] = (kvmem_block_pair){i, i * 7919 % MANY};
}

void operations_close(void) {
    free(many);
    kvmem_layout_destroy(wide_destination);
    kvmem_layout_destroy(wide_source);
    kv_side_close(&destination);
    kv_side_close(&source);
}

static kvmem_status move(const kvmem_layout *from, const kvmem_layout *to, const kv_move *pairs) {
    OWNED(kvmem_transfer) transfer = NULL;
    kvmem_status status = kv_prepare(from, to, REF(kv_job_of(pairs)), &transfer, ERR);
    THEN(status, kvmem_transfer_submit(transfer, NULL, ERR));
    THEN(status, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    return status;
}

OPERATION(move_few_blocks) {
    const kv_move few = KV_MOVE(3, {0, 0}, {6, 1});
    return move(source.layout, destination.layout, &few);
}

OPERATION(move_many_blocks) {
    const kv_move all = {many, MANY, 0, 0, 1};
    return move(wide_source, wide_destination, &all);
}

OPERATION(checksum_many_blocks) {
    static uint32_t ids[MANY], sums[MANY];
    for (uint32_t i = 0; i < MANY; i++) ids[i] = i;
    return kvmem_layout_checksum(wide_source, ids, MANY, PATIENCE, sums, ERR);
}

OPERATION(read_the_bytes_of_a_share) {
    static unsigned char bytes[4 * LARGE];
    OWNED(kvmem_share) share = NULL;
    const kvmem_status status = kvmem_share_create_received(bytes, sizeof(bytes), NULL, 0, &share, ERR);
    return status == KVMEM_STATUS_CORRUPT ? KVMEM_STATUS_OK : status;
}

OPERATION(write_many_blocks) {
    const kvmem_layout_config config = wide(kv_kinds[0].order);
    const kv_move all = {many, MANY, 0, 0, 1};
    const kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.flags = KVMEM_DISK_BUFFERED);
    OWNED(kvmem_layout) file = NULL;
    kvmem_status status = kvmem_layout_build(
        REF(OPTIONS(kvmem_layout_options, it.config = &config, it.disk = &disk, it.source = KVMEM_LAYOUT_ALLOCATE)), &file, ERR);
    THEN(status, move(wide_source, file, &all));
    return status;
}

/* A put without memory leaves all slots free. */
OPERATION(put_many_blocks_into_a_store) {
    static uint32_t ids[MANY];
    for (uint32_t i = 0; i < MANY; i++) ids[i] = i;
    SCRATCH_FILE(path, "store");
    store_setup setup;
    store_setup_init(&setup, path, REF(wide(kv_kinds[0].order)));
    setup.options.flags = KVMEM_DISK_BUFFERED;
    setup.options.durability = KVMEM_DURABILITY_NONE;
    OWNED(kvmem_store) store = NULL;
    size_t moved = 0;
    kvmem_status status = kvmem_store_open(&setup.options, PATIENCE, &store, ERR);
    THEN(status, store_put(store, wide_source, 0, ids, MANY, &moved));
    if (store == NULL || status == KVMEM_STATUS_OK) return status;
    const kvmem_status again = store_put(store, wide_source, 0, ids, MANY, &moved);
    return again == KVMEM_STATUS_OK && moved == MANY ? status : KVMEM_STATUS_PANIC;
}

OPERATION(share_a_layout) {
    OWNED(kvmem_share) share = NULL;
    kvmem_status status = kvmem_share_create_layout(wide_source, NULL, &share, ERR);
    THEN(status, TRIED(kvmem_layout, kvmem_share_open_layout, share, NULL));
    return status;
}

OPERATION(create_regions) {
    OWNED(kvmem_region) memory = NULL;
    OWNED(kvmem_region) view = NULL;
    kvmem_status status = kvmem_region_create_system(REF(OPTIONS(kvmem_system_options, it.size = MIB)), &memory, ERR);
    THEN(status, kvmem_region_create_view(memory, 4096, 8192, &view, ERR));
    return status;
}

/* ---- the walk ---- */

static void run_child(const operation *operation, uint64_t nth) {
    test_leave_cases();
    CHECK(freopen("/dev/null", "w", stderr) != NULL); /* Rust prints the size before it ends the process */
    alarm(PATIENCE_SECONDS);
    operations_open();
    failing = nth;
    is_armed = true;
    const kvmem_status status = operation->run();
    is_armed = false;
    noted_page->status = status;
    snprintf(noted_page->message, sizeof(noted_page->message), "%s", test_last_message());
    if (operation->run() != operation->expected) FAIL("repeated: %s", test_last_message());
    test_forget_error();
    operations_close();
    _exit(EXIT_SUCCESS);
}

static int run_step(const operation *operation, uint64_t nth) {
    memset(noted_page, 0, sizeof(*noted_page));
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) run_child(operation, nth);
    return child_end(child);
}

typedef enum ending { HANDLED, ENDS_PROCESS, FAULT } ending;

/* What a failure of this allocation does. */
static ending fail_allocation(const operation *operation, uint64_t nth) {
    const int state = run_step(operation, nth);
    /* Not that of the first run: threads allocate in any order. */
    const uint32_t size = noted_page->sizes[nth - 1];
    if (WIFSIGNALED(state) && WTERMSIG(state) == SIGABRT && size < LARGE) return ENDS_PROCESS;
    if (WIFEXITED(state) && WEXITSTATUS(state) == 0 &&
        (noted_page->status == operation->expected || noted_page->status == KVMEM_STATUS_OUT_OF_MEMORY))
        return HANDLED;
    printf("%s, allocation %llu of %u bytes: the process ends with %d; %s: %s\n", operation->name, (unsigned long long)nth, size,
           state, kvmem_status_name(noted_page->status), noted_page->message);
    return FAULT;
}

/* Of small allocations, each eighth, unless all are asked for. */
static size_t walk(const operation *operation, bool all) {
    static uint32_t sizes[MAX_ALLOCATIONS];
    CHECK_EQ(run_step(operation, 0), 0);
    const uint64_t count = noted_page->count < MAX_ALLOCATIONS ? noted_page->count : MAX_ALLOCATIONS;
    memcpy(sizes, noted_page->sizes, sizeof(sizes));
    size_t endings[FAULT + 1] = {0}, large = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (!all && sizes[i] < LARGE && i % 8 != 0) continue;
        large += sizes[i] >= LARGE;
        endings[fail_allocation(operation, i + 1)]++;
    }
    printf("%s: %llu allocations; of those that failed, %zu are handled, %zu of them of %d bytes or more; %zu end the process\n",
           operation->name, (unsigned long long)count, endings[HANDLED], large, LARGE, endings[ENDS_PROCESS]);
    return endings[FAULT];
}

static void open_walk(void) {
    code = library_code_find();
    noted_page = mmap(NULL, sizeof(*noted_page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(noted_page != MAP_FAILED);
}

static void close_walk(void) { munmap(noted_page, sizeof(*noted_page)); }

TEST(each_allocation_fails) {
    const char *chosen = getenv("KVMEM_FAULTS");
    const bool all = chosen != NULL && strcmp(chosen, "all") == 0;
    size_t faults = 0;
    open_walk();
    for (size_t i = 0; i < num_operations; i++) faults += walk(&operations[i], all);
    close_walk();
    CHECK_EQ(faults, 0);
}

/* ---- the walk finds each kind of fault ---- */

static void *volatile allocated; /* so that the compiler keeps the calls */

static kvmem_status end_the_process_for_a_list(void) {
    allocated = malloc(LARGE);
    if (allocated == NULL) abort();
    free(allocated);
    return KVMEM_STATUS_OK;
}

static kvmem_status crash_for_a_few_bytes(void) {
    allocated = malloc(8);
    *(volatile char *)allocated = 1;
    free(allocated);
    return KVMEM_STATUS_OK;
}

static kvmem_status call_it_something_else(void) {
    allocated = malloc(8);
    const kvmem_status status = allocated == NULL ? KVMEM_STATUS_IO : KVMEM_STATUS_OK;
    free(allocated);
    return status;
}

static void find(kvmem_status (*run)(void)) {
    open_walk();
    all_callers = true;
    const size_t faults = walk(&(operation){"seeded", run, KVMEM_STATUS_OK}, true);
    all_callers = false;
    close_walk();
    CHECK_EQ(faults, 1);
}

TEST_CALL(a_list_that_ends_the_process_is_found, find(end_the_process_for_a_list))
TEST_CALL(memory_that_is_used_and_missing_is_found, find(crash_for_a_few_bytes))
TEST_CALL(another_status_is_found, find(call_it_something_else))
