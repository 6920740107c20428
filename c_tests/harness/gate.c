// SPDX-License-Identifier: Apache-2.0
// The pages are made inaccessible. The fault handler of a thread that accesses them waits on a pipe, and then
// the access is repeated.
#include "gate.h"

#include "harness.h"

#define PAGE 4096

static char *gate_start; /* of the last gate that was closed */
static size_t gate_size;
static bool is_closed;
static int arrivals[2] = {-1, -1};
static int release[2] = {-1, -1};
static pid_t main_thread;

/* Runs on the faulting thread; uses only async-signal-safe calls. */
static void on_fault(int signal_number, siginfo_t *info, void *context) {
    (void)context;
    const char *address = info->si_addr;
    if (gate_start == NULL || address < gate_start || address >= gate_start + gate_size) {
        signal(signal_number, SIG_DFL); /* a real fault: the repeated access ends the process */
        return;
    }
    if (gettid() == main_thread) {
        static const char text[] = "a call that must not wait for the copy makes it itself\n";
        _exit(write(STDOUT_FILENO, text, sizeof(text) - 1) > 0 ? 5 : 6);
    }
    char byte = 1;
    ssize_t done = write(arrivals[1], &byte, 1);
    while (done > 0) { /* all waiting threads read end-of-file when the gate opens */
        done = read(release[0], &byte, 1);
    }
}

/* The pipes stay until the next gate, because a thread that has just passed may still read them. */
static void renew_pipes(void) {
    close(arrivals[0]);
    close(arrivals[1]);
    close(release[0]);
    CHECK_EQ(pipe2(arrivals, O_CLOEXEC), 0);
    CHECK_EQ(pipe2(release, O_CLOEXEC), 0);
}

void gate_close(void *pages, size_t size) {
    CHECK_EQ((uintptr_t)pages % PAGE, 0);
    CHECK(size >= PAGE);
    if (is_closed) { /* left by a case that failed */
        gate_open();
    }
    renew_pipes();
    main_thread = gettid();
    gate_start = pages;
    gate_size = size / PAGE * PAGE;
    is_closed = true;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK_EQ(sigaction(SIGSEGV, &action, NULL), 0);
    CHECK_EQ(mprotect(gate_start, gate_size, PROT_NONE), 0);
}

void gate_await(void) {
    struct pollfd arrived = {.fd = arrivals[0], .events = POLLIN};
    CHECK_EQ(poll(&arrived, 1, PATIENCE_MS), 1);
}

void gate_open(void) {
    is_closed = false;
    CHECK_EQ(mprotect(gate_start, gate_size, PROT_READ | PROT_WRITE), 0);
    close(release[1]);
}
