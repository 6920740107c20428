// SPDX-License-Identifier: Apache-2.0
// The library makes most system calls by its own instructions, which no function can intercept. So a seccomp
// filter turns memory calls from the library's code into a signal, whose handler makes the call or fails it.
// Calls through the C library's functions are intercepted and fail there.
#include "memory_faults.h"

#include "library_code.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* Counts the requests during a call, on any thread of the library. Those from `first` to `last` fail; 0:
   none. */
static _Atomic uint32_t first_failing, last_failing, requests;
static _Atomic int full; /* the error of a request to set a file's size */
static _Atomic uint64_t refused;

void memory_faults_plan(fuzz *fuzz) {
    const uint32_t first = 1 + (uint32_t)random_below(fuzz, random_one_in(fuzz, 2) ? 8 : 2);
    requests = 0;
    full = random_one_in(fuzz, 2) ? ENOSPC : ENOMEM;
    last_failing = random_one_in(fuzz, 2) ? first : UINT32_MAX;
    first_failing = first;
}

void memory_faults_forget(void) { first_failing = 0; }

uint64_t memory_faults_refused(void) { return refused; }

/* The error of this request; 0: the kernel performs it. */
static int planned_error(long number) {
    const uint32_t first = first_failing;
    if (first == 0) return 0;
    const uint32_t which = 1 + atomic_fetch_add(&requests, 1);
    if (which < first || which > last_failing) return 0;
    refused++;
    return number == SYS_ftruncate || number == SYS_fallocate ? full : ENOMEM;
}

static library_code code;

bool is_in_library(const void *address) { return library_code_contains(&code, (uintptr_t)address); }

/* ---- the library's own instructions ---- */

#ifdef __x86_64__

/* The result as the kernel returns it, or a negative error. */
static long make_call(long number, const greg_t *registers) {
    const long result = syscall(number, registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                                registers[REG_R10], registers[REG_R8], registers[REG_R9]);
    return result == -1 ? -errno : result;
}

static void on_call(int signal, siginfo_t *info, void *context) {
    (void)signal;
    const int before = errno;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const int error = planned_error(info->si_syscall);
    registers[REG_RAX] = error != 0 ? -error : make_call(info->si_syscall, registers);
    errno = before;
}

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define LOAD_HIGH BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4)
/* Skips this number of instructions if the condition is true, or if it is false. */
#define SKIP_IF(condition, value, yes, no) BPF_JUMP(BPF_JMP | condition | BPF_K, (uint32_t)(value), yes, no)
#define RETURN(how) BPF_STMT(BPF_RET | BPF_K, how)

void memory_faults_watch(void) {
    code = library_code_find();
    CHECK(syscall(SYS_getpid) > 0); /* Resolves syscall() now, because the signal handler must not. */
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO};
    CHECK_EQ(sigaction(SIGSYS, &action, NULL), 0);
    struct sock_filter filter[] = {
        LOAD(arch),
        SKIP_IF(BPF_JEQ, AUDIT_ARCH_X86_64, 0, 17),
        LOAD(nr),
        SKIP_IF(BPF_JEQ, SYS_mmap, 4, 0),
        SKIP_IF(BPF_JEQ, SYS_mremap, 3, 0),
        SKIP_IF(BPF_JEQ, SYS_memfd_create, 2, 0),
        SKIP_IF(BPF_JEQ, SYS_ftruncate, 1, 0),
        SKIP_IF(BPF_JEQ, SYS_fallocate, 0, 11),
        /* After the start of the code. */
        LOAD_HIGH,
        SKIP_IF(BPF_JGT, code.start >> 32, 3, 0),
        SKIP_IF(BPF_JEQ, code.start >> 32, 0, 8),
        LOAD(instruction_pointer),
        SKIP_IF(BPF_JGE, code.start, 0, 6),
        /* Before the end of the code. */
        LOAD_HIGH,
        SKIP_IF(BPF_JGE, code.end >> 32, 0, 3),
        SKIP_IF(BPF_JEQ, code.end >> 32, 0, 3),
        LOAD(instruction_pointer),
        SKIP_IF(BPF_JGE, code.end, 1, 0),
        RETURN(SECCOMP_RET_TRAP),
        RETURN(SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

#else

/* Only calls through the C library fail. */
void memory_faults_watch(void) { code = library_code_find(); }

#endif

/* ---- the C library's functions, replaced for all libraries of the process ---- */

typedef long make_any_call(long, ...);
typedef void *map(void *, size_t, int, int, int, off_t);

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

/* The library calls it for io_uring. */
long syscall(long number, ...) {
    static _Atomic(make_any_call *) known;
    long given[6];
    va_list arguments;
    va_start(arguments, number);
    for (size_t i = 0; i < 6; i++) given[i] = va_arg(arguments, long);
    va_end(arguments);
    const bool is_memory = number == SYS_io_uring_setup || number == SYS_io_uring_register;
    if (is_memory && first_failing != 0 && is_in_library(__builtin_return_address(0))) {
        const int error = planned_error(number);
        if (error != 0) return errno = error, -1;
    }
    if (known == NULL) known = (union { void *address; make_any_call *function; }){next("syscall")}.function;
    return known(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

/* Mappings of files, such as the rings of io_uring. Anonymous mappings never fail here: Rust's standard
   library needs them for a new thread, and aborts without. */
void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset) {
    static _Atomic(map *) known;
    if (file >= 0 && first_failing != 0 && is_in_library(__builtin_return_address(0))) {
        const int error = planned_error(SYS_mmap);
        if (error != 0) return errno = error, MAP_FAILED;
    }
    if (known == NULL) known = (union { void *address; map *function; }){next("mmap")}.function;
    return known(address, size, protection, flags, file, offset);
}
