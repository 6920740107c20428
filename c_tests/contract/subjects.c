// SPDX-License-Identifier: Apache-2.0
// Fills in valid options of every type, and passes them to the call that uses them.
#include "subjects.h"

world subjects_world;

/* Defines the valid options of a subject: changes of their defaults, which are `it`. */
#define FILL(name, type, ...)                                                                        \
    static void fill_##name(void *options) {                                                         \
        type *it = options;                                                                          \
        *it = (type){.struct_size = sizeof(*it)};                                                    \
        __VA_ARGS__;                                                                                 \
    }
/* Defines the call that uses them, and creates a handle named `made`. */
#define CREATED(name, type, function, ...)                                                           \
    static kvmem_status call_##name(const void *options) {                                           \
        OWNED(type) made = POISON;                                                                   \
        const kvmem_status status = function(__VA_ARGS__, &made, ERR);                               \
        return status;                                                                               \
    }

FILL(system, kvmem_system_options, it->size = 4096)
CREATED(system, kvmem_region, kvmem_region_create_system, options)
FILL(disk, kvmem_disk_options, it->size = 4096)
CREATED(disk, kvmem_region, kvmem_region_create_disk, options)
FILL(pinned, kvmem_pinned_options, it->size = 4096)
CREATED(pinned, kvmem_region, kvmem_region_create_pinned, options)
FILL(device, kvmem_device_options, it->size = 4096)
CREATED(device, kvmem_region, kvmem_region_create_device, options)
FILL(elastic, kvmem_elastic_options, it->size = 64 * MIB)
CREATED(elastic, kvmem_region, kvmem_region_create_elastic, options)
FILL(vmm, kvmem_vmm_options, it->size = 2 * MIB)
CREATED(vmm, kvmem_vmm_memory, kvmem_vmm_memory_create, options)
FILL(adopt, kvmem_adopt_options, it->address = &subjects_world, it->size = sizeof(subjects_world))
CREATED(adopt, kvmem_region, kvmem_region_adopt_host, options)
FILL(ipc, kvmem_ipc_options, it->size = 4096) /* a handle of no memory, valid only as an argument */
CREATED(ipc, kvmem_region, kvmem_region_open_ipc, options)
FILL(agent, kvmem_agent_options, (void)it)
CREATED(agent, kvmem_agent, kvmem_agent_create, "optioned", options)

static int memory_file(void) {
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("subject", MFD_CLOEXEC);
        CHECK(fd >= 0);
        CHECK_EQ(ftruncate(fd, 4096), 0);
    }
    return fd;
}

FILL(adopt_memfd, kvmem_adopt_memfd_options, it->fd = memory_file(), it->size = 4096)
CREATED(adopt_memfd, kvmem_region, kvmem_region_adopt_memfd, options)

FILL(object, kvmem_object_options, it->key_prefix = "subject/", it->object_size = 64, it->count = 4)
CREATED(object, kvmem_region, kvmem_region_create_object, options)
FILL(block, kvmem_block_options, it->size = 4096)
CREATED(block, kvmem_region, kvmem_region_create_block, options)

/* A share of a region, which the share keeps. */
static kvmem_share *share_of_region(void) {
    OWNED(kvmem_region) region = region_create_system(4096, KVMEM_SYSTEM_SHAREABLE);
    return MADE(kvmem_share, kvmem_share_create_region, region, NULL);
}

FILL(share, kvmem_share_options, (void)it)

static kvmem_status call_share(const void *options) {
    OWNED(kvmem_region) region = region_create_system(4096, KVMEM_SYSTEM_SHAREABLE);
    OWNED(kvmem_share) share = POISON;
    return kvmem_share_create_region(region, options, &share, ERR);
}

FILL(open, kvmem_open_options, (void)it)

static kvmem_status call_open(const void *options) {
    OWNED(kvmem_share) share = share_of_region();
    OWNED(kvmem_region) region = POISON;
    return kvmem_share_open_region(share, options, &region, ERR);
}

static const char *broker_path(void) {
    static char path[64];
    snprintf(path, sizeof(path), "/tmp/kvmem-contract-%d", (int)getpid());
    return path;
}

FILL(broker, kvmem_broker_options, it->path = broker_path())
CREATED(broker, kvmem_broker, kvmem_broker_create, options)
FILL(publish, kvmem_publish_options, (void)it)

static kvmem_status call_publish(const void *options) {
    OWN(kvmem_broker, broker, kvmem_broker_create,
        REF(OPTIONS(kvmem_broker_options, it.path = broker_path())));
    OWNED(kvmem_share) share = share_of_region();
    kvmem_token token;
    return kvmem_broker_publish(broker, "kv", share, options, &token, ERR);
}

/* No broker exists at this path. */
static const kvmem_token no_token;
FILL(fetch, kvmem_fetch_options, it->path = "/nowhere/at/all", it->name = "kv", it->token = &no_token)
CREATED(fetch, kvmem_share, kvmem_share_fetch, options, PATIENCE)

FILL(config, kvmem_layout_config, *it = kv_config(&kv_kinds[1]))

static kvmem_status call_config(const void *options) {
    kvmem_layout_requirements needs;
    return kvmem_layout_get_requirements(options, &needs, ERR);
}

/* The same configuration as a part of the options of a layout. */
static kvmem_status call_nested_config(const void *config) {
    const kvmem_system_options system = OPTIONS(kvmem_system_options);
    const kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = config,
                                                 it.system = &system, it.source = KVMEM_LAYOUT_ALLOCATE);
    OWNED(kvmem_layout) layout = POISON;
    return kvmem_layout_build(&options, &layout, ERR);
}

static const kvmem_layout_config *layout_config(void) {
    static kvmem_layout_config config;
    config = kv_config(&kv_kinds[0]);
    return &config;
}

FILL(layout, kvmem_layout_options, it->config = layout_config(), it->source = KVMEM_LAYOUT_REGIONS,
     it->regions = &subjects_world.region, it->count = 1)
CREATED(layout, kvmem_layout, kvmem_layout_build, options)
/* A layout without an agent: its options are checked first. */
FILL(serve, kvmem_serve_options, (void)it)

static const uint32_t leased_block = 0;

static kvmem_status call_serve(const void *options) {
    return kvmem_layout_serve(subjects_world.local.layout, options, ERR);
}

FILL(lease, kvmem_lease_options, it->duration_ns = 1)
CREATED(lease, kvmem_lease, kvmem_lease_create, subjects_world.local.layout, &leased_block, 1, options)
FILL(transfer, kvmem_transfer_options, it->num_layers = 3)
CREATED(transfer, kvmem_transfer, kvmem_transfer_create, subjects_world.local.layout,
        subjects_world.local.layout, options)
FILL(submit, kvmem_submit_options, *it = world_job().run)

static kvmem_status call_submit(const void *options) {
    return kvmem_transfer_prepare(subjects_world.copy, options, ERR);
}

/* A store in a folder that is removed at the end of the program. */
static const char *store_path(void) {
    static char path[160];
    if (path[0] == 0) {
        static scratch directory;
        directory = scratch_create(temporary_directory());
        snprintf(path, sizeof(path), "%s", scratch_file(&directory, "store"));
    }
    return path;
}

FILL(store, kvmem_store_options, static store_setup setup;
     store_setup_init(&setup, store_path(), REF(kv_aligned_config(&kv_kinds[0]))); *it = setup.options)
CREATED(store, kvmem_store, kvmem_store_open, options, PATIENCE)

static unsigned char stored_key[STORE_KEY];
static const uint32_t stored_block = 0;

FILL(store_blocks, kvmem_store_blocks, it->keys = stored_key, it->key_size = STORE_KEY, it->num_keys = 1,
     it->blocks = &stored_block, it->num_blocks = 1)

static kvmem_status call_store_blocks(const void *options) {
    store_setup setup;
    store_setup_init(&setup, store_path(), REF(kv_aligned_config(&kv_kinds[0])));
    OWN(kvmem_store, store, kvmem_store_open, &setup.options, PATIENCE);
    OWNED(kvmem_layout) layout = layout_allocate_system(&setup.config);
    size_t moved = 0;
    OWNED(kvmem_transfer) transfer = POISON;
    const kvmem_status status = kvmem_store_put(store, layout, NULL, options, &transfer, &moved, ERR);
    if (transfer != NULL) EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
    return status;
}

FILL(store_namespace, kvmem_store_namespace_options, it->name = "tenant", it->quota = 24576)

static kvmem_status call_store_namespace(const void *options) {
    store_setup setup;
    store_setup_init(&setup, store_path(), REF(kv_aligned_config(&kv_kinds[0])));
    OWN(kvmem_store, store, kvmem_store_open, &setup.options, PATIENCE);
    return TRIED(kvmem_store, kvmem_store_open_namespace, store, options, PATIENCE);
}

/* The size of a struct, and where its flags are. */
#define OPTIONS_OF(type) sizeof(type), offsetof(type, flags)

const subject subjects[] = {
    {"system", OPTIONS_OF(kvmem_system_options), fill_system, call_system, 63, KVMEM_STATUS_OK, false},
    {"disk", OPTIONS_OF(kvmem_disk_options), fill_disk, call_disk, 63, KVMEM_STATUS_OK, false},
    {"pinned", OPTIONS_OF(kvmem_pinned_options), fill_pinned, call_pinned, 15, KVMEM_STATUS_OK, true},
    {"device", OPTIONS_OF(kvmem_device_options), fill_device, call_device, 0, KVMEM_STATUS_OK, true},
    {"elastic", OPTIONS_OF(kvmem_elastic_options), fill_elastic, call_elastic, 1, KVMEM_STATUS_OK, true},
    {"vmm", OPTIONS_OF(kvmem_vmm_options), fill_vmm, call_vmm, 7, KVMEM_STATUS_OK, true},
    {"adopt", OPTIONS_OF(kvmem_adopt_options), fill_adopt, call_adopt, 1, KVMEM_STATUS_OK, false},
    {"adopt file", OPTIONS_OF(kvmem_adopt_memfd_options), fill_adopt_memfd, call_adopt_memfd, 3, KVMEM_STATUS_OK,
     false},
    {"object", OPTIONS_OF(kvmem_object_options), fill_object, call_object, 0, KVMEM_STATUS_OK, false},
    {"block", OPTIONS_OF(kvmem_block_options), fill_block, call_block, 0, KVMEM_STATUS_OK, false},
    {"ipc", OPTIONS_OF(kvmem_ipc_options), fill_ipc, call_ipc, 1, KVMEM_STATUS_INVALID_ARGUMENT, true},
    {"share", OPTIONS_OF(kvmem_share_options), fill_share, call_share, 3, KVMEM_STATUS_OK, false},
    {"serve", OPTIONS_OF(kvmem_serve_options), fill_serve, call_serve, 3, KVMEM_STATUS_INVALID_STATE, false},
    {"open", OPTIONS_OF(kvmem_open_options), fill_open, call_open, 511, KVMEM_STATUS_OK, false},
    {"broker", OPTIONS_OF(kvmem_broker_options), fill_broker, call_broker, 0, KVMEM_STATUS_OK, false},
    {"publish", OPTIONS_OF(kvmem_publish_options), fill_publish, call_publish, 1, KVMEM_STATUS_OK, false},
    {"fetch", OPTIONS_OF(kvmem_fetch_options), fill_fetch, call_fetch, 7, KVMEM_STATUS_NOT_FOUND, false},
    {"agent", OPTIONS_OF(kvmem_agent_options), fill_agent, call_agent, 7, KVMEM_STATUS_OK, false},
    {"store", OPTIONS_OF(kvmem_store_options), fill_store, call_store, 0x17, KVMEM_STATUS_OK, false},
    {"store blocks", OPTIONS_OF(kvmem_store_blocks), fill_store_blocks, call_store_blocks, 1, KVMEM_STATUS_OK, false},
    {"store namespace", sizeof(kvmem_store_namespace_options), 0, fill_store_namespace, call_store_namespace, UINT64_MAX,
     KVMEM_STATUS_OK, false},
    {"config", sizeof(kvmem_layout_config), 0, fill_config, call_config, UINT64_MAX, KVMEM_STATUS_OK, false},
    {"nested config", sizeof(kvmem_layout_config), 0, fill_config, call_nested_config, UINT64_MAX,
     KVMEM_STATUS_OK, false},
    {"layout", OPTIONS_OF(kvmem_layout_options), fill_layout, call_layout, 0, KVMEM_STATUS_OK, false},
    {"lease", OPTIONS_OF(kvmem_lease_options), fill_lease, call_lease, 1, KVMEM_STATUS_OK, false},
    {"transfer", OPTIONS_OF(kvmem_transfer_options), fill_transfer, call_transfer, 15, KVMEM_STATUS_OK, false},
    {"submit", OPTIONS_OF(kvmem_submit_options), fill_submit, call_submit, 3, KVMEM_STATUS_OK, false},
};

const size_t num_subjects = NUM(subjects);

const subject *subject_named(const char *name) {
    for (size_t i = 0; i < num_subjects; i++) {
        if (strcmp(subjects[i].name, name) == 0) return &subjects[i];
    }
    FAIL("no subject %s", name);
}

kvmem_status subject_good_status(const subject *subject) {
    const bool has_gpu = access("/dev/nvidiactl", F_OK) == 0;
    return subject->needs_gpu && !has_gpu ? KVMEM_STATUS_UNAVAILABLE_CUDA : subject->good_status;
}

unsigned char *subject_good_options(const subject *subject, size_t tail) {
    unsigned char *options = test_allocate(subject->size + tail);
    subject->fill(options);
    return options;
}
