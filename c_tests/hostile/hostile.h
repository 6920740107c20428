// SPDX-License-Identifier: Apache-2.0
// A peer that speaks a wire form of the library correctly, and behaves badly. Three processes: the victim, a healthy peer, and the
// hostile one, a new process for each row. While it acts, and after it was killed or stopped, the healthy peer and the victim
// serve each other; the victim's open files, threads and memory stay within limits, and return.
#pragma once

#include "harness.h"

typedef struct hostile_row {
    const char *does;
    void (*act)(unsigned turn); /* in the hostile process, again and again; turns are counted from 0 */
    bool stops;                 /* after its turns it is stopped, and then killed */
    unsigned turns;             /* at least; 0: 12 */
    bool is_long;               /* only in rows that last for a time: another row has the same kind */
} hostile_row;

/* What a hostile peer may take of the time of others. docs/reliability.md says the same, with the reasons. */
typedef struct hostile_bounds {
    double longest_ms; /* of a round of the healthy peer, besides the time in which its threads or the victim's had no processor */
    double share;      /* the least part of its rounds per second without a hostile peer */
    double processors; /* that the victim needs beside its threads that call the library, and one and a half times as many as usual for as many rounds */
} hostile_bounds;

/* A wire form. Functions may be NULL, except `open` and the limits. Exactly one of the two rounds exists. */
typedef struct hostile_form {
    struct {
        void (*open)(void);
        void (*round)(void); /* with the healthy peer: it must succeed */
        void (*meet)(void);  /* the hostile peer of a row is there */
        void (*deal)(void);  /* with the hostile peer, which must end by its timeout, with any status */
        void (*part)(void);  /* the hostile peer is gone, or is stopped and is no longer used */
        void (*close)(void);
    } victim;
    struct {
        void (*open)(void);
        void (*round)(void); /* with the victim: it must succeed */
        void (*close)(void);
    } healthy;
    void (*open_hostile)(void);
    /* What the victim may have in addition while it serves the healthy peer alone. */
    size_t files, threads;
    uint64_t bytes;
    hostile_bounds bounds; /* checked in rows that last for a second or more */
    const hostile_row *rows;
    size_t num_rows;
} hostile_form;

/* The rows, beside which a victim that maps and shares little memory has little more. */
#define HOSTILE_ROWS_OF_LITTLE .files = 16, .threads = 2, .bytes = 16 * MIB, .rows = rows, .num_rows = NUM(rows)

/* Each program defines one. */
extern const hostile_form hostile_form_here;

/* Bytes that processes of the case pass to each other under a name: published once; taken as soon as they exist. */
void hostile_put(const char *name, const void *data, size_t size);
message hostile_take(const char *name);
/* What an agent needs to read a layout of another one: put by that one, and taken by others, which import the layout and free its descriptor. */
void hostile_put_layout(kvmem_agent *agent, const kvmem_layout *layout);
message hostile_take_layout(kvmem_agent *agent, kvmem_layout **layout);
/* A name that no other row has, of this hostile process, or of the one that the victim has met. */
const char *hostile_name(const char *name);
/* The path of a file that all processes can access. */
const char *hostile_path(const char *name);
/* How often the victim has dealt with the hostile peer of this row. */
unsigned hostile_deals(void);
/* The hostile process waits until the healthy peer and the victim have begun and made so many rounds since this call. */
void hostile_await_rounds(unsigned rounds);
/* The next pseudo-random number of this process; the same in each run. */
uint64_t hostile_random(void);

#define HOSTILE_CASES TEST_CALL(each_behaviour_is_survived, hostile_walk())
/* All rows. With KVMEM_TEST_LOAD_SECONDS each of them lasts so long, else some turns. With KVMEM_TEST_HOSTILE only rows with this text. */
void hostile_walk(void);
/* The row finds this fault of the victim; NULL: none. */
void hostile_finds(const char *does, const char *fault);
/* The same of a fault that exceeds a bound. */
void hostile_finds_beyond(const char *does, hostile_bounds exceeded, const char *fault);
