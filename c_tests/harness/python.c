// SPDX-License-Identifier: Apache-2.0
#include "python.h"

#include "harness.h"

#include <glob.h>
#include <libgen.h>
#include <spawn.h>
#include <stdarg.h>

extern char **environ;

#define INTERPRETER "../../../bin/python"

const char *python_package(const char *pattern) {
    const char *library = getenv("KVMEM_NIXL_LIBRARY");
    CHECK(library != NULL);
    CLEANUP(test_free) char *copy = strdup(library);
    CHECK(copy != NULL);
    char whole[4096];
    snprintf(whole, sizeof(whole), "%s/%s", dirname(dirname(copy)), pattern);
    glob_t files;
    if (glob(whole, 0, NULL, &files) != 0) return NULL;
    const char *path = TEXT("%s", files.gl_pathv[0]);
    globfree(&files);
    return path;
}

/* KVMEM_TEST_PYTHON, or the interpreter of the environment that contains the wheel; NULL without either. */
static const char *interpreter(void) {
    const char *given = getenv("KVMEM_TEST_PYTHON");
    return given != NULL ? given : python_package(INTERPRETER);
}

const char *python_lacks(const char *package) {
    const char *program = interpreter();
    if (program == NULL) return "the Python environment that contains the wheel of NIXL";
    char name[256];
    snprintf(name, sizeof(name), "%s", package);
    char code[] = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)";
    char path[4096];
    snprintf(path, sizeof(path), "%s", program);
    char *arguments[] = {path, "-c", code, name, NULL};
    pid_t pid;
    if (posix_spawnp(&pid, path, NULL, NULL, arguments, environ) != 0)
        return TEXT("the interpreter %s", program);
    return child_end(pid) == 0 ? NULL : TEXT("the Python package %s", package);
}

/* The next line, without its newline. */
static const char *next_line(python *python) {
    const ssize_t size = getline(&python->reply, &python->capacity, python->replies);
    CHECK(size > 0);
    python->reply[size - 1] = '\0';
    return python->reply;
}

const char *python_open(python *python, const char *script, const char *argument) {
    *python = (struct python){0};
    int in[2];
    int out[2];
    CHECK_EQ(pipe2(in, O_CLOEXEC), 0);
    CHECK_EQ(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    CHECK_EQ(posix_spawn_file_actions_init(&actions), 0);
    CHECK_EQ(posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO), 0);
    CHECK_EQ(posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO), 0);
    char program[4096];
    char path[4096];
    char text[4096];
    snprintf(program, sizeof(program), "%s", interpreter());
    snprintf(path, sizeof(path), "%s", script);
    snprintf(text, sizeof(text), "%s", argument);
    char *arguments[] = {program, path, text, NULL};
    CHECK_EQ(posix_spawnp(&python->pid, program, &actions, NULL, arguments, environ), 0);
    CHECK_EQ(posix_spawn_file_actions_destroy(&actions), 0);
    CHECK_EQ(close(in[0]), 0);
    CHECK_EQ(close(out[1]), 0);
    python->commands = fdopen(in[1], "w");
    python->replies = fdopen(out[0], "r");
    CHECK(python->commands != NULL && python->replies != NULL);
    /* Libraries may also write lines to stdout. */
    const char *line = next_line(python);
    while (strncmp(line, "ready", 5) != 0) line = next_line(python);
    return line[5] == ' ' ? line + 6 : "";
}

const char *python_send(python *python, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(python->commands, format, arguments);
    va_end(arguments);
    fputc('\n', python->commands);
    CHECK_EQ(fflush(python->commands), 0);
    return next_line(python);
}

static int reap(python *python) {
    const int state = child_end(python->pid);
    python->pid = 0;
    return state;
}

void python_kill(python *python) {
    CHECK_EQ(kill(python->pid, SIGKILL), 0);
    reap(python);
}

void python_close(python *python) {
    CHECK_EQ(fclose(python->commands), 0); /* the program ends at the end of its commands */
    if (python->pid != 0) CHECK_EQ(reap(python), 0);
    CHECK_EQ(fclose(python->replies), 0);
    free(python->reply);
}
