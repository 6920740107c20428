// SPDX-License-Identifier: Apache-2.0
// Calls on layouts.
#include "options.h"
#include "table.h"

#define MAX_REGIONS 8

static const kvmem_layout_options *base_options(fuzz *fuzz, kvmem_layout_options *options,
                                                const kvmem_layout_config *config, uint32_t source) {
    *options = (kvmem_layout_options){.struct_size = sizeof(*options)};
    options->config = or_null(fuzz, config);
    options->source = random_one_in(fuzz, 60) ? (uint32_t)random_below(fuzz, 5) : source;
    options->agent = random_one_in(fuzz, 2) ? table_pick(fuzz, AGENTS) : NULL;
    options->flags = random_one_in(fuzz, 80) ? random_next(fuzz) : 0;
    options->struct_size = random_struct_size(fuzz, sizeof(*options));
    options_spoil(fuzz, &options->reserved);
    return or_null(fuzz, options);
}

static void build_allocated(fuzz *fuzz) {
    const kvmem_layout_config config = options_config(fuzz);
    const kvmem_system_options system = options_system(fuzz, random_one_in(fuzz, 40));
    const kvmem_disk_options disk = options_disk(fuzz, random_one_in(fuzz, 40));
    const kvmem_pinned_options pinned = options_pinned(fuzz, random_one_in(fuzz, 40));
    const kvmem_device_options device = options_device(fuzz, random_one_in(fuzz, 40));
    const kvmem_elastic_options elastic = options_elastic(fuzz, random_one_in(fuzz, 40));
    kvmem_layout_options options;
    const kvmem_layout_options *given = base_options(fuzz, &options, &config, KVMEM_LAYOUT_ALLOCATE);
    const uint64_t which = random_below(fuzz, 5);
    const bool is_mixed = random_one_in(fuzz, 60);
    options.system = which == 0 || is_mixed ? &system : NULL;
    options.disk = which == 1 ? &disk : NULL;
    options.pinned = which == 2 ? &pinned : NULL;
    options.device = which == 3 || is_mixed ? &device : NULL;
    options.elastic = which == 4 ? &elastic : NULL;
    CREATE(fuzz, LAYOUTS, kvmem_layout_build, given);
}

/* Regions rarely have the right size by chance, so views of that size are created. */
static void build_over_regions(fuzz *fuzz) {
    kvmem_layout_config config = options_config(fuzz);
    config.num_blocks = random_one_in(fuzz, 2) ? 2 : config.num_blocks; /* few small blocks, or any number */
    kvmem_layout_requirements needs = {.num_regions = 1};
    TRY(fuzz, kvmem_layout_get_requirements, or_null(fuzz, &config), or_null(fuzz, &needs));
    kvmem_region *regions[MAX_REGIONS] = {NULL};
    const size_t count = random_one_in(fuzz, 20) ? random_below(fuzz, MAX_REGIONS)
                                                 : needs.num_regions % (MAX_REGIONS + 1);
    for (size_t i = 0; i < count; i++) regions[i] = table_pick(fuzz, REGIONS);
    kvmem_layout_options options;
    const kvmem_layout_options *given = base_options(fuzz, &options, &config, KVMEM_LAYOUT_REGIONS);
    options.regions = regions;
    options.count = count;
    CREATE(fuzz, LAYOUTS, kvmem_layout_build, given);
}

static void build_over_registrations(fuzz *fuzz) {
    kvmem_layout_config config = WITH(options_config(fuzz), it.order = KVMEM_ORDER_FULLY_CONTIGUOUS,
                                      it.inner_dim = 8);
    kvmem_registration *registrations[1] = {table_pick(fuzz, REGISTRATIONS)};
    kvmem_layout_options options;
    const kvmem_layout_options *given = base_options(fuzz, &options, &config, KVMEM_LAYOUT_REGISTRATIONS);
    options.registrations = registrations;
    options.count = 1;
    CREATE(fuzz, LAYOUTS, kvmem_layout_build, given);
}

static void get_block(fuzz *fuzz) {
    kvmem_block block;
    TRY(fuzz, kvmem_layout_get_block, table_pick(fuzz, LAYOUTS), random_index(fuzz, 8), random_index(fuzz, 2),
        random_index(fuzz, 2), or_null(fuzz, &block));
}

static void get_row(fuzz *fuzz) {
    kvmem_block row;
    TRY(fuzz, kvmem_layout_get_row, table_pick(fuzz, LAYOUTS), random_index(fuzz, 8), random_index(fuzz, 2),
        random_index(fuzz, 2), random_index(fuzz, 3), random_index(fuzz, 3), or_null(fuzz, &row));
}

/* Layouts in different memory mostly cannot be combined; a single one always can. */
static void combine(fuzz *fuzz) {
    static const char *const names[] = {"keys", "values", "scales"};
    kvmem_layout_part parts[COUNT_OF(names)];
    const size_t count = random_one_in(fuzz, 20) ? 0 : 1 + random_below(fuzz, COUNT_OF(names));
    for (size_t i = 0; i < count; i++) {
        parts[i].name = random_one_in(fuzz, 40) ? names[0] : or_null(fuzz, names[i]);
        parts[i].layout = table_pick(fuzz, LAYOUTS);
    }
    CREATE(fuzz, LAYOUTS, kvmem_layout_combine, or_null(fuzz, parts), count);
}

/* Few layouts of the table are combined, so some of the calls combine one. */
static void get_part(fuzz *fuzz) {
    const char *name = random_one_in(fuzz, 2) ? "keys" : "values";
    kvmem_layout *layout = table_pick(fuzz, LAYOUTS);
    const kvmem_layout_part part = {name, layout};
    kvmem_layout *combined = NULL;
    if (random_one_in(fuzz, 4)) TRY(fuzz, kvmem_layout_combine, &part, 1, &combined);
    CREATE(fuzz, LAYOUTS, kvmem_layout_get_part, combined != NULL ? combined : layout, or_null(fuzz, name));
    if (combined != NULL) DO(fuzz, kvmem_layout_destroy, combined);
}

/* As with parts, some of the calls combine one. */
static void layout_get_info(fuzz *fuzz) {
    kvmem_layout_info info;
    kvmem_layout *layout = table_pick(fuzz, LAYOUTS);
    const kvmem_layout_part part = {"keys", layout};
    kvmem_layout *combined = NULL;
    if (random_one_in(fuzz, 60)) {
        TRY(fuzz, kvmem_layout_get_info, layout, NULL);
    } else if (random_one_in(fuzz, 4) &&
               TRY(fuzz, kvmem_layout_combine, &part, 1, &combined) == KVMEM_STATUS_OK) {
        if (TRY(fuzz, kvmem_layout_get_info, combined, &info) != KVMEM_STATUS_OK || info.bases != NULL ||
            strcmp(info.part_names[0], "keys") != 0)
            fuzz_fail(fuzz, "the combined layout has other parts");
        DO(fuzz, kvmem_layout_destroy, combined);
    } else if (TRY(fuzz, kvmem_layout_get_info, layout, &info) == KVMEM_STATUS_OK && info.num_parts == 0) {
        kvmem_block first;
        kvmem_status status = TRY(fuzz, kvmem_layout_get_row, layout, 0, 0, 0, 0, 0, &first);
        if (status != KVMEM_STATUS_OK || first.address != info.bases[0] || first.size != info.row_size)
            fuzz_fail(fuzz, "the first row is not where the strides say");
        status = TRY(fuzz, kvmem_layout_get_block, layout, 0, 0, 0, &first);
        if (status != (info.piece_size > 0 ? KVMEM_STATUS_OK : KVMEM_STATUS_UNSUPPORTED) ||
            (status == KVMEM_STATUS_OK &&
             (first.address != info.bases[0] || first.size != info.piece_size))) {
            fuzz_fail(fuzz, "the first block is not where the strides say");
        }
    }
}

static void layout_get_region(fuzz *fuzz) {
    CREATE(fuzz, REGIONS, kvmem_layout_get_region, table_pick(fuzz, LAYOUTS), random_below(fuzz, 3));
}

CREATES(export_layout, BLOBS, kvmem_layout_export, LAYOUTS)

static void serve_layout(fuzz *fuzz) {
    FUZZ_OPTIONS(kvmem_serve_options, options);
    options.flags = random_flags(fuzz, KVMEM_SERVE_WRITE | KVMEM_SERVE_FROM_HOST);
    options.staging_size = random_one_in(fuzz, 4) ? random_below(fuzz, 70000) : 8 * 4096;
    options.stall_timeout_ns = random_below(fuzz, 3);
    options.max_lease_ns = random_below(fuzz, MILLISECONDS(5));
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    TRY(fuzz, kvmem_layout_serve, table_pick(fuzz, LAYOUTS), random_one_in(fuzz, 2) ? NULL : &options);
}

static void import_layout(fuzz *fuzz) {
    const kvmem_blob *blob = table_pick(fuzz, BLOBS);
    const void *data = DO(fuzz, kvmem_blob_data, blob);
    const size_t size = DO(fuzz, kvmem_blob_size, blob);
    CREATE(fuzz, LAYOUTS, kvmem_layout_import, table_pick(fuzz, AGENTS), data, size);
}

static void create_epochs(fuzz *fuzz) {
    TRY(fuzz, kvmem_layout_create_epochs, table_pick(fuzz, LAYOUTS), random_one_in(fuzz, 3) ? table_pick(fuzz, REGIONS) : NULL);
}

static void get_accesses(fuzz *fuzz) {
    uint32_t blocks[6];
    kvmem_block_access accesses[4];
    size_t count = 0;
    for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = (uint32_t)random_index(fuzz, 6);
    TRY(fuzz, kvmem_layout_get_accesses, table_pick(fuzz, LAYOUTS), or_null(fuzz, blocks),
        random_below(fuzz, COUNT_OF(blocks) + 1), or_null(fuzz, accesses), random_below(fuzz, COUNT_OF(accesses) + 1),
        or_null(fuzz, &count));
}

static void create_lease(fuzz *fuzz) {
    uint32_t blocks[6];
    FUZZ_OPTIONS(kvmem_lease_options, options);
    options.flags = random_flags(fuzz, KVMEM_LEASE_WRITES);
    options.duration_ns = random_one_in(fuzz, 2) ? 0 : random_below(fuzz, MILLISECONDS(5));
    options.timeout_ns = random_below(fuzz, MILLISECONDS(20));
    for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = (uint32_t)random_index(fuzz, 6);
    CREATE(fuzz, LEASES, kvmem_lease_create, table_pick(fuzz, LAYOUTS), or_null(fuzz, blocks),
           random_below(fuzz, COUNT_OF(blocks) + 1), or_null(fuzz, &options));
}

DESTROYS(destroy_lease, LEASES)

TRIES_WITH(resize, kvmem_layout_resize, LAYOUTS, random_below(fuzz, 20))
DESTROYS(destroy_layout, LAYOUTS)

const operation layout_operations[] = {
    OPERATION_WITH(30, build_allocated, 0, BIT(LAYOUTS)),
    OPERATION_WITH(10, build_over_regions, BIT(REGIONS), BIT(LAYOUTS)),
    OPERATION_WITH(4, build_over_registrations, BIT(REGISTRATIONS), 0),
    OPERATION_WITH(2, get_block, BIT(LAYOUTS), 0),
    OPERATION_WITH(2, get_row, BIT(LAYOUTS), 0),
    OPERATION_WITH(3, combine, BIT(LAYOUTS), 0),
    OPERATION_WITH(2, get_part, BIT(LAYOUTS), 0),
    OPERATION_WITH(2, layout_get_info, BIT(LAYOUTS), 0),
    OPERATION_WITH(4, layout_get_region, BIT(LAYOUTS), 0),
    OPERATION_WITH(3, export_layout, BIT(LAYOUTS), 0),
    OPERATION_WITH(2, serve_layout, BIT(LAYOUTS), 0),
    OPERATION_WITH(4, import_layout, BIT(AGENTS) | BIT(BLOBS), 0),
    OPERATION_WITH(4, create_epochs, BIT(LAYOUTS), 0),
    OPERATION_WITH(4, get_accesses, BIT(LAYOUTS), 0),
    OPERATION_WITH(6, create_lease, BIT(LAYOUTS), BIT(LEASES)),
    OPERATION_WITH(4, destroy_lease, BIT(LEASES), 0),
    OPERATION_WITH(8, resize, BIT(LAYOUTS), 0),
    OPERATION_WITH(10, destroy_layout, BIT(LAYOUTS), 0),
    {0},
};
