// SPDX-License-Identifier: Apache-2.0
// A KV layout in a file, with guard bands and a model of every byte.
#pragma once

#include "kv.h"
#include "resources.h"

/* A layout whose regions are views of the file, at the offsets that the model has in memory. */
typedef struct file_side {
    kv_side model; /* model.memory contains the bytes that were read last */
    kvmem_region *file;
    char path[256];
} file_side;

/* Pieces of 4 KiB in blocks aligned to 4 KiB, as direct I/O needs on every device. */
kvmem_layout_config kv_aligned_config(const kv_kind *kind);

/* With KVMEM_DISK_* flags. Only one side per directory at a time. */
void file_side_open(file_side *side, const kvmem_layout_config *config, kvmem_agent *agent,
                    const scratch *directory, uint64_t flags, uint32_t seed);
void file_side_close(file_side *side);
/* Whether its I/O bypasses the page cache, which depends on the file system. */
bool file_side_is_direct(const file_side *side);
/* Reads the whole file through a separate descriptor, and compares. */
void file_side_check(file_side *side);
/* Truncates the file without the library. */
void file_side_truncate(const file_side *side, uint64_t size);

/* A side in memory and one in a file, in a new directory. */
typedef struct file_pair {
    scratch directory;
    kv_side host;
    file_side file;
} file_pair;
/* With an agent, both are registered with it; the file has KVMEM_DISK_* flags. */
void file_pair_open(file_pair *pair, const kvmem_layout_config *host, const kvmem_layout_config *file,
                    kvmem_agent *agent, uint64_t flags);
void file_pair_close(file_pair *pair);
/* The source and the destination of a transfer to the file or from it. */
kv_side *file_pair_source(file_pair *pair, bool to_file);
kv_side *file_pair_destination(file_pair *pair, bool to_file);
kvmem_transfer *file_pair_transfer(file_pair *pair, bool to_file, const kv_job *options);
/* Checks every byte of both; the second one after a move. */
void file_pair_check(file_pair *pair);
void file_pair_check_moved(file_pair *pair, bool to_file, const kv_move *move);
/* Moves by a path, and checks. */
kvmem_transfer_info file_pair_run(file_pair *pair, bool to_file, const kv_move *move, uint32_t path);

/* A disk layout in a temporary file. */
kvmem_layout *temporary_disk_layout(const kvmem_layout_config *config, kvmem_agent *agent, uint64_t flags);
