// SPDX-License-Identifier: Apache-2.0
// A Python program that runs beside a test: it reads commands as lines, and writes a line as the reply to
// each. Its interpreter is KVMEM_TEST_PYTHON, or that of the environment that set-up made.
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

/* The first file that matches a pattern below the directory of packages, or NULL. Valid until sixteen more
   texts were made. */
const char *python_package(const char *pattern);
/* What is missing to run Python with a package: the interpreter, or the package. NULL if nothing is
   missing. */
const char *python_lacks(const char *package);
/* Starts a script with one argument, and waits for the line "ready", which may be followed by a space and
   text. Returns that text. */
const char *python_open(python *python, const char *script, const char *argument);
/* Sends a line, and returns the reply. It is valid until the next call. */
const char *python_send(python *python, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Kills it. */
void python_kill(python *python);
/* Ends it normally, unless it was killed. */
void python_close(python *python);
