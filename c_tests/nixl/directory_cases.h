// SPDX-License-Identifier: Apache-2.0
// Cases for all kinds of directory storage: one table for a folder and for etcd.
#pragma once

#include "harness.h"

/* Storage of a directory. */
typedef struct place {
    /* Options for this storage. */
    kvmem_directory_options options;
    /* The same as text, for a peer process. */
    char words[512];
    scratch files;
} place;

/* Options from that text. The strings point into the text, which the function changes. */
kvmem_directory_options place_from_words(char *words);
/* Stores bytes under the name of an agent, as another program could. */
void place_put(const place *place, const char *name, const void *data, size_t size);
/* Removes the entry of a name. */
void place_erase(const place *place, const char *name);
void place_open(place *place);
void place_close(place *place);

kvmem_directory *directory_open(const place *place);
/* Reads events until there is one of this kind for this agent. Fails the case if it does not arrive. */
kvmem_directory_event directory_await(kvmem_directory *directory, uint32_t kind, const char *agent);

/* Publishes an agent, with a layout that is named "cache" unless it is NULL. */
void directory_publish(kvmem_directory *directory, kvmem_agent *agent, const kvmem_layout *layout);
kvmem_directory_entry *directory_find(kvmem_directory *directory, const char *name);
kvmem_directory_entry_info directory_entry_info(const kvmem_directory_entry *entry);
void directory_expect_absent(kvmem_directory *directory, const char *name);
