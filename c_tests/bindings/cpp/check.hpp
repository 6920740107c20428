// SPDX-License-Identifier: Apache-2.0
// Cases and checks. A case is `CASE(name) { ... }`; main runs all of them, and fails with the line of the first failure.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <vector>

struct Case {
    Case(const char *title, void (*function)()) : name(title), run(function) { all().push_back(this); }
    static std::vector<Case *> &all() {
        static std::vector<Case *> cases;
        return cases;
    }
    const char *name;
    void (*run)();
};

#define CASE(title)                                    \
    static void title();                               \
    static const Case case_##title(#title, title);     \
    static void title()

#define CHECK(condition)                                                                             \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);           \
            std::exit(EXIT_FAILURE);                                                                 \
        }                                                                                            \
    } while (false)

inline int run_cases() {
    for (const Case *one : Case::all()) {
        std::printf("%s\n", one->name);
        std::fflush(stdout);
        one->run();
    }
    return Case::all().empty() ? EXIT_FAILURE : EXIT_SUCCESS;
}
