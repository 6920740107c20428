/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the objects of a case in the order in which they were created, and destroys them in reverse order. */
#define _GNU_SOURCE
#include "world.h"

#include <kvmem/nixl.h>

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_OBJECTS 64
#define MAX_NAME 32

static struct {
    char name[MAX_NAME];
    enum type type;
    union handle handle;
} objects[MAX_OBJECTS];
static size_t num_objects;

static struct {
    char name[MAX_NAME];
    kvmem_token token;
} tokens[MAX_OBJECTS];
static size_t num_tokens;

static struct {
    char name[MAX_NAME];
    void *bytes;
    size_t size;
} stored[MAX_OBJECTS];
static size_t num_stored;

static struct memory {
    char name[MAX_NAME];
    void *address;
    bool released;
} memories[MAX_OBJECTS];
static size_t num_memories;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static char folder[256];

static void copy_name(char target[MAX_NAME], const char *name)
{
    if (strlen(name) >= MAX_NAME) fail("the name %s is too long", name);
    strcpy(target, name);
}

/* ---- objects ---- */

static size_t find_object(const char *name)
{
    size_t i = 0;
    while (i < num_objects && strcmp(objects[i].name, name) != 0) i++;
    return i;
}

const char *new_name(const struct step *step)
{
    const char *name = step_name(step);
    if (find_object(name) < num_objects) fail("the object %s exists already", name);
    return name;
}

kvmem_status add_object(const char *name, enum type type, union handle handle, kvmem_status status)
{
    if (status < 0) return status;
    if (num_objects == MAX_OBJECTS) fail("there are too many objects");
    copy_name(objects[num_objects].name, name);
    objects[num_objects].type = type;
    objects[num_objects++].handle = handle;
    return status;
}

void *object(const char *name, enum type type)
{
    const size_t i = find_object(name);
    if (i == num_objects) fail("there is no object %s", name);
    if (objects[i].type != type) fail("%s is an object of another type", name);
    return objects[i].handle.any;
}

static void destroy_handle(enum type type, union handle handle)
{
    switch (type) {
    case REGION: kvmem_region_destroy(handle.region); break;
    case LAYOUT: kvmem_layout_destroy(handle.layout); break;
    case TRANSFER: kvmem_transfer_destroy(handle.transfer); break;
    case QUEUE: kvmem_queue_destroy(handle.queue); break;
    case SHARE: kvmem_share_destroy(handle.share); break;
    case BROKER: kvmem_broker_destroy(handle.broker); break;
    case AGENT: kvmem_agent_destroy(handle.agent); break;
    case LEASE: kvmem_lease_destroy(handle.lease); break;
    case STORE: kvmem_store_destroy(handle.store); break;
    case REGISTRATION: kvmem_registration_destroy(handle.registration); break;
    }
}

void destroy_object(const char *name)
{
    const size_t i = find_object(name);
    if (i == num_objects) fail("there is no object %s", name);
    destroy_handle(objects[i].type, objects[i].handle);
    memmove(&objects[i], &objects[i + 1], (--num_objects - i) * sizeof objects[0]);
}

/* ---- files ---- */

const char *path_of(const char *text)
{
    static char path[512];
    snprintf(path, sizeof path, "%s%s%s", *text == '@' ? folder : "", *text == '@' ? "/" : "",
             text + (*text == '@'));
    return path;
}

const char *shown_path(const char *path)
{
    static char shown[512];
    const size_t length = strlen(folder);
    const bool inside = strncmp(path, folder, length) == 0;
    snprintf(shown, sizeof shown, "%s%s", inside ? "@" : "", path + (inside ? length + 1 : 0));
    return shown;
}

/* The folder has only files: no case creates another folder. */
static void remove_folder(void)
{
    DIR *directory = *folder ? opendir(folder) : NULL;
    if (!directory) return;
    for (const struct dirent *entry; (entry = readdir(directory));) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    closedir(directory);
    rmdir(folder);
    *folder = '\0';
}

/* ---- cases ---- */

void world_begin(void)
{
    static bool registered;
    const char *parent = getenv("TMPDIR");
    if (!registered) atexit(remove_folder);
    registered = true;
    snprintf(folder, sizeof folder, "%s/kvmem-conformance-XXXXXX", parent && *parent ? parent : "/tmp");
    if (!mkdtemp(folder)) fail("no folder %s could be created", folder);
}

void world_end(void)
{
    while (num_objects > 0) {
        num_objects--;
        destroy_handle(objects[num_objects].type, objects[num_objects].handle);
    }
    /* Adopted memory stays until the process ends: a callback may come later. */
    num_tokens = 0;
    while (num_stored > 0) free(stored[--num_stored].bytes);
    remove_folder();
}

/* ---- tokens, bytes and adopted memory ---- */

kvmem_token *token_of(const char *name)
{
    for (size_t i = 0; i < num_tokens; i++)
        if (strcmp(tokens[i].name, name) == 0) return &tokens[i].token;
    if (num_tokens == MAX_OBJECTS) fail("there are too many tokens");
    copy_name(tokens[num_tokens].name, name);
    memset(&tokens[num_tokens].token, 0, sizeof tokens[0].token);
    return &tokens[num_tokens++].token;
}

void store_bytes(const char *name, const void *bytes, size_t size)
{
    size_t i = 0;
    while (i < num_stored && strcmp(stored[i].name, name) != 0) i++;
    if (i == MAX_OBJECTS) fail("too many bytes are stored");
    if (i == num_stored) copy_name(stored[num_stored++].name, name);
    else free(stored[i].bytes);
    stored[i].bytes = malloc(size + 1);
    if (!stored[i].bytes) fail("there is no memory");
    memcpy(stored[i].bytes, bytes, size);
    stored[i].size = size;
}

const void *find_bytes(const char *name, size_t *size)
{
    for (size_t i = 0; i < num_stored; i++)
        if (strcmp(stored[i].name, name) == 0) return *size = stored[i].size, stored[i].bytes;
    fail("no bytes are stored as %s", name);
}

static struct memory *find_memory(const char *name)
{
    for (size_t i = num_memories; i-- > 0;)
        if (strcmp(memories[i].name, name) == 0) return &memories[i];
    fail("%s was not adopted", name);
}

void *adopt_memory(const char *name, size_t size, void **user_data)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), rounded = (size + page - 1) / page * page;
    if (num_memories == MAX_OBJECTS) fail("too much memory is adopted");
    struct memory *memory = &memories[num_memories];
    copy_name(memory->name, name);
    memory->address = aligned_alloc(page, rounded);
    if (!memory->address) fail("there is no memory");
    memset(memory->address, 0, rounded);
    memory->released = false;
    num_memories++;
    *user_data = memory;
    return memory->address;
}

void forget_memory(const char *name)
{
    struct memory *memory = find_memory(name);
    free(memory->address);
    *memory->name = '\0';
}

void released(void *user_data)
{
    struct memory *memory = user_data;
    pthread_mutex_lock(&mutex);
    memory->released = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

void await_release(const char *name)
{
    struct memory *memory = find_memory(name);
    pthread_mutex_lock(&mutex);
    while (!memory->released) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    forget_memory(name);
}
