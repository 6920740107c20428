// SPDX-License-Identifier: Apache-2.0
// A test preloads this in the demo. It kills rank 1 of prefill before decode starts its fourth transfer. At
// that point decode has the metadata and the layout of that rank, and half of its tokens.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <kvmem.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int has_argument(long pid, const char *argument)
{
    char path[64], line[4096];
    snprintf(path, sizeof path, "/proc/%ld/cmdline", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    const size_t size = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[size] = '\0';
    for (const char *each = line; each < line + size; each += strlen(each) + 1)
        if (strcmp(each, argument) == 0) return 1;
    return 0;
}

/* Rank 1 of prefill: another child of the process that started this one. */
static long find_victim(void)
{
    char path[64];
    long pid, victim = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", getppid(), getppid());
    FILE *file = fopen(path, "r");
    if (!file) abort();
    while (fscanf(file, "%ld", &pid) == 1)
        if (has_argument(pid, "--role=prefill") && has_argument(pid, "--rank=1")) victim = pid;
    fclose(file);
    if (!victim) abort();
    return victim;
}

static void kill_victim(void)
{
    const long victim = find_victim();
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, victim, 0), .events = POLLIN};
    if (ended.fd < 0 || kill((pid_t)victim, SIGKILL) != 0 || poll(&ended, 1, 60000) != 1) abort();
    close(ended.fd);
}

kvmem_status kvmem_transfer_start(const kvmem_layout *from, const kvmem_layout *to,
                                  const kvmem_transfer_options *options, const kvmem_submit_options *first, kvmem_transfer **transfer,
                                  kvmem_error **error)
{
    static int calls;
    kvmem_status (*start)(const kvmem_layout *, const kvmem_layout *, const kvmem_transfer_options *,
                          const kvmem_submit_options *, kvmem_transfer **, kvmem_error **);
    *(void **)&start = dlsym(RTLD_NEXT, "kvmem_transfer_start");
    if (!start) abort();
    if (++calls == 4) kill_victim();
    return start(from, to, options, first, transfer, error);
}
