// SPDX-License-Identifier: Apache-2.0
// Delta debugging: removes halves, then quarters, and so on, until every remaining call is needed.
#include "minimise.h"

#include "settings.h"

#include <spawn.h>

extern char **environ;

#define MAX_TEXT (1u << 20)

/* The numbers of the calls that are made. */
typedef struct calls {
    uint64_t *numbers;
    size_t count;
} calls;

static void write_list(const calls *calls, char *text) {
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < calls->count && length + 24 < MAX_TEXT; i++)
        length += (size_t)sprintf(text + length, "%s%llu", i > 0 ? "," : "",
                                  (unsigned long long)calls->numbers[i]);
    if (calls->count == 0) strcpy(text, "none");
}

/* Whether the sequence fails with these calls alone. */
static bool fails(const calls *calls, bool prints) {
    static char list[MAX_TEXT];
    char seed[32];
    char count[32];
    write_list(calls, list);
    snprintf(seed, sizeof(seed), "%llu", (unsigned long long)settings.seed);
    snprintf(count, sizeof(count), "%llu", (unsigned long long)settings.calls);
    char *arguments[20] = {"calls_fuzz", "--seed", seed, "--sequences", "1", "--calls", count, "--only",
                           list};
    size_t length = 9;
    if (prints) arguments[length++] = "--print-calls";
    char patience[32];
    snprintf(patience, sizeof(patience), "%llu", (unsigned long long)settings.patience);
    arguments[length++] = "--patience";
    arguments[length++] = patience;
    if (settings.faults) arguments[length++] = "--faults";
    if (settings.collects_statuses) arguments[length++] = "--collect-statuses";
    if (settings.nixl != NULL) {
        arguments[length++] = "--nixl";
        arguments[length++] = (char *)settings.nixl;
    }
    arguments[length] = NULL;
    posix_spawn_file_actions_t actions;
    CHECK_EQ(posix_spawn_file_actions_init(&actions), 0);
    if (!prints)
        CHECK_EQ(posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0), 0);
    pid_t pid = 0;
    CHECK_EQ(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    const int state = child_end(pid);
    return !WIFEXITED(state) || WEXITSTATUS(state) != EXIT_SUCCESS;
}

/* Removes [start, end) if the sequence still fails without it. */
static bool try_without(calls *all, size_t start, size_t end) {
    calls fewer = {test_allocate(all->count * sizeof(uint64_t)), 0};
    for (size_t i = 0; i < all->count; i++) {
        if (i < start || i >= end) fewer.numbers[fewer.count++] = all->numbers[i];
    }
    const bool still_fails = fails(&fewer, false);
    if (still_fails) {
        memcpy(all->numbers, fewer.numbers, fewer.count * sizeof(uint64_t));
        all->count = fewer.count;
    }
    free(fewer.numbers);
    return still_fails;
}

static void remove_calls(calls *calls, size_t step) {
    for (size_t start = 0; start < calls->count;) {
        const size_t end = start + step < calls->count ? start + step : calls->count;
        if (!try_without(calls, start, end)) start = end;
    }
}

int minimise(void) {
    calls calls = {test_allocate(settings.calls * sizeof(uint64_t)), 0};
    for (uint64_t i = 0; i < settings.calls; i++) {
        if (settings_has_call(i)) calls.numbers[calls.count++] = i;
    }
    if (!fails(&calls, false)) {
        printf("the sequence of seed %llu does not fail in a new process\n",
               (unsigned long long)settings.seed);
        return EXIT_FAILURE;
    }
    for (size_t step = calls.count / 2; step > 0; step /= 2) remove_calls(&calls, step);
    remove_calls(&calls, 1);
    printf("%zu calls are needed:\n", calls.count);
    fflush(stdout);
    fails(&calls, true);
    free(calls.numbers);
    return EXIT_SUCCESS;
}
