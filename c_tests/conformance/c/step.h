/* SPDX-License-Identifier: Apache-2.0 */
/* A line of a table, its words as values, and its results. ../README.md has the format. */
#ifndef STEP_H
#define STEP_H

#include "../words.h"

#include <stdbool.h>

#define MAX_KEYS 48
#define MAX_LIST 256

struct key {
    const char *name;
    char *value;
    bool read;
};

struct result {
    const char *name;
    char value[2048];
};

struct step {
    const char *call;
    const char *name; /* NULL for none */
    const char *status;
    struct key keys[MAX_KEYS], expected[MAX_KEYS];
    size_t num_keys, num_expected;
    struct result results[MAX_KEYS];
    size_t num_results;
};

/* The line that is run. Prints where it is and what is wrong, and ends the runner. */
extern const char *current_file;
extern size_t current_line;
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The words of a line remain in it. */
void step_parse(struct step *step, char *line);
const char *step_name(const struct step *step);

/* Values of keys. A key that is read is known; step_finish fails for any other one. */
bool has(struct step *step, const char *key);
const char *text_of(struct step *step, const char *key);
uint64_t number_or(struct step *step, const char *key, uint64_t missing);
uint64_t number_of(struct step *step, const char *key);
uint64_t word_value(struct step *step, const char *key, const struct word *words);
uint64_t flags_value(struct step *step, const char *key, const struct word *words);
/* Splits a copy at commas. The copy lives until the next line. */
size_t list_of(struct step *step, const char *key, char *items[MAX_LIST]);
size_t ids_of(struct step *step, const char *key, uint32_t ids[MAX_LIST]);
size_t bytes_of(struct step *step, const char *key, unsigned char **bytes);
uint64_t parse_number(const char *text);
/* Frees memory of malloc after the line. */
void *keep(void *memory);
void step_finish(const struct step *step);

/* Results of a call that succeeded. */
void add_text(struct step *step, const char *key, const char *value);
void add_number(struct step *step, const char *key, uint64_t value);
void add_word(struct step *step, const char *key, uint64_t value, const struct word *words);
void add_flags(struct step *step, const char *key, uint64_t bits, const struct word *words);
/* Appends to the last result, after a comma if it is not empty. */
void append_item(struct step *step, const char *item);
void append_number(struct step *step, uint64_t number);

void step_compare(struct step *step, kvmem_status status, const kvmem_error *error);

#endif
