/* SPDX-License-Identifier: Apache-2.0 */
/* The C runner of the conformance tables. */
#define _GNU_SOURCE
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void run_line(char *line)
{
    static struct step step;
    kvmem_error *error = NULL;
    step_parse(&step, line);
    const kvmem_status status = run_call(&step, &error);
    step_finish(&step);
    step_compare(&step, status, error);
    kvmem_error_destroy(error);
}

static void run_table(const char *path)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t capacity = 0, cases = 0, steps = 0;
    current_file = path;
    current_line = 0;
    if (!file) fail("the file cannot be read");
    while (getline(&line, &capacity, file) >= 0) {
        current_line++;
        if (line[0] == '#' || strspn(line, " \n") == strlen(line)) continue;
        if (strncmp(line, "case ", 5) == 0) {
            if (cases++ > 0) world_end();
            world_begin();
            continue;
        }
        if (cases == 0) fail("a step before the first case");
        run_line(line);
        steps++;
    }
    world_end();
    free(line);
    fclose(file);
    const char *slash = strrchr(path, '/');
    printf("%s: %zu cases, %zu steps\n", slash ? slash + 1 : path, cases, steps);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) run_table(argv[i]);
    return 0;
}
