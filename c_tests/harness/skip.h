// SPDX-License-Identifier: Apache-2.0
// Skips: cases, and parts of cases, that this machine cannot run. Each is printed, written to the record that
// CI compares with the expected skips (scripts/skips.py), and makes the program exit with EXIT_SKIPPED.
#pragma once

/* The exit code of a program that failed no case and skipped something: SKIP_RETURN_CODE of each test in
 * CTest. */
#define EXIT_SKIPPED 77

/* Ends the running case as skipped. Free the resources of the case first: nothing after this runs. The reason
   names what this machine lacks, in one line. Only on the thread of the case, not in a forked child and not
   in a peer. */
_Noreturn void test_skip(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define SKIP(...) test_skip(__FILE__, __LINE__, __VA_ARGS__)

/* Reports that a part of the running case is skipped; the case continues. One report per case for each
   reason. In a peer it does nothing: the case that started the peer reports. */
void test_skip_part(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define SKIP_PART(...) test_skip_part(__FILE__, __LINE__, __VA_ARGS__)
