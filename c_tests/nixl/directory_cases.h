// SPDX-License-Identifier: Apache-2.0
// What holds for a directory wherever it is stored: one table of cases, for a folder and for etcd.
#pragma once

#include "harness.h"

/* Where a directory is stored. */
typedef struct place {
    /* Options that lead there. */
    kvmem_directory_options options;
    /* The same in words, for a peer process. */
    char words[512];
    scratch files;
} place;

/* Options from those words. The strings are those of the words, which it changes. */
kvmem_directory_options place_from_words(char *words);
/* Stores some bytes under the name of an agent, as another program could. */
void place_put(const place *place, const char *name, const void *data, size_t size);
/* Removes what is stored under a name. */
void place_erase(const place *place, const char *name);
void place_open(place *place);
void place_close(place *place);

kvmem_directory *directory_open(const place *place);
/* Takes events until there is one of this kind for this agent. Fails the case if it does not arrive. */
kvmem_directory_event directory_await(kvmem_directory *directory, uint32_t kind, const char *agent);
