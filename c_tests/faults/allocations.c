// SPDX-License-Identifier: Apache-2.0
// Each allocation of the library in each operation of a program fails, one after the other, each in a forked child. Rust ends the process
// for an allocation that its caller cannot handle, which is allowed for small ones only: those whose size follows from a list of the
// caller or of a peer return an error.
#include "library_code.h"
#include "walk.h"

/* Nothing that a call allocates for itself is as large; lists of the caller in these programs are. */
#define LARGE 65536
#define MAX_ALLOCATIONS 100000
/* Small allocations of an operation that fail, unless all are asked for. */
#define SOME 4

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

static operation operations[40];
static size_t num_operations;
static scratch folder;
static unsigned patience_seconds = PATIENCE_SECONDS;
static size_t num_steps;

void operation_add(operation added) {
    CHECK(num_operations < NUM(operations));
    operations[num_operations++] = added;
}

const char *fault_folder(void) { return folder.path; }

/* ---- the walk ---- */

static void run_child(const operation *operation, uint64_t nth) {
    test_leave_cases();
    CHECK(freopen("/dev/null", "w", stderr) != NULL); /* Rust prints the size before it ends the process */
    CHECK(signal(SIGALRM, SIG_DFL) != SIG_ERR);
    alarm(patience_seconds);
    operations_open();
    failing = nth;
    is_armed = true;
    const kvmem_status status = operation->run();
    is_armed = false;
    operations_check();
    noted_page->status = status;
    snprintf(noted_page->message, sizeof(noted_page->message), "%s", test_last_message());
    if (operation->run() != operation->expected) FAIL("repeated: %s", test_last_message());
    test_forget_error();
    operations_close();
    _exit(EXIT_SUCCESS);
}

/* A process that ends leaves its files. */
static int run_step(const operation *operation, uint64_t nth) {
    memset(noted_page, 0, sizeof(*noted_page));
    folder = scratch_create(temporary_directory());
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) run_child(operation, nth);
    const int state = child_end(child);
    scratch_remove(&folder);
    return state;
}

typedef enum ending { HANDLED, ENDS_PROCESS, FAULT } ending;

static char last_fault[1024];

/* A peer in this process whose thread lacks memory may reply nothing. */
static bool is_allowed(const operation *operation, kvmem_status status) {
    const bool is_of_peer = status == KVMEM_STATUS_TIMED_OUT || status == KVMEM_STATUS_PEER_LOST;
    return status == operation->expected || status == KVMEM_STATUS_OUT_OF_MEMORY || (operations_have_peer && is_of_peer);
}

/* What a failure of this allocation does. */
static ending fail_allocation(const operation *operation, uint64_t nth) {
    const int state = run_step(operation, nth);
    /* Not that of the first run: threads allocate in any order. */
    const uint32_t size = noted_page->sizes[nth - 1];
    if (WIFSIGNALED(state) && WTERMSIG(state) == SIGABRT && size < LARGE) return ENDS_PROCESS;
    if (WIFEXITED(state) && WEXITSTATUS(state) == 0 && is_allowed(operation, noted_page->status)) return HANDLED;
    snprintf(last_fault, sizeof(last_fault), "%s, allocation %llu of %u bytes: the process ends with %d; %s: %s", operation->name,
             (unsigned long long)nth, size, state, kvmem_status_name(noted_page->status), noted_page->message);
    puts(last_fault);
    return FAULT;
}

/* Each large allocation, and some small ones from the first to the last, unless all are asked for. */
static size_t walk(const operation *operation, bool all) {
    static uint32_t sizes[MAX_ALLOCATIONS];
    CHECK_EQ(run_step(operation, 0), 0);
    const uint64_t count = noted_page->count < MAX_ALLOCATIONS ? noted_page->count : MAX_ALLOCATIONS;
    const uint64_t step = all || count < SOME ? 1 : count / SOME;
    memcpy(sizes, noted_page->sizes, sizeof(sizes));
    size_t endings[FAULT + 1] = {0}, large = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (!all && sizes[i] < LARGE && i % step != 0) continue;
        large += sizes[i] >= LARGE;
        endings[fail_allocation(operation, i + 1)]++;
        num_steps++;
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

void fault_walk(void) {
    const char *chosen = getenv("KVMEM_FAULTS");
    const bool all = chosen != NULL && strcmp(chosen, "all") == 0;
    size_t faults = 0;
    open_walk();
    for (size_t i = 0; i < num_operations; i++) faults += walk(&operations[i], all);
    close_walk();
    printf("%zu operations, %zu allocations, %zu failed\n", num_operations, num_steps, faults);
    if (faults > 0) FAIL("%zu allocations failed", faults);
}

void fault_walk_finds(const char *name, const char *fault) {
    size_t i = 0;
    while (strcmp(operations[i].name, name) != 0) CHECK(++i < num_operations);
    patience_seconds = 2;
    open_walk();
    all_callers = true;
    const size_t faults = walk(&operations[i], true);
    all_callers = false;
    close_walk();
    CHECK_EQ(faults, 1);
    CHECK_HAS(last_fault, fault);
}
