/* SPDX-License-Identifier: Apache-2.0 */
/* Parses lines and values, and compares results. */
#define _GNU_SOURCE
#include "step.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *current_file = "";
size_t current_line;

static const size_t prefix = sizeof "KVMEM_STATUS_" - 1;
static void *copies[4 * MAX_KEYS];
static size_t num_copies;

void fail(const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s:%zu: ", current_file, current_line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

void *keep(void *memory)
{
    if (!memory || num_copies == sizeof copies / sizeof copies[0]) fail("the line is too long");
    return copies[num_copies++] = memory;
}

static void add_key(struct key *keys, size_t *count, char *word)
{
    char *equals = strchr(word, '=');
    if (!equals) fail("'%s' is not key=value", word);
    *equals = '\0';
    if (*count == MAX_KEYS) fail("there are too many keys");
    for (size_t i = 0; i < *count; i++)
        if (strcmp(keys[i].name, word) == 0) fail("the key %s is given twice", word);
    keys[(*count)++] = (struct key){word, equals + 1, false};
}

void step_parse(struct step *step, char *line)
{
    char *rest = line, *word;
    bool after = false;
    while (num_copies > 0) free(copies[--num_copies]);
    memset(step, 0, sizeof *step);
    step->status = "OK";
    step->call = strtok_r(line, " \n", &rest);
    for (size_t i = 1; (word = strtok_r(NULL, " \n", &rest)); i++) {
        if (strcmp(word, "->") == 0) {
            step->status = strtok_r(NULL, " \n", &rest);
            if (after || !step->status) fail("'->' is followed by one status");
            after = true;
        } else if (i == 1 && !strchr(word, '=')) {
            step->name = word;
        } else if (after) {
            add_key(step->expected, &step->num_expected, word);
        } else {
            add_key(step->keys, &step->num_keys, word);
        }
    }
}

const char *step_name(const struct step *step)
{
    if (!step->name) fail("%s needs the name of an object", step->call);
    return step->name;
}

/* ---- values of keys ---- */

static struct key *find_key(struct step *step, const char *name)
{
    for (size_t i = 0; i < step->num_keys; i++)
        if (strcmp(step->keys[i].name, name) == 0) return step->keys[i].read = true, &step->keys[i];
    return NULL;
}

bool has(struct step *step, const char *key)
{
    return find_key(step, key) != NULL;
}

const char *text_of(struct step *step, const char *key)
{
    const struct key *found = find_key(step, key);
    if (!found) fail("%s needs the key %s", step->call, key);
    return found->value;
}

uint64_t parse_number(const char *text)
{
    char *end;
    if (strcmp(text, "forever") == 0) return KVMEM_TIMEOUT_FOREVER;
    errno = 0;
    /* strtoull accepts a sign, and returns the complement: the statuses of status_name. */
    const uint64_t value = strtoull(text, &end, 0);
    if (end == text || *end || errno) fail("'%s' is not a number", text);
    return value;
}

uint64_t number_or(struct step *step, const char *key, uint64_t missing)
{
    return has(step, key) ? parse_number(text_of(step, key)) : missing;
}

uint64_t number_of(struct step *step, const char *key)
{
    return number_or(step, key, 0);
}

static uint64_t find_word(const char *text, const char *key, const struct word *words)
{
    for (; words->text; words++)
        if (strcmp(words->text, text) == 0) return words->value;
    fail("'%s' is not a word for %s", text, key);
}

uint64_t word_value(struct step *step, const char *key, const struct word *words)
{
    return has(step, key) ? find_word(text_of(step, key), key, words) : 0;
}

static size_t split(struct step *step, const char *key, const char *separators, char *items[MAX_LIST])
{
    size_t count = 0;
    char *rest;
    if (!has(step, key)) return 0;
    char *copy = keep(strdup(text_of(step, key)));
    for (char *item = strtok_r(copy, separators, &rest); item; item = strtok_r(NULL, separators, &rest)) {
        if (count == MAX_LIST) fail("the list %s is too long", key);
        items[count++] = item;
    }
    return count;
}

uint64_t flags_value(struct step *step, const char *key, const struct word *words)
{
    char *items[MAX_LIST];
    uint64_t bits = 0;
    const size_t count = split(step, key, "+", items);
    for (size_t i = 0; i < count; i++) bits |= find_word(items[i], key, words);
    return bits;
}

size_t list_of(struct step *step, const char *key, char *items[MAX_LIST])
{
    return split(step, key, ",", items);
}

size_t ids_of(struct step *step, const char *key, uint32_t ids[MAX_LIST])
{
    char *items[MAX_LIST];
    const size_t count = list_of(step, key, items);
    for (size_t i = 0; i < count; i++) ids[i] = (uint32_t)parse_number(items[i]);
    return count;
}

size_t bytes_of(struct step *step, const char *key, unsigned char **bytes)
{
    const char *hex = text_of(step, key);
    const size_t size = strlen(hex) / 2;
    if (strlen(hex) % 2) fail("%s has an odd number of digits", key);
    *bytes = keep(malloc(size + 1));
    for (size_t i = 0; i < size; i++) {
        const char digits[] = {'0', 'x', hex[2 * i], hex[2 * i + 1], '\0'};
        (*bytes)[i] = (unsigned char)parse_number(digits);
    }
    return size;
}

void step_finish(const struct step *step)
{
    for (size_t i = 0; i < step->num_keys; i++)
        if (!step->keys[i].read) fail("%s has no key %s", step->call, step->keys[i].name);
}

/* ---- results ---- */

void add_text(struct step *step, const char *key, const char *value)
{
    struct result *result = &step->results[step->num_results++];
    if (step->num_results == MAX_KEYS || strlen(value) >= sizeof result->value)
        fail("the result is too long");
    result->name = key;
    strcpy(result->value, value);
}

void add_number(struct step *step, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    add_text(step, key, text);
}

static const char *word_for(uint64_t value, const struct word *words)
{
    for (; words->text; words++)
        if (words->value == value) return words->text;
    return NULL;
}

void add_word(struct step *step, const char *key, uint64_t value, const struct word *words)
{
    const char *word = word_for(value, words);
    if (word) add_text(step, key, word);
    else add_number(step, key, value);
}

static void append(struct step *step, const char *separator, const char *item)
{
    char *value = step->results[step->num_results - 1].value;
    if (strlen(value) + strlen(item) + 2 > sizeof step->results[0].value) fail("the result is too long");
    if (*value) strcat(value, separator);
    strcat(value, item);
}

void add_flags(struct step *step, const char *key, uint64_t bits, const struct word *words)
{
    add_text(step, key, "");
    for (unsigned bit = 0; bit < 64; bit++) {
        const uint64_t flag = UINT64_C(1) << bit;
        const char *word = word_for(flag, words);
        if (bits & flag) append(step, "+", word ? word : "unknown");
    }
}

void append_item(struct step *step, const char *item)
{
    append(step, ",", item);
}

void append_number(struct step *step, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    append_item(step, text);
}

/* ---- comparing ---- */

/* Compares item by item; a hexadecimal number is compared by value. */
static bool equal_lists(const char *expected, const char *found)
{
    while (*expected && *found) {
        const size_t width = strcspn(expected, ","), other = strcspn(found, ",");
        if (strncmp(expected, "0x", 2) == 0) {
            if (strtoull(expected, NULL, 16) != strtoull(found, NULL, 10)) return false;
        } else if (width != other || strncmp(expected, found, width) != 0) {
            return false;
        }
        expected += width + (expected[width] == ',');
        found += other + (found[other] == ',');
    }
    return !*expected && !*found;
}

static void add_error(struct step *step, const kvmem_error *error)
{
    kvmem_error_cause cause;
    if (kvmem_error_get_cause(error, &cause) != KVMEM_STATUS_OK)
        fail("%s failed without an error", step->call);
    step->num_results = 0;
    add_text(step, "contains", kvmem_error_message(error, NULL));
    add_word(step, "domain", cause.domain, domains);
    add_text(step, "cause", cause.name);
}

static const char *result_of(const struct step *step, const char *key)
{
    for (size_t i = 0; i < step->num_results; i++)
        if (strcmp(step->results[i].name, key) == 0) return step->results[i].value;
    fail("%s returns no %s", step->call, key);
}

void step_compare(struct step *step, kvmem_status status, const kvmem_error *error)
{
    const char *found = kvmem_status_name(status) + prefix;
    if (status < 0) add_error(step, error);
    if (strcmp(found, step->status) != 0)
        fail("%s: expected %s, found %s: %s", step->call, step->status, found,
             kvmem_error_message(error, NULL));
    for (size_t i = 0; i < step->num_expected; i++) {
        const struct key *expected = &step->expected[i];
        const char *value = result_of(step, expected->name);
        const bool equal = strcmp(expected->name, "contains") == 0 ? strstr(value, expected->value) != NULL
                                                                   : equal_lists(expected->value, value);
        if (!equal) fail("%s: expected %s=%s, found %s", step->call, expected->name, expected->value, value);
    }
}
