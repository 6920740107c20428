// SPDX-License-Identifier: Apache-2.0
// Mostly valid options, so that calls get past the first check.
#include "options.h"

#include "owned.h"

#define MAX_BYTES (MIB)
#define EXTENT (2 * MIB) /* of the stand-in's granularity */

void options_spoil(fuzz *fuzz, uint32_t *reserved) {
    if (random_one_in(fuzz, 80)) *reserved = (uint32_t)random_next(fuzz);
}

kvmem_system_options options_system(fuzz *fuzz, bool has_size) {
    static const uint64_t huge[] = {2 * MIB, 2 * MIB, 1, 3 * MIB};
    const uint64_t known =
        KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES | KVMEM_SYSTEM_HUGE_PAGES_REQUIRED | KVMEM_SYSTEM_NUMA_BIND |
                           KVMEM_SYSTEM_NO_HUGE_PAGES;
    FUZZ_OPTIONS(kvmem_system_options, options);
    options.flags = random_one_in(fuzz, 4) ? random_flags(fuzz, known) : 0;
    options.flags |= random_one_in(fuzz, 2) ? KVMEM_SYSTEM_SHAREABLE : 0;
    options.flags |= random_one_in(fuzz, 10) ? KVMEM_SYSTEM_WRITE_SEALED : 0;
    options.size = has_size ? random_size(fuzz, MAX_BYTES) : 0;
    options.huge_page_size = random_one_in(fuzz, 12) ? random_of(fuzz, huge) : 0;
    options.numa_node = random_one_in(fuzz, 40) ? (uint32_t)random_below(fuzz, 3) : 0;
    options.prefault_threads = random_one_in(fuzz, 6) ? (uint32_t)random_below(fuzz, 4) : 0;
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    return options;
}

kvmem_disk_options options_disk(fuzz *fuzz, bool has_size) {
    const uint64_t known = KVMEM_DISK_BUFFERED | KVMEM_DISK_DIRECT_REQUIRED | KVMEM_DISK_OPEN_EXISTING |
                           KVMEM_DISK_OPEN_OR_CREATE | KVMEM_DISK_READ_ONLY | KVMEM_DISK_NO_LOCK;
    FUZZ_OPTIONS(kvmem_disk_options, options);
    options.flags = random_flags(fuzz, known);
    options.size = has_size ? random_size(fuzz, MAX_BYTES) : 0;
    options.path = random_one_in(fuzz, 2) ? owned_file_path(fuzz) : NULL;
    if (random_one_in(fuzz, 12)) {
        static const char *const odd[] = {"/", "", "/nowhere/file", "/dev/null", "/proc/self/status"};
        options.path = random_of(fuzz, odd);
    }
    if (random_one_in(fuzz, 12)) {
        static const char *const odd[] = {"/dev/shm", "/nowhere", "", "/dev/null"};
        options.directory = random_of(fuzz, odd);
    }
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    return options;
}

kvmem_object_options options_object(fuzz *fuzz) {
    static const char *const prefixes[] = {"model/", "a", "model/../other", "", "\xff", NULL};
    FUZZ_OPTIONS(kvmem_object_options, options);
    options.flags = random_flags(fuzz, 0);
    options.key_prefix = random_one_in(fuzz, 4) ? random_of(fuzz, prefixes) : "model/";
    options.object_size = random_size(fuzz, MAX_BYTES);
    options.count = random_one_in(fuzz, 20) ? UINT64_MAX : random_below(fuzz, 64);
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    return options;
}

kvmem_block_options options_block(fuzz *fuzz) {
    FUZZ_OPTIONS(kvmem_block_options, options);
    options.flags = random_flags(fuzz, 0);
    options.device_id = random_below(fuzz, 4);
    options.offset = random_one_in(fuzz, 20) ? UINT64_MAX : 512 * random_below(fuzz, 16);
    options.size = random_size(fuzz, MAX_BYTES);
    options.alignment = random_one_in(fuzz, 2) ? 0 : UINT64_C(1) << random_below(fuzz, 13);
    options.metadata = random_one_in(fuzz, 2) ? "uri" : NULL;
    options.metadata_size = options.metadata != NULL || random_one_in(fuzz, 20) ? random_below(fuzz, 4) : 0;
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    return options;
}

/* Cancels sometimes. The decision depends on the call, not on the thread. */
static int32_t progress(uint64_t done, uint64_t total, void *user_data) {
    return done <= total && user_data != NULL;
}

kvmem_pinned_options options_pinned(fuzz *fuzz, bool has_size) {
    static const uint64_t chunks[] = {4096, 64 * KIB, 1, 12345};
    FUZZ_OPTIONS(kvmem_pinned_options, options);
    options.flags =
        random_one_in(fuzz, 4) ? random_flags(fuzz, KVMEM_PINNED_NO_HUGE_PAGES | KVMEM_PINNED_NUMA_BIND) : 0;
    options.flags |= random_one_in(fuzz, 2) ? KVMEM_PINNED_SHAREABLE : 0;
    options.flags |= random_one_in(fuzz, 10) ? KVMEM_PINNED_WRITE_SEALED : 0;
    options.size = has_size ? random_size(fuzz, MAX_BYTES) : 0;
    options.chunk_size = random_one_in(fuzz, 4) ? random_of(fuzz, chunks) : 0;
    options.progress = random_one_in(fuzz, 4) ? progress : NULL;
    options.user_data = random_one_in(fuzz, 4) ? POISON : NULL;
    options.device = random_device(fuzz);
    options.numa_node = random_one_in(fuzz, 40) ? (uint32_t)random_below(fuzz, 3) : 0;
    options.threads = (uint32_t)random_below(fuzz, 4);
    options_spoil(fuzz, &options.reserved);
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    return options;
}

kvmem_device_options options_device(fuzz *fuzz, bool has_size) {
    FUZZ_OPTIONS(kvmem_device_options, options);
    options.size = has_size ? random_size(fuzz, MAX_BYTES) : 0;
    options.device = random_device(fuzz);
    options_spoil(fuzz, &options.reserved);
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    return options;
}

kvmem_elastic_options options_elastic(fuzz *fuzz, bool has_size) {
    static const uint64_t extents[] = {EXTENT, EXTENT, EXTENT, 2 * EXTENT, 1, EXTENT / 2};
    FUZZ_OPTIONS(kvmem_elastic_options, options);
    options.flags = random_one_in(fuzz, 5) ? random_flags(fuzz, KVMEM_ELASTIC_FABRIC) : 0;
    options.size = has_size ? random_size(fuzz, 4 * EXTENT) : 0;
    options.extent_size = has_size ? random_of(fuzz, extents) : 0;
    options.device = random_device(fuzz);
    options_spoil(fuzz, &options.reserved);
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    return options;
}

/* Layouts of one sequence mostly have the same shape, so that transfers between them are possible. */
kvmem_layout_config options_config(fuzz *fuzz) {
    static const uint64_t alignments[] = {0, 0, 0, 1, 256, 512, 4096, 3};
    static const uint64_t inner[] = {8, 64, 512, 512, 16384};
    struct fuzz usual = {.random = fuzz->sequence};
    struct fuzz *of = random_one_in(fuzz, 10) ? fuzz : &usual;
    FUZZ_OPTIONS(kvmem_layout_config, config);
    config.num_blocks = random_one_in(fuzz, 6) ? 1 + random_below(fuzz, 7) : 8 + random_below(fuzz, 8);
    config.num_layers = 1 + random_below(of, 3);
    config.outer_dim = 1 + random_below(of, 2);
    config.page_size = random_one_in(of, 4) ? 1 : 4;
    config.inner_dim = random_of(of, inner);
    config.dtype_width = 2;
    config.alignment = random_of(fuzz, alignments);
    config.num_heads = random_one_in(of, 8) ? 4 : 0;
    static const char *const usual_orders[] = {KVMEM_ORDER_FULLY_CONTIGUOUS, KVMEM_ORDER_FULLY_CONTIGUOUS,
                                               KVMEM_ORDER_LAYER_SEPARATE, KVMEM_ORDER_LAYER_SEPARATE_OUTER_FIRST};
    config.order = random_of(fuzz, usual_orders);
    if (random_one_in(fuzz, 6)) { /* contiguous pieces and others, mostly possible */
        static const char *const orders[] = {"BLOHNC", "L/OBHNC", "LO/BNHC", "OL/BNHC", "L/BHNOC", "OBNLHC",
                                             "LO/HCBN",
                                             "LHBNOC", "BLONHC",  "L/BNHC",  "BLBNHC",  "B/LNHC",  ""};
        config.order = random_of(fuzz, orders);
        config.num_heads = random_one_in(fuzz, 20) ? 0 : 4;
    }
    if (random_one_in(fuzz, 12)) { /* padded, or with overlapping elements */
        uint64_t *const strides[] = {&config.block_stride, &config.layer_stride, &config.outer_stride,
                                     &config.token_stride};
        static const uint64_t values[] = {1, 64, 4096, 65536, UINT64_MAX};
        *random_of(fuzz, strides) = random_of(fuzz, values);
    }
    if (random_one_in(fuzz, 30)) { /* one field is wrong or huge; nothing huge is ever allocated */
        uint64_t *const fields[] = {&config.num_blocks, &config.num_layers,  &config.outer_dim,
                                    &config.page_size,
                                    &config.inner_dim,  &config.dtype_width, &config.alignment, &config.num_heads};
        static const uint64_t values[] = {0, 3, UINT64_C(1) << 48, UINT64_MAX};
        *random_of(fuzz, fields) = random_of(fuzz, values);
    }
    if (random_one_in(fuzz, 16)) { /* that of another model; rarely too large */
        static const unsigned char identities[4096] = "llama";
        config.identity = or_null(fuzz, identities);
        config.identity_size = random_one_in(fuzz, 10) ? sizeof(identities) : random_below(fuzz, 6);
    }
    if (random_one_in(fuzz, 80)) config.order = NULL;
    config.struct_size = random_struct_size(fuzz, sizeof(config));
    return config;
}
