// SPDX-License-Identifier: Apache-2.0
// Holds each call that a public function makes below the library, one after the other: calls of the file system, of NIXL or of the
// driver. Each time in a process of its own, twice. Once the function must end at its deadline while the call is held, once the
// call goes on before the deadline, and the function must succeed. Each time other functions and other objects are used while the
// call is held, and again after it; at the end everything is destroyed, and no file, mapping or thread is left.
#pragma once

#include "harness.h"

/* One use of public functions that wait. scripts/waits.py compares the names with docs/errors.md. */
typedef struct held_row {
    const char *functions; /* with blanks between them */
    void (*prepare)(void); /* what only this row needs; may be NULL. Calls of it are not held */
    kvmem_status (*run)(void);
    kvmem_status in_time; /* what it returns if no call is held for long */
    /* Another status than TIMED_OUT that it may return if a call is held for long; 0: none. */
    kvmem_status late;
    /* It returns no TIMED_OUT: it destroys, or threads of the library make all its calls. */
    bool is_never_late;
    /* It loads a library. Threads that begin meanwhile wait for the loader's lock, in the C library, so all are used once before. */
    bool is_loading;
    /* Why it waits as long as the call is held; NULL: it ends at its deadline. */
    const char *unbounded;
} held_row;
#define HELD_BY_FILES "no call of a file system has a limit of time; only the calling thread waits"

/* What a program with rows defines. */
extern const held_row held_rows[];
extern const size_t held_num_rows;
/* Open and close the objects that the rows use. */
void held_open(void);
void held_close(void);
/* Calls getters of these objects, and functions of other objects of the same kinds. */
void held_beside(void);

/* What the calls are that a program holds: one of files_below.c, nixl_below.c and driver_below.c. */
/* Runs `body` to its end, on a thread. */
void below_run(void (*body)(void));
/* From here on held_meets is asked at each call. */
void below_begin(void);
/* Lets the call go that is held. */
void below_go(void);
/* That of what needs no more. */
void held_run(void (*body)(void));
/* Whether the call of this name is held. */
bool held_meets(const char *name);

/* The row of this process. */
const held_row *held_current(void);
/* The directory in which all files of a process are. */
const char *held_folder(void);
/* The name of a memory file whose calls are held like those of a file in this directory. */
#define HELD_MEMORY "held"
/* A folder in it whose calls are not held, as if it were in another file system. */
#define HELD_ELSEWHERE "elsewhere"
/* For the deadline of a row; long if the call goes on before. */
uint64_t held_limit(void);

#define HELD_CASES TEST_CALL(each_call_below_is_held, held_walk())
/* With KVMEM_HELD=all the first eight calls and the last two of each name in each row, else the first and the last one. */
void held_walk(void);
/* Checks that the walk finds the fault of a row, the only one that it runs, and reports it so; NULL: that it finds none. */
void held_finds(const char *functions, const char *fault);
