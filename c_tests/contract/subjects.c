// SPDX-License-Identifier: Apache-2.0
// Fills in good options of every kind, and hands them to the call that takes them.
#include "subjects.h"

#include <sys/mman.h>

world subjects_world;

static void fill_system(void *options) {
    kvmem_system_options *system = options;
    kvmem_system_options_init(system, sizeof(*system));
    system->size = 4096;
}

static kvmem_status call_system(const void *options) {
    OWNED(kvmem_region) region = POISON;
    const kvmem_status status = kvmem_region_create_system(options, &region, ERR);
    return status;
}

static void fill_disk(void *options) {
    kvmem_disk_options *disk = options;
    kvmem_disk_options_init(disk, sizeof(*disk));
    disk->size = 4096;
}

static kvmem_status call_disk(const void *options) {
    OWNED(kvmem_region) region = POISON;
    const kvmem_status status = kvmem_region_create_disk(options, &region, ERR);
    return status;
}

static void fill_pinned(void *options) {
    kvmem_pinned_options *pinned = options;
    kvmem_pinned_options_init(pinned, sizeof(*pinned));
    pinned->size = 4096;
}

static kvmem_status call_pinned(const void *options) {
    OWNED(kvmem_region) region = POISON;
    const kvmem_status status = kvmem_region_create_pinned(options, &region, ERR);
    return status;
}

static void fill_device(void *options) {
    kvmem_device_options *device = options;
    kvmem_device_options_init(device, sizeof(*device));
    device->size = 4096;
}

static kvmem_status call_device(const void *options) {
    OWNED(kvmem_region) region = POISON;
    const kvmem_status status = kvmem_region_create_device(options, &region, ERR);
    return status;
}

static void fill_vmm(void *options) {
    kvmem_vmm_options *vmm = options;
    kvmem_vmm_options_init(vmm, sizeof(*vmm));
    vmm->size = 2 * MIB;
}

static kvmem_status call_vmm(const void *options) {
    OWNED(kvmem_vmm_memory) memory = POISON;
    const kvmem_status status = kvmem_vmm_memory_create(options, &memory, ERR);
    return status;
}

static void fill_elastic(void *options) {
    kvmem_elastic_options *elastic = options;
    kvmem_elastic_options_init(elastic, sizeof(*elastic));
    elastic->size = 64 * MIB;
}

static kvmem_status call_elastic(const void *options) {
    OWNED(kvmem_region) region = POISON;
    const kvmem_status status = kvmem_region_create_elastic(options, &region, ERR);
    return status;
}

static void fill_adopt(void *options) {
    kvmem_adopt_options *adopt = options;
    kvmem_adopt_options_init(adopt, sizeof(*adopt));
    adopt->address = &subjects_world;
    adopt->size = sizeof(subjects_world);
}

static kvmem_status call_adopt(const void *options) {
    OWNED(kvmem_region) region = POISON;
    const kvmem_status status = kvmem_region_adopt_host(options, &region, ERR);
    return status;
}

static void fill_adopt_file(void *options) {
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("subject", MFD_CLOEXEC);
        CHECK(fd >= 0);
        CHECK_EQ(ftruncate(fd, 4096), 0);
    }
    kvmem_adopt_file_options *adopt = options;
    kvmem_adopt_file_options_init(adopt, sizeof(*adopt));
    adopt->fd = fd;
    adopt->size = 4096;
}

static kvmem_status call_adopt_file(const void *options) {
    OWNED(kvmem_region) region = POISON;
    const kvmem_status status = kvmem_region_adopt_file(options, &region, ERR);
    return status;
}

/* A handle of nowhere: good as an argument, and no more. */
static void fill_ipc(void *options) {
    kvmem_ipc_options *ipc = options;
    kvmem_ipc_options_init(ipc, sizeof(*ipc));
    ipc->size = 4096;
}

static kvmem_status call_ipc(const void *options) {
    OWNED(kvmem_region) region = POISON;
    const kvmem_status status = kvmem_region_open_ipc(options, &region, ERR);
    return status;
}

static void fill_agent(void *options) {
    kvmem_agent_options_init(options, sizeof(kvmem_agent_options));
}

static kvmem_status call_agent(const void *options) {
    OWNED(kvmem_agent) agent = POISON;
    const kvmem_status status = kvmem_agent_create("optioned", options, &agent, ERR);
    return status;
}

/* A region that can be shared, and goes with its share. */
static kvmem_share *share_of_region(const kvmem_share_options *options, kvmem_status *status) {
    kvmem_system_options system = OPTIONS(kvmem_system_options, it.flags = KVMEM_SYSTEM_SHAREABLE,
                                          it.size = 4096);
    OWN(kvmem_region, region, kvmem_region_create_system, &system);
    kvmem_share *share = POISON;
    *status = kvmem_share_create_region(region, options, &share, ERR);
    return share;
}

static void fill_share(void *options) {
    kvmem_share_options_init(options, sizeof(kvmem_share_options));
}

static kvmem_status call_share(const void *options) {
    kvmem_status status;
    kvmem_share_destroy(share_of_region(options, &status));
    return status;
}

static void fill_open(void *options) {
    kvmem_open_options_init(options, sizeof(kvmem_open_options));
}

static kvmem_status call_open(const void *options) {
    kvmem_status status;
    OWNED(kvmem_share) share = share_of_region(NULL, &status);
    OWNED(kvmem_region) region = POISON;
    status = kvmem_share_open_region(share, options, &region, ERR);
    return status;
}

static void fill_broker(void *options) {
    static char path[64];
    snprintf(path, sizeof(path), "/tmp/kvmem-contract-%d", (int)getpid());
    kvmem_broker_options *broker = options;
    kvmem_broker_options_init(broker, sizeof(*broker));
    broker->path = path;
}

static kvmem_status call_broker(const void *options) {
    OWNED(kvmem_broker) broker = POISON;
    const kvmem_status status = kvmem_broker_create(options, &broker, ERR);
    return status;
}

static void fill_publish(void *options) {
    kvmem_publish_options_init(options, sizeof(kvmem_publish_options));
}

static kvmem_status call_publish(const void *options) {
    kvmem_broker_options of_broker;
    fill_broker(&of_broker);
    OWN(kvmem_broker, broker, kvmem_broker_create, &of_broker);
    kvmem_status status;
    OWNED(kvmem_share) share = share_of_region(NULL, &status);
    kvmem_token token;
    status = kvmem_broker_publish(broker, "kv", share, options, &token, ERR);
    return status;
}

/* Good options of one that is not there. */
static void fill_fetch(void *options) {
    static const kvmem_token token = {{0}};
    kvmem_fetch_options *fetch = options;
    kvmem_fetch_options_init(fetch, sizeof(*fetch));
    fetch->path = "/nowhere/at/all";
    fetch->name = "kv";
    fetch->token = &token;
}

static kvmem_status call_fetch(const void *options) {
    OWNED(kvmem_share) share = POISON;
    const kvmem_status status = kvmem_share_fetch(options, &share, ERR);
    return status;
}

static void fill_config(void *options) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    memcpy(options, &config, sizeof(config));
}

static kvmem_status call_config(const void *options) {
    kvmem_layout_requirements needs;
    return kvmem_layout_get_requirements(options, &needs, ERR);
}

/* The same configuration, reached through the options of a layout. */
static kvmem_status call_nested_config(const void *config) {
    kvmem_system_options system = OPTIONS(kvmem_system_options);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = config,
                                           it.source = KVMEM_LAYOUT_ALLOCATE, it.system = &system);
    OWNED(kvmem_layout) layout = POISON;
    const kvmem_status status = kvmem_layout_build(&options, &layout, ERR);
    return status;
}

static void fill_layout(void *options) {
    static kvmem_layout_config config;
    config = kv_config(&kv_kinds[0]);
    kvmem_layout_options *layout = options;
    kvmem_layout_options_init(layout, sizeof(*layout));
    layout->config = &config;
    layout->source = KVMEM_LAYOUT_REGIONS;
    layout->regions = &subjects_world.region;
    layout->count = 1;
}

static kvmem_status call_layout(const void *options) {
    OWNED(kvmem_layout) layout = POISON;
    const kvmem_status status = kvmem_layout_build(options, &layout, ERR);
    return status;
}

static void fill_transfer(void *options) {
    const kvmem_transfer_options transfer = world_transfer_options();
    memcpy(options, &transfer, sizeof(transfer));
}

static kvmem_status call_transfer(const void *options) {
    OWNED(kvmem_transfer) transfer = POISON;
    const kvmem_layout *layout = subjects_world.local.layout;
    const kvmem_status status = kvmem_transfer_create(layout, layout, options, &transfer, ERR);
    return status;
}

const subject subjects[] = {
    {"system", sizeof(kvmem_system_options), fill_system, call_system, 15, KVMEM_STATUS_OK, false},
    {"disk", sizeof(kvmem_disk_options), fill_disk, call_disk, 63, KVMEM_STATUS_OK, false},
    {"pinned", sizeof(kvmem_pinned_options), fill_pinned, call_pinned, 7, KVMEM_STATUS_OK, true},
    {"device", sizeof(kvmem_device_options), fill_device, call_device, 0, KVMEM_STATUS_OK, true},
    {"elastic", sizeof(kvmem_elastic_options), fill_elastic, call_elastic, 1, KVMEM_STATUS_OK, true},
    {"vmm", sizeof(kvmem_vmm_options), fill_vmm, call_vmm, 7, KVMEM_STATUS_OK, true},
    {"adopt", sizeof(kvmem_adopt_options), fill_adopt, call_adopt, 1, KVMEM_STATUS_OK, false},
    {"adopt file", sizeof(kvmem_adopt_file_options), fill_adopt_file, call_adopt_file, 3, KVMEM_STATUS_OK, false},
    {"ipc", sizeof(kvmem_ipc_options), fill_ipc, call_ipc, 1, KVMEM_STATUS_INVALID_ARGUMENT, true},
    {"share", sizeof(kvmem_share_options), fill_share, call_share, 1, KVMEM_STATUS_OK, false},
    {"open", sizeof(kvmem_open_options), fill_open, call_open, 511, KVMEM_STATUS_OK, false},
    {"broker", sizeof(kvmem_broker_options), fill_broker, call_broker, 0, KVMEM_STATUS_OK, false},
    {"publish", sizeof(kvmem_publish_options), fill_publish, call_publish, 1, KVMEM_STATUS_OK, false},
    {"fetch", sizeof(kvmem_fetch_options), fill_fetch, call_fetch, 7, KVMEM_STATUS_NOT_FOUND, false},
    {"agent", sizeof(kvmem_agent_options), fill_agent, call_agent, 7, KVMEM_STATUS_OK, false},
    {"config", sizeof(kvmem_layout_config), fill_config, call_config, UINT64_MAX, KVMEM_STATUS_OK, false},
    {"nested config", sizeof(kvmem_layout_config), fill_config, call_nested_config, UINT64_MAX,
     KVMEM_STATUS_OK, false},
    {"layout", sizeof(kvmem_layout_options), fill_layout, call_layout, 0, KVMEM_STATUS_OK, false},
    {"transfer", sizeof(kvmem_transfer_options), fill_transfer, call_transfer, 15, KVMEM_STATUS_OK, false},
};

const size_t num_subjects = NUM(subjects);

const subject *subject_named(const char *name) {
    for (size_t i = 0; i < num_subjects; i++) {
        if (strcmp(subjects[i].name, name) == 0) {
            return &subjects[i];
        }
    }
    FAIL("no subject %s", name);
}

kvmem_status subject_good_answer(const subject *subject) {
    const bool has_gpu = access("/dev/nvidiactl", F_OK) == 0;
    return subject->needs_gpu && !has_gpu ? KVMEM_STATUS_UNAVAILABLE_CUDA : subject->good_answer;
}

unsigned char *subject_good_options(const subject *subject, size_t tail) {
    unsigned char *options = test_allocate(subject->size + tail);
    subject->fill(options);
    return options;
}
