// SPDX-License-Identifier: Apache-2.0
// A Python program beside a test: it obeys lines, and replies with lines. Its interpreter is KVMEM_TEST_PYTHON, or that of
// the environment that set-up made.
#pragma once

#include <stdio.h>
#include <sys/types.h>

typedef struct python {
    pid_t pid; /* 0 once it was killed */
    FILE *commands;
    FILE *replies;
    char *reply;
    size_t capacity;
} python;

/* The first file of a pattern below the directory of the packages, valid until sixteen more were made; NULL if there is
   none. */
const char *python_package(const char *pattern);
/* What is missing to run Python with a package: the interpreter, or the package. NULL if nothing is missing. */
const char *python_lacks(const char *package);
/* Starts a script with one argument, and waits for the line "ready", which may be followed by a space and more. Returns
   that. */
const char *python_open(python *python, const char *script, const char *argument);
/* The reply to a line. It is valid until the next one. */
const char *python_tell(python *python, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Kills it. */
void python_kill(python *python);
/* Ends it in good order, unless it was killed. */
void python_close(python *python);
