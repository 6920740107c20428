// SPDX-License-Identifier: Apache-2.0
// The cases and roles that the constructors of a program register. The order of constructors is unspecified.
#include "harness.h"

static test_case cases[128];
static struct {
    const char *file;
    int line;
} places[NUM(cases)];
static test_role roles[16];
static test_suite registered = {.cases = cases, .roles = roles};

static bool is_before(const char *file, int line, size_t other) {
    const int order = strcmp(file, places[other].file);
    return order < 0 || (order == 0 && line < places[other].line);
}

void test_add_case(test_case added, const char *file, int line) {
    CHECK(registered.num_cases < NUM(cases));
    size_t at = registered.num_cases++;
    for (; at > 0 && is_before(file, line, at - 1); at--) {
        cases[at] = cases[at - 1];
        places[at] = places[at - 1];
    }
    cases[at] = added;
    places[at].file = file;
    places[at].line = line;
}

void test_add_role(test_role added) {
    CHECK(registered.num_roles < NUM(roles));
    roles[registered.num_roles++] = added;
}

void test_set_lacks(const char *(*lacks)(void)) { registered.lacks = lacks; }

void test_set_begin_and_end(void (*begin)(void), void (*end)(void)) {
    registered.begin = begin;
    registered.end = end;
}

const test_suite *test_registered(void) { return &registered; }
