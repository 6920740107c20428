// SPDX-License-Identifier: Apache-2.0
// Runs an example as two processes with a socket between them. The second one is this program, started again.
#ifndef TWO_PROCESSES_H
#define TWO_PROCESSES_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static inline void fail(const char *what)
{
    perror(what);
    exit(EXIT_FAILURE);
}

static inline int run_two_processes(int argc, char **argv, void (*own)(int socket), void (*use)(int socket))
{
    int ends[2], status;
    alarm(60);
    if (argc > 1) {
        use(atoi(argv[1]));
        return EXIT_SUCCESS;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) fail("socketpair");
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", ends[1]);
        close(ends[0]);
        execl("/proc/self/exe", argv[0], number, (char *)NULL);
        fail("start the other process");
    }
    close(ends[1]);
    own(ends[0]);
    return waitpid(child, &status, 0) == child && status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
